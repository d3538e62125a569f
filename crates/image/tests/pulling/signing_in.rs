use base64::{Engine, engine::general_purpose::STANDARD};
use soulbox_image::Credentials;
use soulbox_types::Secret;

use crate::{
    image::TestImage,
    server::{Reply, Seen, Server},
    store::TestStore,
};

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

fn challenge(value: &str) -> Reply {
    let body = r#"{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}"#;
    Reply::Full(
        401,
        vec![("www-authenticate", value.to_owned())],
        body.into(),
    )
}

/// Gives tokens on its own `/token`, to those with the password `secret` if `closed`.
fn with_tokens(seen: &Seen, closed: bool) -> Option<Reply> {
    let host = seen.header("host").unwrap();
    if seen.path.starts_with("/token?") {
        assert!(seen.path.contains("service=test"), "{}", seen.path);
        let scope = seen.path.contains("scope=repository%3Aapp%3Apull");
        assert!(scope, "{}", seen.path);
        let known = seen.header("authorization") == Some(basic("me", "secret").as_str());
        if closed && !known {
            let body = r#"{"details":"incorrect username or password"}"#;
            return Some(Reply::Full(401, vec![], body.into()));
        }
        return Some(Reply::Full(
            200,
            vec![],
            br#"{"token":"let-me-in"}"#.to_vec(),
        ));
    }
    match seen.header("authorization") {
        Some("Bearer let-me-in") => None,
        _ => Some(challenge(&format!(
            "Bearer realm=\"http://{host}/token\",service=\"test\",scope=\"repository:app:pull\""
        ))),
    }
}

fn password(text: &str) -> Credentials {
    Credentials::Basic {
        username: "me".into(),
        password: Secret::new(text),
    }
}

#[tokio::test]
async fn an_open_registry_with_tokens_needs_no_credentials() {
    let server = Server::start(|seen| with_tokens(seen, false)).await;
    server.push("app", &TestImage::of(&[("a", b"b")]));
    let test = TestStore::trusting(&[server.host()]);
    test.store
        .pull(&server.reference("app"), None, false, &())
        .await
        .unwrap();
    assert_eq!(server.count("/token"), 1, "one token serves all of a pull");
}

#[tokio::test]
async fn a_closed_registry_with_tokens_wants_the_right_password() {
    let server = Server::start(|seen| with_tokens(seen, true)).await;
    server.push("app", &TestImage::of(&[("a", b"b")]));
    let test = TestStore::trusting(&[server.host()]);
    let reference = server.reference("app");
    let pull = |credentials: Option<Credentials>| {
        let (store, reference) = (test.store.clone(), reference.clone());
        async move {
            store
                .pull(&reference, credentials.as_ref(), false, &())
                .await
        }
    };
    for credentials in [None, Some(password("wrong"))] {
        let error = pull(credentials).await.unwrap_err().to_string();
        assert!(error.contains("incorrect username or password"), "{error}");
        assert!(!error.contains("wrong"), "{error}");
    }
    pull(Some(password("secret"))).await.unwrap();
    // Now it is here, but not for everybody.
    assert!(pull(None).await.is_err());
    assert!(pull(Some(password("wrong"))).await.is_err());
}

#[tokio::test]
async fn a_key_of_google_goes_as_a_password() {
    let expected = basic("_json_key", "{\"type\":\"service_account\"}");
    let server = Server::start(move |seen| {
        let known = seen.header("authorization") == Some(expected.as_str());
        (!known).then(|| challenge("Basic realm=\"x\""))
    })
    .await;
    server.push("app", &TestImage::of(&[("a", b"b")]));
    let test = TestStore::trusting(&[server.host()]);
    let key = Credentials::Gcp {
        service_account_json: Secret::new("{\"type\":\"service_account\"}"),
    };
    let reference = server.reference("app");
    test.store
        .pull(&reference, Some(&key), false, &())
        .await
        .unwrap();
    assert!(!format!("{key:?}").contains("service_account\""));
}

#[tokio::test]
async fn token_servers_that_talk_nonsense_are_refused() {
    for body in ["", "{}", "[1]", r#"{"token":"a\nb"}"#] {
        let server = Server::start(move |seen| {
            let host = seen.header("host").unwrap();
            Some(if seen.path.starts_with("/token") {
                Reply::Full(200, vec![], body.into())
            } else {
                challenge(&format!("Bearer realm=\"http://{host}/token\""))
            })
        })
        .await;
        let test = TestStore::trusting(&[server.host()]);
        let error = test.refused(&server.reference("app")).await;
        assert!(error.contains("token"), "{error}");
    }
}

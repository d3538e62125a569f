//! A registry that breaks down, lies, or wants to be led elsewhere.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use soulbox_image::ImageConfig;

use crate::{
    image::{Layer, TestImage, noise, tar},
    server::{Reply, Seen, Server},
    store::{TestStore, config},
};

fn big() -> TestImage {
    TestImage::of(&[("big", &noise(3 << 20, 7))])
}

fn is_layer(seen: &Seen, image: &TestImage) -> bool {
    seen.path.contains(&image.layers[0].digest())
}

#[tokio::test]
async fn a_cut_download_goes_on_where_it_stopped() {
    let image = big();
    let (known, blob) = (image.clone(), image.layers[0].blob.clone());
    let server = Server::start(move |seen| {
        let first = is_layer(seen, &known) && seen.header("range").is_none();
        first.then(|| Reply::Cut(blob.clone(), blob.len() / 2))
    })
    .await;
    server.push("app", &image);
    let test = TestStore::trusting(&[server.host()]);
    let pulled = test
        .store
        .pull(&server.reference("app"), None, false, &())
        .await;
    let layer = pulled.unwrap().layers[0].join("big");
    assert_eq!(std::fs::read(layer).unwrap(), noise(3 << 20, 7));
    let seen = server.seen();
    let resumed = seen.iter().find_map(|seen| seen.header("range")).unwrap();
    let from: usize = resumed
        .trim_matches(|char: char| !char.is_ascii_digit())
        .parse()
        .unwrap();
    assert!(
        from > 0 && from <= image.layers[0].blob.len() / 2,
        "{resumed}"
    );
    test.assert_no_leftovers();
}

#[tokio::test]
async fn a_registry_that_cannot_resume_is_asked_from_the_start() {
    let image = big();
    let (known, blob) = (image.clone(), image.layers[0].blob.clone());
    let server = Server::start(move |seen| {
        is_layer(seen, &known).then(|| match seen.header("range") {
            None => Reply::Cut(blob.clone(), blob.len() / 2),
            Some(_) => Reply::Full(200, vec![], blob.clone()),
        })
    })
    .await;
    server.push("app", &image);
    let test = TestStore::trusting(&[server.host()]);
    test.store
        .pull(&server.reference("app"), None, false, &())
        .await
        .unwrap();
    test.assert_no_leftovers();
}

#[tokio::test]
async fn a_download_that_is_always_cut_ends_with_a_reason_and_leaves_nothing() {
    let image = big();
    let (known, blob) = (image.clone(), image.layers[0].blob.clone());
    let server = Server::start(move |seen| {
        is_layer(seen, &known).then(|| Reply::Cut(blob.clone(), blob.len() / 2))
    })
    .await;
    server.push("app", &image);
    let test = TestStore::trusting(&[server.host()]);
    let error = test.refused(&server.reference("app")).await;
    assert!(
        error.contains("cut off") && error.contains("bytes"),
        "{error}"
    );
    // A mirror that works again is all it takes.
    let good = Server::honest().await;
    good.push("app", &image);
    let config = ImageConfig {
        mirrors: [(server.host(), format!("http://{}", good.host()))].into(),
        ..config(&[server.host()])
    };
    let again = soulbox_image::ImageStore::open(test.images(), config).unwrap();
    again
        .pull(&server.reference("app"), None, false, &())
        .await
        .unwrap();
}

#[tokio::test]
async fn a_layer_with_another_content_than_promised_is_refused() {
    let image = big();
    let known = image.clone();
    let mut changed = image.layers[0].blob.clone();
    let middle = changed.len() / 2;
    changed[middle] ^= 1;
    let server = Server::start(move |seen| {
        is_layer(seen, &known).then(|| Reply::Full(200, vec![], changed.clone()))
    })
    .await;
    server.push("app", &image);
    let test = TestStore::trusting(&[server.host()]);
    let error = test.refused(&server.reference("app")).await;
    assert!(
        error.contains("digest") && error.contains("promised"),
        "{error}"
    );
}

#[tokio::test]
async fn a_layer_that_unpacks_to_something_else_is_refused() {
    let server = Server::honest().await;
    let mut layer = Layer::gzip(&tar(&[("a", b"b")]));
    layer.diff_id = crate::image::sha256(b"something else");
    server.push("app", &TestImage::new(vec![layer]));
    let test = TestStore::trusting(&[server.host()]);
    let error = test.refused(&server.reference("app")).await;
    assert!(error.contains("layer's content"), "{error}");
}

#[tokio::test]
async fn a_layer_longer_or_shorter_than_promised_is_refused() {
    for (change, word) in [(1_isize, "larger"), (-1, "cut off")] {
        let image = big();
        let known = image.clone();
        let mut blob = image.layers[0].blob.clone();
        blob.resize(blob.len().checked_add_signed(change).unwrap(), 0);
        let server = Server::start(move |seen| {
            let part = seen.header("range").is_some();
            is_layer(seen, &known).then(|| {
                if part {
                    Reply::Full(416, vec![], vec![])
                } else {
                    Reply::Full(200, vec![], blob.clone())
                }
            })
        })
        .await;
        server.push("app", &image);
        let test = TestStore::trusting(&[server.host()]);
        let error = test.refused(&server.reference("app")).await;
        assert!(error.contains(word) || error.contains("416"), "{error}");
    }
}

#[tokio::test]
async fn a_silent_registry_is_given_up() {
    let image = big();
    let (known, blob) = (image.clone(), image.layers[0].blob.clone());
    let server =
        Server::start(move |seen| is_layer(seen, &known).then(|| Reply::Stall(blob.clone(), 1000)))
            .await;
    server.push("app", &image);
    let mut config = config(&[server.host()]);
    config.timeouts.idle = Duration::from_millis(100);
    let test = TestStore::with(config);
    let started = Instant::now();
    let error = test.refused(&server.reference("app")).await;
    assert!(error.contains("nothing for"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(20));
}

#[tokio::test]
async fn a_pull_as_a_whole_has_a_limit() {
    let image = big();
    let (known, blob) = (image.clone(), image.layers[0].blob.clone());
    let server =
        Server::start(move |seen| is_layer(seen, &known).then(|| Reply::Stall(blob.clone(), 1000)))
            .await;
    server.push("app", &image);
    let mut config = config(&[server.host()]);
    config.timeouts.total = Duration::from_millis(300);
    let test = TestStore::with(config);
    let error = test.refused(&server.reference("app")).await;
    assert!(error.contains("not here within"), "{error}");
}

#[tokio::test]
async fn an_endless_manifest_is_not_read_to_its_end() {
    let server = Server::start(|_| Some(Reply::Endless)).await;
    let test = TestStore::trusting(&[server.host()]);
    let error = test.refused(&server.reference("app")).await;
    assert!(error.contains("larger than"), "{error}");
}

#[tokio::test]
async fn refusals_are_told_in_the_registrys_words() {
    let cases = [
        (401, "refused the sign-in"),
        (403, "does not allow"),
        (404, "has no"),
        (418, "answered 418"),
    ];
    for (status, words) in cases {
        let server = Server::start(move |_| {
            let body = r#"{"errors":[{"code":"X","message":"because of the test"}]}"#;
            Some(Reply::Full(status, vec![], body.into()))
        })
        .await;
        let test = TestStore::trusting(&[server.host()]);
        let error = test.refused(&server.reference("app")).await;
        assert!(
            error.contains(words) && error.contains("because of the test"),
            "{error}"
        );
        assert!(error.contains("app"), "{error}");
        assert_eq!(server.count("/v2/"), 1, "no retries of {status}");
    }
}

#[tokio::test]
async fn a_busy_registry_is_asked_again_after_the_time_it_names() {
    let times = AtomicUsize::new(0);
    let server = Server::start(move |seen| {
        let busy = seen.path.contains("manifests") && times.fetch_add(1, Ordering::SeqCst) == 0;
        busy.then(|| Reply::Full(429, vec![("retry-after", "1".into())], vec![]))
    })
    .await;
    server.push("app", &TestImage::of(&[("a", b"b")]));
    let test = TestStore::trusting(&[server.host()]);
    let started = Instant::now();
    test.store
        .pull(&server.reference("app"), None, false, &())
        .await
        .unwrap();
    assert!(started.elapsed() >= Duration::from_secs(1));
}

#[tokio::test]
async fn a_registry_that_wants_hours_is_not_waited_for() {
    let server = Server::start(|_| {
        Some(Reply::Full(
            429,
            vec![("retry-after", "7200".into())],
            vec![],
        ))
    })
    .await;
    let test = TestStore::trusting(&[server.host()]);
    let error = test.refused(&server.reference("app")).await;
    assert!(error.contains("no more requests"), "{error}");
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn a_failing_registry_is_tried_a_few_times() {
    let server = Server::start(|_| Some(Reply::Full(503, vec![], vec![]))).await;
    let test = TestStore::trusting(&[server.host()]);
    let error = test.refused(&server.reference("app")).await;
    assert!(error.contains("503"), "{error}");
    assert_eq!(server.seen().len(), 5);
}

#[tokio::test]
async fn a_registry_at_a_private_address_needs_the_operators_word() {
    let server = Server::honest().await;
    server.push("app", &TestImage::of(&[("a", b"b")]));
    let test = TestStore::trusting(&[]);
    let port = server.address.port();
    for host in [
        "127.0.0.1",
        "localhost",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "0.0.0.0",
        "127.1",
    ] {
        let error = test.refused(&format!("{host}:{port}/app")).await;
        assert!(error.contains("registry-allow"), "{host}: {error}");
    }
    // Cloud metadata, without a port.
    let error = test.refused("169.254.169.254/latest/meta-data").await;
    assert!(error.contains("registry-allow"), "{error}");
    assert_eq!(server.seen().len(), 0);
}

#[tokio::test]
async fn redirects_to_private_addresses_are_not_followed() {
    let secret = Server::honest().await;
    let image = TestImage::of(&[("a", b"b")]);
    secret.push("app", &image);
    let to = secret.host();
    let server = Server::start(move |seen| {
        let location = format!("http://{to}{}", seen.path);
        seen.path
            .contains("/blobs/")
            .then(|| Reply::Full(302, vec![("location", location)], vec![]))
    })
    .await;
    server.push("app", &image);
    let test = TestStore::trusting(&[server.host()]);
    let error = test.refused(&server.reference("app")).await;
    assert!(
        error.contains("registry-allow") && error.contains(&secret.host()),
        "{error}"
    );
    assert_eq!(secret.seen().len(), 0);
}

#[tokio::test]
async fn redirects_to_plain_http_or_without_an_end_are_not_followed() {
    for (location, word) in [
        ("http://203.0.113.9/x", "without encryption"),
        ("ftp://203.0.113.9/x", "cannot be followed"),
        ("/again", "more than 5"),
    ] {
        let server = Server::start(move |_| {
            Some(Reply::Full(
                302,
                vec![("location", location.into())],
                vec![],
            ))
        })
        .await;
        let test = TestStore::trusting(&[server.host()]);
        let error = test.refused(&server.reference("app")).await;
        assert!(error.contains(word), "{error}");
    }
}

#[tokio::test]
async fn token_servers_at_private_addresses_are_not_asked() {
    let secret = Server::honest().await;
    let realm = format!(
        "Bearer realm=\"http://{}/token\",service=\"s\"",
        secret.host()
    );
    let server = Server::start(move |_| {
        Some(Reply::Full(
            401,
            vec![("www-authenticate", realm.clone())],
            vec![],
        ))
    })
    .await;
    let test = TestStore::trusting(&[server.host()]);
    let error = test.refused(&server.reference("app")).await;
    assert!(error.contains("registry-allow"), "{error}");
    assert_eq!(secret.seen().len(), 0);
}

#[tokio::test]
async fn manifests_that_make_no_sense_are_refused() {
    let image = TestImage::of(&[("a", b"b")]);
    let good = String::from_utf8(image.manifest.clone()).unwrap();
    let layer = &image.layers[0];
    let size = format!("\"size\":{}", layer.blob.len());
    let cases = [
        "not json".to_owned(),
        "{}".to_owned(),
        good.replace(&layer.digest(), "sha256:../../../../etc/passwd"),
        good.replace(&layer.digest(), "md5:00"),
        good.replace(&size, "\"size\":99999999999999"),
        good.replace(&size, "\"size\":-1"),
        good.replace(
            "\"layers\":[",
            &format!("\"layers\":[{}", repeated(layer, 200)),
        ),
    ];
    for manifest in cases {
        let server = Server::honest().await;
        server.push("app", &image);
        server.put("/v2/app/manifests/latest", manifest.as_bytes());
        let test = TestStore::trusting(&[server.host()]);
        test.refused(&server.reference("app")).await;
        assert_eq!(server.count(&layer.digest()), 0, "{manifest}");
    }
}

fn repeated(layer: &Layer, times: usize) -> String {
    let one = format!(
        "{{\"digest\":\"{}\",\"size\":{}}},",
        layer.digest(),
        layer.blob.len()
    );
    one.repeat(times)
}

#[tokio::test]
async fn a_registry_that_is_not_there_is_told_so() {
    let server = Server::honest().await;
    let reference = server.reference("app");
    let test = TestStore::trusting(&[format!("http://{}", server.host())]);
    drop(server);
    let error = test.refused(&reference).await;
    assert!(error.contains("could not connect"), "{error}");
}

/// A registry without HTTP libraries: sends the same for ever to whoever asks. Counts who did.
async fn flood(
    head: &'static str,
    again: &'static str,
) -> (String, std::sync::Arc<std::sync::atomic::AtomicUsize>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = listener.local_addr().unwrap().to_string();
    let asked = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = asked.clone();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            tokio::spawn(async move {
                drop(socket.read(&mut [0; 4096]).await);
                drop(socket.write_all(head.as_bytes()).await);
                let many = again.repeat(1000);
                while socket.write_all(many.as_bytes()).await.is_ok() {}
            });
        }
    });
    (host, asked)
}

#[tokio::test]
async fn a_flood_of_interim_answers_is_given_up_and_not_asked_again() {
    let (host, asked) = flood("", "HTTP/1.1 100 Continue\r\n\r\n").await;
    let test = TestStore::trusting(&[format!("http://{host}")]);
    let error = test.refused(&format!("{host}/app")).await;
    assert!(error.contains("interim answers"), "{error}");
    assert_eq!(asked.load(std::sync::atomic::Ordering::SeqCst), 1);
}

#[tokio::test]
async fn errors_do_not_tell_what_names_resolve_to_nor_whether_they_do() {
    let test = TestStore::trusting(&[]);
    let error = test.refused("localhost:1/app").await;
    assert!(
        !error.contains("127.0.0.1") && !error.contains("::1"),
        "{error}"
    );
    // Resolves to this machine, but is not known to everybody as it; and one that resolves nowhere.
    let there = test.refused("127.1:1/app").await;
    let nowhere = format!("{}.example:1", "x".repeat(64));
    let not_there = test.refused(&format!("{nowhere}/app")).await;
    assert_eq!(
        there.replace("127.1:1", "HOST"),
        not_there.replace(&nowhere, "HOST")
    );
    assert!(there.contains("registry-allow"), "{there}");
}

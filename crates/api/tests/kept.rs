//! Secrets, volumes, events, webhooks and a team's metrics, as clients see them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

#[path = "support/world.rs"]
#[allow(dead_code, reason = "each test crate uses a part of it")]
mod support;

use http::Method;
use serde_json::{Value, json};
use soulbox_types::PauseMode;
use support::{Answer, World, world};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

async fn secret(world: &World, name: &str) -> Answer {
    let body = json!({"name": name, "value": "geheim", "metadata": {"a": "b"}});
    world.post("/secrets", &body).await
}

#[tokio::test]
async fn a_secret_is_made_shown_changed_and_deleted_without_its_value() {
    let world = world().await;
    let made = secret(&world, "My-Key").await;
    assert_eq!(made.status, 201);
    assert_eq!(made.header("cache-control"), Some("no-store"));
    let id = made.json["secretID"].as_str().unwrap().to_owned();
    assert_eq!(made.json["name"], "my-key");
    assert_eq!(made.json["currentVersion"], 1);
    assert_eq!(made.json["metadata"], json!({"a": "b"}));
    for name in [id.as_str(), "my-key", "MY-KEY"] {
        let shown = world.get(&format!("/secrets/{name}")).await;
        assert_eq!((shown.status.as_u16(), &shown.json), (200, &made.json));
    }
    let changed = world
        .post("/secrets/my-key", &json!({"value": "neu"}))
        .await;
    assert_eq!(changed.status, 200);
    assert_eq!(changed.json["currentVersion"], 2);
    assert_eq!(changed.json["metadata"], json!({"a": "b"}));
    let list = world.get("/secrets").await;
    assert_eq!(list.json.as_array().unwrap().len(), 1);
    for answer in [&made, &changed, &list] {
        assert!(!answer.text.contains("geheim") && !answer.text.contains("neu"));
    }
    assert_eq!(world.delete(&format!("/secrets/{id}")).await.status, 204);
    world.delete(&format!("/secrets/{id}")).await.is_error(
        404,
        &format!("Secret {id} doesn't exist or you don't have access to it"),
    );
}

#[tokio::test]
async fn secrets_are_checked_listed_in_pages_and_kept_apart() {
    let world = world().await;
    for name in ["a", "b", "c"] {
        assert_eq!(secret(&world, name).await.status, 201);
    }
    secret(&world, "A")
        .await
        .is_error(409, "Secret with name 'a' already exists");
    let long = "v".repeat(64 * 1024 + 1);
    for body in [
        json!({"name": "", "value": "x"}),
        json!({"name": "sec_x", "value": "x"}),
        json!({"name": "a b", "value": "x"}),
        json!({"name": "n".repeat(129), "value": "x"}),
        json!({"name": "n", "value": ""}),
        json!({"name": "n", "value": long}),
        json!({"name": "n"}),
        json!({"name": "n", "value": "x", "metadata": {"k": "v".repeat(1025)}}),
    ] {
        let answer = world.post("/secrets", &body).await;
        assert_eq!(answer.status, 400, "{}", answer.text);
        assert!(!answer.text.contains("vvvv"));
    }
    let first = world.get("/secrets?limit=2").await;
    assert_eq!(first.json.as_array().unwrap().len(), 2);
    let token = first.header("x-next-token").unwrap();
    let second = world
        .get(&format!("/secrets?limit=2&nextToken={token}"))
        .await;
    assert_eq!(second.json.as_array().unwrap().len(), 1);
    assert_eq!(second.header("x-next-token"), None);

    let other = world.second_tenant().await;
    for (method, path) in [
        (Method::GET, "/secrets/a"),
        (Method::DELETE, "/secrets/a"),
        (Method::POST, "/secrets/a"),
    ] {
        let request = world.request(method, path).key(&other);
        let answer = world.send(request.body(r#"{"value":"x"}"#)).await;
        assert_eq!(answer.status, 404);
    }
    let theirs = world
        .send(world.request(Method::GET, "/secrets").key(&other))
        .await;
    assert_eq!(theirs.json, json!([]));
}

/// `None` where this machine cannot mount.
async fn volume(world: &World, name: &str) -> Option<(String, String)> {
    if !std::fs::exists("/dev/loop-control").unwrap() {
        eprintln!("skipped: needs loop devices");
        return None;
    }
    let made = world.post("/volumes", &json!({"name": name})).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let text = |key: &str| made.json[key].as_str().unwrap().to_owned();
    Some((text("volumeID"), text("token")))
}

async fn touch(
    world: &World,
    method: Method,
    (id, token): &(String, String),
    rest: &str,
    body: &str,
) -> Answer {
    let path = format!("/volumecontent/{id}/{rest}");
    let request = world.request(method, &path).anonymous();
    let request = request.header("authorization", &format!("Bearer {token}"));
    world.send(request.body(body)).await
}

#[tokio::test]
async fn a_volume_is_made_found_and_deleted_by_its_owner_only() {
    let world = world().await;
    let Some((id, token)) = volume(&world, "data_1").await else {
        return;
    };
    let path = format!("/volumes/{id}");
    let shown = world.get(&path).await;
    assert_eq!(shown.json["token"], token.as_str());
    assert_eq!(shown.json["name"], "data_1");
    assert_eq!(
        world.get("/volumes").await.json,
        json!([{"volumeID": id, "name": "data_1"}])
    );
    world
        .post("/volumes", &json!({"name": "data_1"}))
        .await
        .is_error(400, "Volume with name 'data_1' already exists");
    for bad in ["", "a b", "../x", "a/b"] {
        let answer = world.post("/volumes", &json!({"name": bad})).await;
        assert_eq!(answer.status, 400, "{bad}");
    }
    world
        .get("/volumes/nope")
        .await
        .is_error(400, "Invalid volume ID");
    let other = world.second_tenant().await;
    for method in [Method::GET, Method::DELETE] {
        let answer = world.send(world.request(method, &path).key(&other)).await;
        assert_eq!(answer.status, 404);
    }
    assert_eq!(world.delete(&path).await.status, 204);
    assert_eq!(world.delete(&path).await.status, 404);
    let gone = touch(&world, Method::GET, &(id, token), "path?path=/", "").await;
    assert_eq!(gone.status, 404);
}

#[tokio::test]
async fn the_content_api_does_what_the_sdks_expect() {
    let world = world().await;
    let Some(volume) = volume(&world, "data").await else {
        return;
    };
    let made = touch(&world, Method::PUT, &volume, "file?path=/a.txt", "hello").await;
    assert_eq!(made.status, 201, "{}", made.text);
    assert_eq!(made.json["type"], "file");
    assert_eq!(made.json["path"], "/a.txt");
    assert_eq!(made.json["size"], 5);
    assert_eq!(made.json["mode"], 0o644);
    let again = touch(&world, Method::PUT, &volume, "file?path=/a.txt", "x").await;
    assert_eq!(again.status, 409);
    let forced = touch(
        &world,
        Method::PUT,
        &volume,
        "file?path=a.txt&force=true&mode=384",
        "bye",
    )
    .await;
    assert_eq!(
        (forced.status.as_u16(), &forced.json["mode"]),
        (201, &json!(0o600))
    );
    let read = touch(&world, Method::GET, &volume, "file?path=/a.txt", "").await;
    assert_eq!(read.text, "bye");
    assert_eq!(
        read.header("content-type"),
        Some("application/octet-stream")
    );
    assert_eq!(read.header("content-length"), Some("3"));

    let deep = "dir?path=/x/y&force=true&uid=7";
    let made = touch(&world, Method::POST, &volume, deep, "").await;
    assert_eq!((made.status.as_u16(), &made.json["uid"]), (201, &json!(7)));
    let list = touch(&world, Method::GET, &volume, "dir?path=/&depth=2", "").await;
    let paths: Vec<_> = list.json.as_array().unwrap().iter().collect();
    assert_eq!(
        paths.iter().map(|entry| &entry["path"]).collect::<Vec<_>>(),
        ["/a.txt", "/x", "/x/y"]
    );
    let body = r#"{"uid":5,"gid":6,"mode":511}"#;
    let changed = touch(&world, Method::PATCH, &volume, "path?path=/a.txt", body).await;
    assert_eq!(changed.json["mode"], 0o777);
    for (method, rest, status) in [
        (Method::GET, "path?path=/none", 404),
        (Method::GET, "path", 400),
        (Method::GET, "file?path=/x", 400),
        (Method::GET, "dir?path=/a.txt", 400),
        (Method::GET, "dir?path=/&depth=11", 400),
        (Method::GET, "dir?path=/&depth=0", 400),
        (Method::POST, "dir?path=/x", 409),
        (Method::POST, "dir?path=/n/m", 404),
        (Method::POST, "dir?path=/n&uid=70000", 400),
        (Method::PUT, "file?path=/n/m", 404),
        (Method::PUT, "file?path=/../../..", 400),
        (Method::DELETE, "path?path=/", 400),
        (Method::DELETE, "path?path=/x", 204),
        (Method::DELETE, "path?path=/x", 404),
    ] {
        let answer = touch(&world, method.clone(), &volume, rest, "").await;
        assert_eq!(answer.status, status, "{method} {rest} {}", answer.text);
    }
    let big = "7".repeat(80 << 20);
    let full = touch(&world, Method::PUT, &volume, "file?path=/big", &big).await;
    assert_eq!(full.status, 507);
    assert_eq!(
        touch(&world, Method::GET, &volume, "path?path=/big", "")
            .await
            .status,
        404
    );
}

#[tokio::test]
async fn a_volume_token_opens_one_volume_and_nothing_else() {
    let world = world().await;
    let (Some(one), Some(two)) = (volume(&world, "one").await, volume(&world, "two").await) else {
        return;
    };
    for (id, token) in [
        (&one.0, two.1.as_str()),
        (&one.0, ""),
        (&one.0, &one.1[1..]),
        (&one.0, world.key.as_str()),
        (&"../one".to_owned(), one.1.as_str()),
    ] {
        let volume = (id.replace('/', "%2F"), token.to_owned());
        let answer = touch(&world, Method::GET, &volume, "path?path=/", "").await;
        assert_eq!(answer.status, 401, "{}", answer.text);
    }
    let path = format!("/volumecontent/{}/path?path=/", one.0);
    assert_eq!(world.get(&path).await.status, 401);
    let as_key = world.request(Method::GET, "/volumes").key(&one.1);
    assert_eq!(world.send(as_key).await.status, 401);
}

#[tokio::test]
async fn mounts_are_checked_all_at_once_told_back_and_keep_their_volume() {
    let world = world().await;
    let Some((id, _)) = volume(&world, "data").await else {
        return;
    };
    let create = async |mounts: Value| {
        let body = json!({"templateID": "base", "volumeMounts": mounts});
        world.post("/v2/sandboxes", &body).await
    };
    let bad = create(json!([
        {"name": "data", "path": "relative"},
        {"name": "nope", "path": "/a/../b"},
        {"name": "data", "path": "/ok"},
        {"name": "data", "path": "/ok"},
    ]))
    .await;
    assert_eq!(bad.status, 400);
    let text = bad.json["message"].as_str().unwrap();
    assert!(text.starts_with("invalid mounts: volume mount #0: path must be absolute"));
    for part in [
        "volume mount #1: path must not contain",
        "volume mount #1: volume 'nope' not found",
        "volume mount #3: path '/ok' is used more than once",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let mounts = json!([{"name": "data", "path": "/mnt/data"}]);
    let made = create(mounts.clone()).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let shown = world.get(&made.sandbox_path()).await;
    assert_eq!(shown.json["volumeMounts"], mounts);
    let list = world.get("/v2/sandboxes").await;
    assert_eq!(list.json[0]["volumeMounts"], mounts);

    let path = format!("/volumes/{id}");
    world.delete(&path).await.is_error(
        409,
        &format!(
            "the volume is in use by sandbox {}: kill it first",
            made.sandbox_id()
        ),
    );
    world.delete(&made.sandbox_path()).await;
    assert_eq!(world.delete(&path).await.status, 204);
    assert_eq!(create(mounts).await.status, 400);
}

#[tokio::test]
async fn events_tell_the_life_of_a_sandbox_to_its_owner() {
    let world = world().await;
    let body = json!({"templateID": "base", "metadata": {"k": "v"}});
    let made = world.post("/v2/sandboxes", &body).await;
    let path = made.sandbox_path();
    world
        .post(&format!("{path}/timeout"), &json!({"timeout": 60}))
        .await;
    let paused = world.post(&format!("{path}/pause"), &json!({})).await;
    assert_eq!(paused.status, 204, "{}", paused.text);
    world.post(&format!("/v2{path}/connect"), &json!({})).await;
    world.delete(&path).await;

    let events = format!("/events/sandboxes/{}", made.sandbox_id());
    let list = world.get(&format!("{events}?orderAsc=true")).await;
    let kinds: Vec<_> = list
        .json
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["type"].as_str().unwrap())
        .collect();
    let expected = ["created", "updated", "paused", "resumed", "killed"];
    assert_eq!(
        kinds,
        expected.map(|kind| format!("sandbox.lifecycle.{kind}"))
    );
    let (first, last) = (&list.json[0], &list.json[4]);
    assert_eq!(first["sandboxTemplateId"], support::BASE_ID);
    assert_eq!(first["sandboxBuildId"], support::BASE_BUILD);
    assert_eq!(first["sandboxTeamId"], world.tenant.id.as_str());
    assert_eq!(first["eventData"]["sandbox_metadata"], json!({"k": "v"}));
    assert_eq!(last["eventData"]["reason"], "killed");
    assert!(last["eventData"]["execution"]["execution_time"].is_u64());
    assert_ne!(first["sandboxExecutionId"], last["sandboxExecutionId"]);

    let killed = world
        .get("/events/sandboxes?types=sandbox.lifecycle.killed&limit=1")
        .await;
    assert_eq!(killed.json.as_array().unwrap().len(), 1);
    for bad in [
        "limit=0",
        "limit=101",
        "orderAsc=x",
        "offset=-1",
        "types=a%20b",
    ] {
        let answer = world.get(&format!("/events/sandboxes?{bad}")).await;
        assert_eq!(answer.status, 400, "{bad}");
    }
    let other = world.second_tenant().await;
    let theirs = world.request(Method::GET, &events).key(&other);
    assert_eq!(world.send(theirs).await.json, json!([]));
}

/// Answers each request with the next status, and gives back what came.
async fn receiver(statuses: &'static [u16]) -> (String, tokio::task::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook?x=1", listener.local_addr().unwrap());
    let task = tokio::spawn(async move {
        let mut requests = Vec::new();
        for status in statuses {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut data = Vec::new();
            // Bodies are JSON objects, and the only ones.
            while !data.ends_with(b"}") {
                assert!(stream.read_buf(&mut data).await.unwrap() > 0);
            }
            let answer =
                format!("HTTP/1.1 {status} x\r\nlocation: /other\r\ncontent-length: 0\r\n\r\n");
            stream.write_all(answer.as_bytes()).await.unwrap();
            requests.push(String::from_utf8(data).unwrap());
        }
        requests
    });
    (url, task)
}

#[tokio::test]
async fn webhooks_are_signed_retried_and_only_for_what_they_want() {
    let world = world().await;
    let (url, received) = receiver(&[500, 302, 200, 200]).await;
    let body = json!({
        "name": "mine", "url": url, "signatureSecret": "sh",
        "events": ["sandbox.lifecycle.created", "sandbox.lifecycle.killed"],
    });
    let made = world.post("/events/webhooks", &body).await;
    assert_eq!(made.status, 201, "{}", made.text);
    assert!(!made.text.contains("signatureSecret"));
    let sandbox = world.create().await;
    let path = sandbox.sandbox_path();
    world
        .post(&format!("{path}/timeout"), &json!({"timeout": 60}))
        .await;
    world.delete(&path).await;

    let limit = std::time::Duration::from_secs(20);
    let requests = tokio::time::timeout(limit, received)
        .await
        .unwrap()
        .unwrap();
    let bodies: Vec<Value> = requests
        .iter()
        .map(|text| serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap())
        .collect();
    let kinds: Vec<_> = bodies
        .iter()
        .map(|b| b["event_label"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["created", "created", "created", "killed"]);
    assert_eq!(bodies[0]["id"], bodies[2]["id"]);
    assert_eq!(bodies[3]["version"], "v2");
    assert_eq!(bodies[3]["sandbox_id"], sandbox.sandbox_id().as_str());
    assert!(requests[0].starts_with("POST /hook?x=1 HTTP/1.1\r\n"));
    for header in [
        format!("e2b-webhook-id: {}", made.json["id"].as_str().unwrap()),
        "e2b-signature-version: v1".to_owned(),
        "e2b-signature: ".to_owned(),
        "e2b-delivery-id: ".to_owned(),
    ] {
        assert!(requests[0].contains(&header), "{}", requests[0]);
    }
}

#[tokio::test]
async fn webhooks_are_managed_by_their_owner_and_checked() {
    let world = world().await;
    let good = json!({
        "name": "n", "url": "https://example.com/", "signatureSecret": "s", "enabled": false,
        "events": ["sandbox.lifecycle.created"],
    });
    let made = world.post("/events/webhooks", &good).await;
    let path = format!("/events/webhooks/{}", made.json["id"].as_str().unwrap());
    assert_eq!(made.json["teamID"], world.tenant.id.as_str());
    assert_eq!(world.get(&path).await.json, made.json);
    assert_eq!(world.get("/events/webhooks").await.json, json!([made.json]));
    let patch = world.request(Method::PATCH, &path).body(r#"{"name":"m"}"#);
    let changed = world.send(patch).await;
    assert_eq!(
        (changed.status.as_u16(), &changed.json["name"]),
        (200, &json!("m"))
    );
    assert_eq!(changed.json["url"], made.json["url"]);
    for (key, bad) in [
        ("url", json!("ftp://example.com")),
        ("url", json!("nope")),
        ("events", json!([])),
        ("events", json!(["sandbox.lifecycle.nope"])),
        ("name", json!("")),
        ("signatureSecret", json!(null)),
    ] {
        let mut body = good.clone();
        body[key] = bad;
        let answer = world.post("/events/webhooks", &body).await;
        assert_eq!(answer.status, 400, "{key}");
    }
    let other = world.second_tenant().await;
    for method in [Method::GET, Method::DELETE] {
        let theirs = world.request(method, &path).key(&other);
        assert_eq!(world.send(theirs).await.status, 404);
    }
    assert_eq!(world.delete(&path).await.status, 200);
    assert_eq!(world.get(&path).await.status, 404);
}

#[tokio::test]
async fn a_team_sees_how_many_sandboxes_it_had() {
    let world = world().await;
    let first = world.create().await;
    world.create().await;
    world
        .control()
        .pause(&world.tenant, &first.sandbox_id(), PauseMode::Memory, false)
        .await
        .unwrap();
    let team = format!("/teams/{}/metrics", world.tenant.id);
    let samples = world.get(&team).await;
    let samples = samples.json.as_array().unwrap();
    assert_eq!(samples.len(), 300);
    assert_eq!(samples[299]["concurrentSandboxes"], 2);
    assert!(samples[299]["sandboxStartRate"].as_f64().unwrap() > 0.0);
    assert!(samples[299]["timestampUnix"].is_u64());
    let max = world
        .get(&format!("{team}/max?metric=concurrent_sandboxes"))
        .await;
    assert_eq!(max.json["value"], 2.0);
    for bad in ["", "?metric=nope"] {
        assert_eq!(world.get(&format!("{team}/max{bad}")).await.status, 400);
    }
    assert_eq!(
        world.get(&format!("{team}?start=5&end=1")).await.status,
        400
    );
    let other = "/teams/01890a5d-ac96-774b-bcce-b302099a8057/metrics";
    assert_eq!(world.get(other).await.status, 403);
}

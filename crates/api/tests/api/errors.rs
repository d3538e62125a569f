//! Errors as they go over the wire: status, headers and every byte of the body. Clients parse them, so
//! `errors.txt` changes only when that is meant.

use std::{fmt::Write, io, sync::atomic::Ordering, time::Duration};

use http::Method;
use serde_json::json;
use soulbox_runtime::{Error as NodeError, Remedy};
use soulbox_types::{SandboxState, Tier};

use crate::support::{self, Answer, BASE_BUILD, BASE_ID, World, world};

const UNKNOWN: &str = "inotthere00000000000";
const UNKNOWN_UUID: &str = "01890a5d-ac96-774b-bcce-b302099a8058";

/// What was asked, and what came.
#[derive(Default)]
struct Record(String);

impl Record {
    fn add(&mut self, what: &str, answer: &Answer) {
        writeln!(self.0, "# {what}\n{}\n", answer.on_the_wire()).unwrap();
    }

    /// What differs from run to run is given a name.
    fn hide(&mut self, value: &str, name: &str) {
        self.0 = self.0.replace(value, name);
    }

    async fn ask(&mut self, world: &World, line: &str, body: &str) -> Answer {
        let (method, path) = line.split_once(' ').unwrap();
        let request = world.request(method.parse().unwrap(), path).body(body);
        let answer = world.send(request).await;
        self.add(format!("{line} {body}").trim(), &answer);
        answer
    }
}

/// The part of `errors.txt` below this heading.
#[track_caller]
fn is_as_written(part: &str, record: &Record) {
    let all = include_str!("errors.txt");
    let written = all
        .split("\n## ")
        .find_map(|each| each.strip_prefix(&format!("{part}\n\n")))
        .unwrap_or_default();
    let (written, found) = (written.trim_end(), record.0.trim_end());
    assert!(
        written == found,
        "## {part}\n\n{found}\n\nis not in errors.txt"
    );
}

#[tokio::test]
async fn of_requests_that_mean_nothing() {
    let world = world().await;
    let mut record = Record::default();
    let nobody = world.request(Method::GET, "/sandboxes").anonymous();
    record.add("no key", &world.send(nobody).await);
    let nobody = world.request(Method::GET, "/v1/broken").anonymous();
    record.add("no key, ours", &world.send(nobody).await);
    let wrong = format!("e2b_{}", "0".repeat(40));
    let wrong = world.request(Method::GET, "/sandboxes").key(&wrong);
    record.add("a wrong key", &world.send(wrong).await);
    for line in [
        "GET /nope",
        "GET /v1/nope",
        "PUT /sandboxes",
        "PUT /v1/broken",
        "GET /sandboxes/%FF",
        "GET /sandboxes/a-b-c",
        "GET /v1/sandboxes/UPPER/languages",
        "GET /v2/sandboxes?limit=0",
        "GET /v2/sandboxes?limit=x",
        "GET /v2/sandboxes?order=up",
        "GET /v2/sandboxes?nextToken=x",
        "POST /access-tokens",
        "GET /nodes",
        "POST /templates",
        "GET /teams/another/metrics",
    ] {
        record.ask(&world, line, "").await;
    }
    for body in [
        "",
        "{",
        "[]",
        r#"{"templateID":1}"#,
        "{}",
        r#"{"templateID":"a b"}"#,
        r#"{"templateID":"nope"}"#,
        r#"{"templateID":"base:v2"}"#,
        r#"{"templateID":"base","timeout":0}"#,
        r#"{"templateID":"base","autoPauseMemory":false}"#,
        r#"{"templateID":"base","iam":{"tokens":{"t":{"audience":"a","tokenType":"JWT-SVID"}}}}"#,
        r#"{"templateID":"base","network":{"denyOut":["example.com"]}}"#,
        r#"{"templateID":"base","network":{"allowOut":["example.com"]}}"#,
        r#"{"templateID":"base","timeout":86401}"#,
    ] {
        record.ask(&world, "POST /v2/sandboxes", body).await;
    }
    let large = format!("{{\"x\":\"{}\"}}", "x".repeat(1024 * 1024));
    let large = world.request(Method::POST, "/v2/sandboxes").body(&large);
    record.add("a large body", &world.send(large).await);
    is_as_written("requests that mean nothing", &record);
}

#[tokio::test]
async fn of_the_node() {
    let world = world().await;
    let mut record = Record::default();
    let id = || UNKNOWN.parse().unwrap();
    let text = str::to_owned;
    for error in [
        NodeError::SandboxNotFound(id()),
        NodeError::TemplateNotFound(BASE_ID.parse().unwrap()),
        NodeError::WrongState {
            id: id(),
            state: SandboxState::Paused,
        },
        NodeError::PortClosed { id: id(), port: 1 },
        NodeError::InUse {
            what: text("it"),
            users: text("others"),
        },
        NodeError::Damaged {
            what: text("it"),
            message: text("why"),
        },
        NodeError::NoCapacity {
            what: text("memory"),
            retry_after: Duration::from_secs(7),
        },
        NodeError::NoCapacity {
            what: text("memory"),
            retry_after: Duration::from_millis(1),
        },
        NodeError::TooLarge { what: text("it") },
        NodeError::Unsupported {
            tier: Tier::Jail,
            what: "it".into(),
        },
        NodeError::TierUnavailable {
            tier: Tier::Gvisor,
            reason: text("it"),
        },
        NodeError::KernelStuck {
            ends: 4,
            longest: Duration::from_secs(31),
        },
        NodeError::Timeout {
            what: "it".into(),
            limit: Duration::from_secs(1),
        },
        NodeError::Start {
            step: text("step"),
            message: text("why"),
        },
        NodeError::io("it", io::ErrorKind::StorageFull.into()),
        NodeError::io("it", io::ErrorKind::QuotaExceeded.into()),
        NodeError::io("/secret/path", io::Error::other("boom")),
    ] {
        let what = format!("a create meets {error:?}");
        world.node.fail_next(error);
        let body = json!({"templateID": "base"});
        record.add(&what, &world.post("/v2/sandboxes", &body).await);
    }
    is_as_written("the node", &record);
}

#[tokio::test]
async fn of_sandboxes() {
    let world = world().await;
    let mut record = Record::default();
    let base = r#"{"templateID":"base"}"#;
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(world.create().await.sandbox_id());
    }
    record.ask(&world, "POST /v2/sandboxes", base).await;
    let [killed, paused, broken, running, stuck] = &ids[..] else {
        unreachable!()
    };
    world.delete(&format!("/sandboxes/{killed}")).await;
    for line in [
        format!("GET /sandboxes/{UNKNOWN}"),
        format!("GET /v1/sandboxes/{UNKNOWN}/languages"),
    ] {
        record.ask(&world, &line, "").await;
    }
    let gone = world.get(&format!("/sandboxes/{killed}")).await;
    record.add("GET a killed one", &gone);
    let message = gone.json["message"].as_str().unwrap();
    let (_, at) = message.split_once("(ended at ").unwrap();
    let (at, _) = at.split_once(',').unwrap();
    record.hide(at, "<when>");

    let pause = format!("POST /sandboxes/{paused}/pause");
    let (method, path) = pause.split_once(' ').unwrap();
    let done = world.request(method.parse().unwrap(), path);
    assert_eq!(world.send(done).await.status, 204);
    record.ask(&world, &pause, "").await;
    for (line, body) in [
        (
            format!("POST /sandboxes/{paused}/timeout"),
            r#"{"timeout":60}"#,
        ),
        (format!("PUT /sandboxes/{paused}/network"), "{}"),
        (format!("POST /sandboxes/{paused}/fork"), ""),
        (format!("POST /sandboxes/{paused}/snapshots"), "{}"),
        (format!("GET /v1/sandboxes/{paused}/languages"), ""),
        (format!("POST /sandboxes/{running}/resume"), ""),
        (format!("POST /sandboxes/{running}/timeout"), ""),
        (
            format!("GET /sandboxes/{running}/metrics?start=2&end=1"),
            "",
        ),
        (format!("GET /v2/sandboxes/{running}/logs?level=loud"), ""),
    ] {
        record.ask(&world, &line, body).await;
    }

    world.node.break_it(broken, Remedy::Repair);
    world.node.break_it(stuck, Remedy::Retry);
    for line in [
        format!("GET /sandboxes/{broken}"),
        format!("GET /v1/sandboxes/{broken}/languages"),
        format!("POST /v1/broken/{running}/recover"),
        format!("GET /v1/broken/{UNKNOWN}/disk"),
        format!("DELETE /v1/broken/{UNKNOWN}"),
        format!("DELETE /v1/broken/{stuck}"),
    ] {
        record.ask(&world, &line, "").await;
    }
    let full = || NodeError::NoCapacity {
        what: "memory".to_owned(),
        retry_after: Duration::from_secs(7),
    };
    let fork = format!("/sandboxes/{running}/fork");
    world.node.fail_next(full());
    let copies = world.post(&fork, &json!({"count": 1})).await;
    record.add("a fork meets NoCapacity", &copies);
    let node = world.node.clone();
    world.node.after_snapshot(move || node.fail_next(full()));
    let copies = world.post(&fork, &json!({"count": 1})).await;
    record.add("a copy of a fork meets NoCapacity", &copies);
    for (id, name) in ids
        .iter()
        .zip(["killed", "paused", "broken", "running", "stuck"])
    {
        record.hide(id.as_str(), &format!("<{name}>"));
    }
    is_as_written("sandboxes", &record);
}

#[tokio::test]
async fn of_repeated_requests() {
    let world = world().await;
    let mut record = Record::default();
    let request = |key: &str, body: &str| {
        let request = world.request(Method::POST, "/v2/sandboxes");
        request.header("idempotency-key", key).body(body)
    };
    let base = r#"{"templateID":"base"}"#;
    assert_eq!(world.send(request("a", base)).await.status, 201);
    let other = request("a", r#"{"templateID":"base","timeout":61}"#);
    record.add("another request", &world.send(other).await);
    record.add("a bad key", &world.send(request("UPPER", base)).await);

    let held = world.node.creating.write().await;
    let (router, first) = (world.router.clone(), request("b", base));
    let first = tokio::spawn(async move { support::send(router, first).await });
    while world.node.creates.load(Ordering::Relaxed) < 2 {
        tokio::task::yield_now().await;
    }
    record.add("under way", &world.send(request("b", base)).await);
    drop(held);
    assert_eq!(first.await.unwrap().status, 201);
    is_as_written("repeated requests", &record);
}

#[tokio::test]
async fn of_what_tenants_keep() {
    let world = world().await;
    let mut record = Record::default();
    let secret = json!({"name": "s", "value": "v"});
    assert_eq!(world.post("/secrets", &secret).await.status, 201);
    let made = world.post("/volumes", &json!({"name": "v"})).await;
    let volume = made.json["volumeID"].as_str().unwrap().to_owned();
    let token = made.json["token"].as_str().unwrap().to_owned();
    let keys = world.get("/api-keys").await.json;
    let key = keys[0]["id"].as_str().unwrap().to_owned();
    let mount = json!({"templateID": "base", "volumeMounts": [{"name": "v", "path": "/data"}]});
    assert_eq!(world.post("/v2/sandboxes", &mount).await.status, 201);
    for (line, body) in [
        (format!("DELETE /api-keys/{key}"), ""),
        (format!("DELETE /api-keys/{UNKNOWN_UUID}"), ""),
        ("POST /api-keys".to_owned(), r#"{"name":" "}"#),
        ("GET /secrets/nope".to_owned(), ""),
        ("POST /secrets".to_owned(), r#"{"name":"s","value":"v"}"#),
        ("POST /secrets".to_owned(), r#"{"name":"a b","value":"v"}"#),
        (format!("GET /volumes/{UNKNOWN_UUID}"), ""),
        ("POST /volumes".to_owned(), r#"{"name":"v"}"#),
        (format!("GET /volumecontent/{volume}/path?path=/x"), ""),
        (format!("GET /events/webhooks/{UNKNOWN_UUID}"), ""),
        ("POST /events/webhooks".to_owned(), "{}"),
        ("GET /events/sandboxes?limit=x".to_owned(), ""),
    ] {
        record.ask(&world, &line, body).await;
    }
    let in_use = world.delete(&format!("/volumes/{volume}")).await;
    record.add("DELETE a volume in use", &in_use);
    let content = async |record: &mut Record, line: &str, token: &str| {
        let (method, path) = line.split_once(' ').unwrap();
        let path = format!("/volumecontent/{volume}/{path}");
        let request = world.request(method.parse().unwrap(), &path);
        let request = request.anonymous();
        let request = request.header("authorization", &format!("Bearer {token}"));
        record.add(line, &world.send(request.body("x")).await);
    };
    content(&mut record, "GET path?path=/", "nonsense").await;
    for line in [
        "GET path",
        "GET path?path=/nope",
        "GET file?path=/",
        "DELETE path?path=/",
        "GET dir?path=/&depth=1000",
        "POST dir?path=/d&mode=65535",
    ] {
        content(&mut record, line, &token).await;
    }
    let user = in_use.json["message"].as_str().unwrap();
    let user = user.split_once("sandbox ").unwrap().1;
    record.hide(user.split_once(':').unwrap().0, "<user>");
    record.hide(&key, "<key>");
    record.hide(&volume, "<volume>");
    is_as_written("what tenants keep", &record);
}

#[tokio::test]
async fn of_templates() {
    let world = world().await;
    let mut record = Record::default();
    for (line, body) in [
        ("DELETE /templates/base".to_owned(), ""),
        ("DELETE /templates/nope".to_owned(), ""),
        ("GET /templates/base".to_owned(), ""),
        ("GET /templates/aliases/base%3Av2".to_owned(), ""),
        ("GET /templates/aliases/a%20b".to_owned(), ""),
        ("PATCH /v2/templates/base".to_owned(), r#"{"public":false}"#),
        (
            "POST /templates/tags".to_owned(),
            r#"{"target":"nope","tags":["v1"]}"#,
        ),
        (
            "POST /templates/tags".to_owned(),
            r#"{"target":"base","tags":[]}"#,
        ),
        (format!("GET /templates/{BASE_ID}/builds/x/status"), ""),
        (
            format!("GET /templates/{BASE_ID}/builds/{UNKNOWN_UUID}/status"),
            "",
        ),
        (
            format!("GET /templates/{BASE_ID}/builds/{BASE_BUILD}/logs?level=loud"),
            "",
        ),
        ("POST /templates/builtin/nope".to_owned(), ""),
        ("POST /v3/templates".to_owned(), "{}"),
        (
            format!("PUT /templates/{BASE_ID}/files/{}", "0".repeat(64)),
            "",
        ),
        (format!("GET /templates/nope/files/{}", "0".repeat(64)), ""),
    ] {
        record.ask(&world, &line, body).await;
    }
    let asked = world.post("/v3/templates", &json!({"name": "a"})).await;
    assert_eq!(asked.status, 202, "{}", asked.text);
    record
        .ask(&world, "POST /v2/sandboxes", r#"{"templateID":"a"}"#)
        .await;
    is_as_written("templates", &record);
}

#[tokio::test]
async fn of_code_that_is_to_run() {
    let world = world().await;
    let mut record = Record::default();
    let made = world.create().await;
    let path = format!("POST /v1{}/execute", made.sandbox_path());
    for body in [
        "",
        "{}",
        r#"{"language":"klingon","code":""}"#,
        r#"{"language":"sh","code":"true"}"#,
        r#"{"language":"sh","code":"true","env":{"A=B":"c"}}"#,
        r#"{"executions":[]}"#,
        r#"{"executions":[{"language":"klingon","code":""},{"language":"sh","code":"true"}]}"#,
    ] {
        record.ask(&world, &path, body).await;
    }
    let languages = format!("GET /v1{}/languages", made.sandbox_path());
    record.ask(&world, &languages, "").await;
    record.hide(made.sandbox_id().as_str(), "<id>");
    is_as_written("code that is to run", &record);
}

//! Sandboxes that exist, or did.

use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::json;
use soulbox_runtime::Node;
use soulbox_types::{EndReason, UnixMillis};

use crate::support::{Answer, BASE_ID, world};

#[tokio::test]
async fn get_shows_everything_and_accepts_the_old_form_of_the_id() {
    let world = world().await;
    let body = json!({
        "templateID": "base", "timeout": 60, "metadata": {"ключ": "🗝"},
        "allow_internet_access": false,
    });
    let made = world.post("/v2/sandboxes", &body).await;
    let id = made.sandbox_id();
    world
        .node
        .change(&id, |spec| spec.created_at = UnixMillis(1_800_000_000_000));
    world
        .node
        .set_deadline(&id, UnixMillis(1_900_000_000_123))
        .await
        .unwrap();
    let detail = world.get(&format!("/sandboxes/{id}-6532622b")).await;
    assert_eq!(detail.status, 200);
    assert_eq!(
        detail.json,
        json!({
            "templateID": BASE_ID,
            "sandboxID": id,
            "clientID": "6532622b",
            "alias": "base",
            "startedAt": "2027-01-15T08:00:00.000Z",
            "endAt": "2030-03-17T17:46:40.123Z",
            "cpuCount": 2,
            "memoryMB": 512,
            "diskSizeMB": 10240,
            "state": "running",
            "envdVersion": "0.6.13",
            "metadata": {"ключ": "🗝"},
            "volumeMounts": [],
            "envdAccessToken": made.json["envdAccessToken"],
            "allowInternetAccess": false,
            "domain": "sbx.localhost:3443",
            "lifecycle": {"autoResume": false, "onTimeout": "kill"},
        })
    );
}

#[tokio::test]
async fn a_second_kill_is_a_404_that_says_why() {
    let world = world().await;
    let path = world.create().await.sandbox_path();
    let killed = world.delete(&path).await;
    assert_eq!(
        (killed.status, killed.text.as_str()),
        (StatusCode::NO_CONTENT, "")
    );
    for answer in [world.delete(&path).await, world.get(&path).await] {
        assert_eq!(
            (answer.status.as_u16(), &answer.json["code"]),
            (404, &json!(404))
        );
        let message = answer.json["message"].as_str().unwrap();
        assert!(
            message.contains("doesn't exist or you don't have access to it"),
            "{message}"
        );
        assert!(message.contains(", killed)"), "{message}");
    }
    assert_eq!(world.get("/v2/sandboxes").await.json, json!([]));
}

#[tokio::test]
async fn expiry_is_told_as_the_reason() {
    let world = world().await;
    let made = world.create().await;
    world.node.end(&made.sandbox_id(), EndReason::Expired, "");
    let shape = async {
        loop {
            let answer = world.get(&made.sandbox_path()).await;
            assert_eq!(answer.status, 404);
            if answer.text.contains(", expired)") {
                break;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(10), shape)
        .await
        .unwrap();
}

#[tokio::test]
async fn connect_extends_and_never_shortens() {
    let world = world().await;
    let made = world.create().await;
    let end = |answer: Answer| answer.json["endAt"].clone();
    let before = end(world.get(&made.sandbox_path()).await);
    for (path, body) in [
        ("/v2", ""),
        ("/v2", "{}"),
        ("/v2", "null"),
        ("", "{\"timeout\":5}"),
    ] {
        let path = format!("{path}{}/connect", made.sandbox_path());
        let answer = world
            .send(world.request(Method::POST, &path).body(body))
            .await;
        assert_eq!(answer.status, 200, "{path} {body}");
        assert_eq!(answer.json, made.json);
    }
    let v1 = format!("{}/connect", made.sandbox_path());
    world
        .post(&v1, &json!({}))
        .await
        .is_error(400, "timeout is required");
    world.post(&v1, &json!({"timeout": 1000})).await;
    let after = end(world.get(&made.sandbox_path()).await);
    assert!(after.as_str() > before.as_str());
    let unknown = world.post("/v2/sandboxes/inope/connect", &json!({})).await;
    assert_eq!(unknown.json["code"], 404);
}

#[tokio::test]
async fn timeouts_and_refreshes_answer_204() {
    let world = world().await;
    let made = world.create().await;
    let path = |what: &str| format!("{}/{what}", made.sandbox_path());
    assert_eq!(
        world
            .post(&path("timeout"), &json!({"timeout": 60}))
            .await
            .status,
        204
    );
    let missing = world.post(&path("timeout"), &json!({})).await;
    assert_eq!(missing.status, 400);
    assert_eq!(
        world
            .send(world.request(Method::POST, &path("refreshes")))
            .await
            .status,
        204
    );
    assert_eq!(
        world
            .post(&path("refreshes"), &json!({"duration": 3601}))
            .await
            .status,
        400
    );
    let resumed = world.post(&path("resume"), &json!({})).await;
    resumed.is_error(
        409,
        &format!("Sandbox {} is already running", made.sandbox_id()),
    );
    assert_eq!(
        world
            .post(&path("timeout"), &json!({"timeout": 0}))
            .await
            .status,
        204
    );
    assert!(world.node.get(&made.sandbox_id()).is_none());
    assert_eq!(
        world
            .post(&path("timeout"), &json!({"timeout": 60}))
            .await
            .json["code"],
        404
    );
}

#[tokio::test]
async fn lists_are_filtered_ordered_and_paged() {
    let world = world().await;
    let mut ids = Vec::new();
    for (n, app) in ["a", "b", "a"].iter().enumerate() {
        let body = json!({"templateID": "base", "metadata": {"app": app, "a b": "c&d=é"}});
        let id = world.post("/v2/sandboxes", &body).await.sandbox_id();
        world.node.change(&id, |spec| {
            spec.created_at = UnixMillis(1_800_000_000_000 + 1000 * n as u64);
        });
        ids.push(id.to_string());
    }
    let listed = |answer: &Answer| -> Vec<String> {
        let list = answer.json.as_array().unwrap();
        list.iter()
            .map(|s| s["sandboxID"].as_str().unwrap().to_owned())
            .collect()
    };
    let newest_first: Vec<_> = ids.iter().rev().cloned().collect();

    let all = world.get("/v2/sandboxes").await;
    assert_eq!(listed(&all), newest_first);
    assert_eq!(all.header("x-total-running"), Some("3"));
    assert_eq!(all.header("x-next-token"), None);
    assert_eq!(listed(&world.get("/sandboxes").await), newest_first);
    assert_eq!(listed(&world.get("/v2/sandboxes?order=asc").await), ids);

    let first = world.get("/v2/sandboxes?limit=2").await;
    assert_eq!(listed(&first), newest_first[..2]);
    assert_eq!(first.header("x-total-running"), Some("3"));
    let token = first.header("x-next-token").unwrap();
    let rest = world
        .get(&format!("/v2/sandboxes?limit=2&nextToken={token}"))
        .await;
    assert_eq!(listed(&rest), newest_first[2..]);
    assert_eq!(rest.header("x-next-token"), None);

    for (query, expected) in [
        ("state=running%2Cpaused", 3),
        ("state=running,paused", 3),
        ("state=paused", 0),
        ("metadata=app%3Da", 2),
        ("metadata=a%252520b%3Dc%252526d%25253D%2525C3%2525A9", 3),
        ("metadata=app%3Da%26none%3Dx", 0),
        ("template=base", 3),
        ("template=nope", 0),
        ("startedAfter=2027-01-15T08:00:01Z", 2),
        ("startedAfter=2027-01-15T09:00:01.000%2B01:00", 2),
        ("startedAfter=2027-01-15T08:00:02.000001Z", 0),
    ] {
        let answer = world.get(&format!("/v2/sandboxes?{query}")).await;
        assert_eq!(answer.status, 200, "{query}");
        assert_eq!(listed(&answer).len(), expected, "{query}");
    }
    let paused = world.get("/v2/sandboxes?state=paused").await;
    assert_eq!(paused.header("x-total-running"), None);
    for query in [
        "limit=0",
        "limit=101",
        "limit=x",
        "order=up",
        "state=dead",
        "startedAfter=now",
        "template=base:v1",
        "template=a%20b",
        "nextToken=zzz",
        "metadata=a",
        "metadata=a%3D%25",
    ] {
        let answer = world.get(&format!("/v2/sandboxes?{query}")).await;
        assert_eq!(
            (answer.status.as_u16(), &answer.json["code"]),
            (400, &json!(400)),
            "{query}"
        );
    }
    let wrong_order = world
        .get(&format!("/v2/sandboxes?order=asc&nextToken={token}"))
        .await;
    wrong_order.is_error(400, "Invalid next token");
}

#[tokio::test]
async fn another_tenants_sandbox_is_a_404_everywhere() {
    let world = world().await;
    let made = world.create().await;
    let other = world.second_tenant().await;
    for (method, path, body) in [
        (Method::GET, "", ""),
        (Method::DELETE, "", ""),
        (Method::POST, "/timeout", "{\"timeout\":1}"),
        (Method::POST, "/refreshes", "{}"),
        (Method::POST, "/connect", "{\"timeout\":1}"),
        (Method::POST, "/resume", ""),
        (Method::POST, "/pause", ""),
        (Method::POST, "/fork", ""),
        (Method::POST, "/snapshots", "{}"),
        (Method::PUT, "/network", "{}"),
        (Method::GET, "/metrics", ""),
        (Method::GET, "/logs", ""),
    ] {
        let path = format!("{}{path}", made.sandbox_path());
        let request = world.request(method.clone(), &path).key(&other).body(body);
        let answer = world.send(request).await;
        assert_eq!(
            (answer.status.as_u16(), &answer.json["code"]),
            (404, &json!(404)),
            "{method} {path}"
        );
    }
    let list = world
        .send(world.request(Method::GET, "/v2/sandboxes").key(&other))
        .await;
    assert_eq!(list.json, json!([]));
    let ids = made.sandbox_id();
    let metrics = format!("/sandboxes/metrics?sandbox_ids={ids}");
    let metrics = world
        .send(world.request(Method::GET, &metrics).key(&other))
        .await;
    assert_eq!(metrics.json, json!({"sandboxes": {}}));
    assert!(world.node.get(&ids).is_some());
}

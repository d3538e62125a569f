//! E2B's REST interface as its clients see it: statuses, headers and whole bodies.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

#[path = "../../control/tests/support/memory_builds.rs"]
mod memory_builds;
#[path = "../../control/tests/support/memory_node.rs"]
mod memory_node;
#[path = "support/world.rs"]
mod support;

use std::{sync::atomic::Ordering, time::Duration};

use http::{Method, StatusCode};
use serde_json::{Value, json};
use soulbox_runtime::{Error as NodeError, LogEntry, LogLevel, MetricSample, Node, Stats};
use soulbox_types::{EndReason, UnixMillis};
use support::{Answer, BASE_BUILD, BASE_ID, World, world};

#[tokio::test]
async fn health_needs_no_key() {
    let world = world().await;
    let answer = world
        .send(world.request(Method::GET, "/health").anonymous())
        .await;
    assert_eq!(
        (answer.status, answer.text.as_str()),
        (StatusCode::OK, "ok\n")
    );
}

#[tokio::test]
async fn every_error_has_a_code_and_a_message() {
    let world = world().await;
    let no_key = world
        .send(world.request(Method::GET, "/sandboxes").anonymous())
        .await;
    no_key.is_error(
        401,
        "no API key: send it in the X-API-Key header (E2B_API_KEY for the SDKs)",
    );
    let wrong = world
        .request(Method::GET, "/sandboxes")
        .key(&format!("e2b_{}", "0".repeat(40)));
    let message = "the API key is not valid: use one from `soulbox key create`";
    world.send(wrong).await.is_error(401, message);
    world
        .get("/nope")
        .await
        .is_error(404, "there is no such route in the E2B API");
    let wrong_method = world.send(world.request(Method::PUT, "/sandboxes")).await;
    wrong_method.is_error(405, "this route does not have this method");
    world
        .get("/sandboxes/%FF")
        .await
        .is_error(400, "Invalid path parameter");
    world
        .get("/sandboxes/a-b-c")
        .await
        .is_error(400, "Invalid sandbox ID");
    world
        .get("/sandboxes/UPPER")
        .await
        .is_error(400, "Invalid sandbox ID");
}

#[tokio::test]
async fn broken_bodies_are_the_clients_mistake() {
    let world = world().await;
    for body in [
        "",
        "{",
        "[]",
        "null",
        "{\"templateID\":1}",
        "{\"templateID\":\"base\",\"timeout\":1.5}",
    ] {
        let answer = world
            .send(world.request(Method::POST, "/v2/sandboxes").body(body))
            .await;
        assert_eq!(answer.status, 400, "{body}");
        assert_eq!(answer.json["code"], 400, "{body}");
    }
    for timeout in ["1e999", "NaN", "\"10\"", "true", "99999999999999999999"] {
        let body = format!("{{\"templateID\":\"base\",\"timeout\":{timeout}}}");
        let answer = world
            .send(world.request(Method::POST, "/v2/sandboxes").body(&body))
            .await;
        assert_eq!(answer.status, 400, "{timeout}");
    }
    let deep = format!("{{\"mcp\":{}{}}}", "[".repeat(500), "]".repeat(500));
    let answer = world
        .send(world.request(Method::POST, "/v2/sandboxes").body(&deep))
        .await;
    assert_eq!(answer.status, 400);
    let large = format!("{{\"x\":\"{}\"}}", "x".repeat(1024 * 1024));
    let answer = world
        .send(world.request(Method::POST, "/v2/sandboxes").body(&large))
        .await;
    answer.is_error(413, "the body is larger than 1048576 bytes");
    assert_eq!(world.node.creates.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn create_answers_201_with_all_that_a_client_needs() {
    let world = world().await;
    let answer = world
        .post("/v2/sandboxes", &json!({"templateID": "base"}))
        .await;
    assert_eq!(answer.status, 201);
    let id = answer.json["sandboxID"].as_str().unwrap().to_owned();
    let spec = world.node.get(&id.parse().unwrap()).unwrap().spec;
    let token = spec.access_token.clone().unwrap();
    assert_eq!(
        answer.json,
        json!({
            "templateID": BASE_ID,
            "sandboxID": id,
            "clientID": "6532622b",
            "envdVersion": "0.6.13",
            "alias": "base",
            "envdAccessToken": token.expose(),
            "domain": "sbx.localhost:3443",
        })
    );
    assert_eq!(spec.deadline, spec.created_at.plus(Duration::from_mins(5)));
}

#[tokio::test]
async fn version_1_lives_15_seconds_and_is_secured_only_when_asked() {
    let world = world().await;
    let open = world
        .post("/sandboxes", &json!({"templateID": "base"}))
        .await;
    assert_eq!(open.status, 201);
    assert_eq!(open.json.get("envdAccessToken"), None);
    let spec = world.node.get(&open.sandbox_id()).unwrap().spec;
    assert_eq!(spec.deadline, spec.created_at.plus(Duration::from_secs(15)));
    let secure = world
        .post("/sandboxes", &json!({"templateID": "base", "secure": true}))
        .await;
    assert_eq!(secure.json["envdAccessToken"].as_str().unwrap().len(), 64);
    let ignored = world
        .post(
            "/v2/sandboxes",
            &json!({"templateID": "base", "secure": false}),
        )
        .await;
    assert_eq!(ignored.json["envdAccessToken"].as_str().unwrap().len(), 64);
}

#[tokio::test]
async fn what_the_sdks_send_by_default_works() {
    let world = world().await;
    for body in [
        json!({"templateID": "base", "metadata": {}, "envVars": {}}),
        json!({
            "templateID": "base", "timeout": 300, "secure": true, "allow_internet_access": true,
            "autoPause": false, "autoResume": {"enabled": false}, "mcp": null, "metadata": {},
            "envVars": {}, "volumeMounts": [], "iam": {"tokens": {}}, "unknown": [1],
            "network": {
                "allowPublicTraffic": true, "allowOut": [], "denyOut": [], "egressProxy": null,
                "rules": {},
            },
        }),
    ] {
        for path in ["/sandboxes", "/v2/sandboxes"] {
            let answer = world.post(path, &body).await;
            assert_eq!(answer.status, 201, "{path} {}", answer.text);
            assert_eq!(world.delete(&answer.sandbox_path()).await.status, 204);
        }
    }
}

#[tokio::test]
async fn wishes_that_are_not_built_yet_are_refused_by_name() {
    let world = world().await;
    for (wish, name) in [
        (
            json!({"iam": {"tokens": {"t": {"audience": "a", "tokenType": "JWT-SVID"}}}}),
            "iam",
        ),
        (
            json!({"network": {"allowOut": ["example.com"], "denyOut": ["0.0.0.0/0"]}}),
            "allowOut",
        ),
        (
            json!({"network": {"dnsServers": ["1.1.1.1"]}}),
            "dnsServers",
        ),
        (json!({"network": {"rules": {"a.b": []}}}), "rules"),
        (
            json!({"network": {"egressProxy": {"address": "a:1"}}}),
            "egressProxy",
        ),
    ] {
        let mut body = wish.clone();
        body["templateID"] = "base".into();
        let answer = world.post("/v2/sandboxes", &body).await;
        assert_eq!(answer.status, 501, "{wish}");
        assert_eq!(answer.json["error_code"], "not_supported_yet");
        let message = answer.json["message"].as_str().unwrap();
        assert!(
            message.contains(name) && message.contains("not supported yet"),
            "{message}"
        );
    }
    let memory = json!({"templateID": "base", "autoPauseMemory": false});
    assert_eq!(world.post("/v2/sandboxes", &memory).await.status, 400);
    assert_eq!(world.node.creates.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn limits_of_a_create_are_checked() {
    let world = world().await;
    for (wish, message) in [
        (json!({"timeout": 0}), "Timeout must be greater than 0"),
        (json!({"timeout": -1}), "Timeout must be greater than 0"),
        (
            json!({"timeout": 86401}),
            "Timeout cannot be greater than 24 hours",
        ),
        (json!({"cpuCount": 0}), "cpuCount must be between 1 and 32"),
        (
            json!({"memoryMB": 1}),
            "memoryMB must be between 128 and 262144",
        ),
        (
            json!({"diskSizeMB": 1}),
            "diskSizeMB must be between 64 and 1048576",
        ),
        (
            json!({"templateID": "a b"}),
            "Invalid template reference: names consist of a-z, 0-9, - and _",
        ),
    ] {
        let mut body = wish;
        if body.get("templateID").is_none() {
            body["templateID"] = "base".into();
        }
        world
            .post("/v2/sandboxes", &body)
            .await
            .is_error(400, message);
    }
    world
        .post("/v2/sandboxes", &json!({}))
        .await
        .is_error(400, "templateID is required");
    let unknown = world
        .post("/v2/sandboxes", &json!({"templateID": "nope"}))
        .await;
    unknown.is_error(404, "template 'nope' not found");
    let wish = json!({"templateID": "base", "cpuCount": 1, "memoryMB": 256, "diskSizeMB": 512});
    let made = world.post("/v2/sandboxes", &wish).await;
    let detail = world.get(&made.sandbox_path()).await.json;
    assert_eq!(
        (
            &detail["cpuCount"],
            &detail["memoryMB"],
            &detail["diskSizeMB"]
        ),
        (&json!(1), &json!(256), &json!(512))
    );
}

#[tokio::test]
async fn a_full_tenant_is_told_not_to_retry_and_a_full_machine_when() {
    let world = world().await;
    let what = "memory".to_owned();
    world.node.fail_next(NodeError::NoCapacity {
        what,
        retry_after: Duration::from_secs(7),
    });
    let full = world
        .post("/v2/sandboxes", &json!({"templateID": "base"}))
        .await;
    assert_eq!(full.status, 503);
    assert_eq!(full.header("retry-after"), Some("7"));
    assert_eq!(
        full.json,
        json!({"code": 503, "message": "no capacity: memory", "error_code": "sandbox_capacity_unavailable"})
    );
    for _ in 0..5 {
        world.create().await;
    }
    let refused = world
        .post("/v2/sandboxes", &json!({"templateID": "base"}))
        .await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.header("should-retry"), Some("false"));
}

#[tokio::test]
async fn faults_of_the_server_do_not_leak_its_insides() {
    let world = world().await;
    world
        .node
        .fail_next(NodeError::io("/secret/path", std::io::Error::other("boom")));
    let answer = world
        .post("/v2/sandboxes", &json!({"templateID": "base"}))
        .await;
    assert_eq!(answer.status, 500);
    assert_eq!(answer.json["error_code"], "internal_server_error");
    assert!(!answer.text.contains("secret") && !answer.text.contains("boom"));
}

#[tokio::test]
async fn the_same_idempotency_key_gets_the_same_sandbox() {
    let world = world().await;
    let send = |body: Value| {
        world.send(
            world
                .request(Method::POST, "/v2/sandboxes")
                .header("idempotency-key", "abc-1")
                .body(&body.to_string()),
        )
    };
    let first = send(json!({"templateID": "base", "timeout": 60})).await;
    let again = send(json!({"timeout": 60, "templateID": "base"})).await;
    assert_eq!(
        (first.status, again.status),
        (StatusCode::CREATED, StatusCode::CREATED)
    );
    assert_eq!(first.json, again.json);
    let other = send(json!({"templateID": "base", "timeout": 61})).await;
    assert_eq!(other.status, 422);
    assert_eq!(other.json["error_code"], "idempotency_request_mismatch");
    let bad = world
        .request(Method::POST, "/v2/sandboxes")
        .header("idempotency-key", "UPPER");
    let bad = world.send(bad.body("{\"templateID\":\"base\"}")).await;
    bad.is_error(
        400,
        "Idempotency-Key must be 1 to 255 characters of a-z, 0-9 and -",
    );
    assert_eq!(world.node.creates.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn an_idempotent_create_under_way_says_so() {
    let world = world().await;
    let held = world.node.creating.write().await;
    let request = || {
        let request = world.request(Method::POST, "/v2/sandboxes");
        request
            .header("idempotency-key", "k")
            .body("{\"templateID\":\"base\"}")
    };
    let (router, first) = (world.router.clone(), request());
    let first = tokio::spawn(async move { support::send(router, first).await });
    while world.node.creates.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    let second = world.send(request()).await;
    assert_eq!(second.status, 409);
    assert_eq!(second.json["error_code"], "idempotency_in_progress");
    assert_eq!(second.header("should-retry"), Some("true"));
    drop(held);
    assert_eq!(first.await.unwrap().status, 201);
}

#[tokio::test]
async fn the_domain_follows_the_host() {
    let world = world().await;
    for (host, domain) in [
        ("api.example.com:8443", "example.com:8443"),
        ("127.0.0.1:3000", "sbx.localhost:3443"),
    ] {
        let request = world
            .request(Method::POST, "/v2/sandboxes")
            .header("host", host);
        let answer = world.send(request.body("{\"templateID\":\"base\"}")).await;
        assert_eq!(answer.json["domain"], domain);
        let path = answer.sandbox_path();
        let detail = world
            .send(world.request(Method::GET, &path).header("host", host))
            .await;
        assert_eq!(detail.json["domain"], domain);
    }
}

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
        .set_created_at(&id, UnixMillis(1_800_000_000_000));
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
    let told = async {
        loop {
            let answer = world.get(&made.sandbox_path()).await;
            assert_eq!(answer.status, 404);
            if answer.text.contains(", expired)") {
                break;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(10), told)
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
        world
            .node
            .set_created_at(&id, UnixMillis(1_800_000_000_000 + 1000 * n as u64));
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

fn sample(second: u64) -> MetricSample {
    let stats = Stats {
        memory_bytes: 10,
        memory_cache_bytes: 20,
        memory_peak_bytes: Some(50),
        oom_kills: 3,
        disk_used_bytes: 30,
        disk_total_bytes: 40,
        ..Stats::default()
    };
    MetricSample {
        at: UnixMillis(second * 1000 + 5),
        cpu_used_pct: 12.5,
        stats,
    }
}

#[tokio::test]
async fn metrics_keep_to_the_asked_range() {
    let world = world().await;
    let made = world.create().await;
    let path = format!("{}/metrics", made.sandbox_path());
    assert_eq!(world.get(&path).await.json, json!([]));
    for second in [100, 105, 110] {
        world.node.sample(&made.sandbox_id(), sample(second));
    }
    let metric = json!({
        "timestamp": "1970-01-01T00:01:45.005Z", "timestampUnix": 105, "cpuCount": 2,
        "cpuUsedPct": 12.5, "memUsed": 10, "memTotal": 512 << 20, "memCache": 20, "diskUsed": 30,
        "diskTotal": 40, "memPeak": 50, "oomKills": 3,
    });
    assert_eq!(
        world.get(&format!("{path}?start=101&end=109")).await.json,
        json!([metric])
    );
    assert_eq!(world.get(&path).await.json.as_array().unwrap().len(), 3);
    assert_eq!(
        world.get(&format!("{path}?start=2&end=1")).await.status,
        400
    );
    assert_eq!(world.get(&format!("{path}?start=x")).await.status, 400);

    let id = made.sandbox_id().to_string();
    let many = world
        .get(&format!("/sandboxes/metrics?sandbox_ids={id},inope"))
        .await;
    assert_eq!(
        many.json["sandboxes"]
            .as_object()
            .unwrap()
            .keys()
            .collect::<Vec<_>>(),
        [&id]
    );
    assert_eq!(many.json["sandboxes"][&id]["timestampUnix"], 110);
    assert_eq!(world.get("/sandboxes/metrics").await.status, 400);
    let too_many = vec!["a"; 101].join(",");
    let too_many = world
        .get(&format!("/sandboxes/metrics?sandbox_ids={too_many}"))
        .await;
    assert_eq!(too_many.status, 400);
}

#[tokio::test]
async fn logs_come_in_both_shapes() {
    let world = world().await;
    let made = world.create().await;
    let now = UnixMillis::now().0;
    for (n, level) in [LogLevel::Info, LogLevel::Error, LogLevel::Debug]
        .into_iter()
        .enumerate()
    {
        let fields = [("level".to_owned(), "spoofed".to_owned())].into();
        let (at, message) = (UnixMillis(now + n as u64), format!("line {n}"));
        let entry = LogEntry {
            at,
            level,
            logger: "envd".into(),
            message,
            fields,
        };
        world.node.log(&made.sandbox_id(), entry);
    }
    let v1 = format!("{}/logs", made.sandbox_path());
    let answer = world.get(&v1).await.json;
    let line = answer["logs"][1]["line"].as_str().unwrap();
    let line: Value = serde_json::from_str(line).unwrap();
    assert_eq!(
        line,
        json!({"level": "error", "logger": "envd", "message": "line 1"})
    );
    assert_eq!(answer["logEntries"][1]["message"], "line 1");
    let later = world
        .get(&format!("{v1}?start={}&limit=1", now + 1))
        .await
        .json;
    assert_eq!(later["logs"].as_array().unwrap().len(), 1);

    let messages = async |query: &str| -> Vec<String> {
        let answer = world.get(&format!("/v2{v1}?{query}")).await.json;
        let logs = answer["logs"].as_array().unwrap();
        logs.iter()
            .map(|log| log["message"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(messages("").await, ["line 2", "line 1", "line 0"]);
    assert_eq!(
        messages("direction=forward&limit=2").await,
        ["line 0", "line 1"]
    );
    assert_eq!(messages("level=warn").await, ["line 1"]);
    assert_eq!(messages("search=2").await, ["line 2"]);
    assert_eq!(messages("limit=0").await, Vec::<String>::new());
    assert_eq!(messages(&format!("cursor={}", now + 1)).await, ["line 0"]);
    let forward = format!("direction=forward&cursor={}", now + 1);
    assert_eq!(messages(&forward).await, ["line 1", "line 2"]);
    for bad in ["limit=1001", "direction=up", "level=loud", "cursor=x"] {
        assert_eq!(
            world.get(&format!("/v2{v1}?{bad}")).await.status,
            400,
            "{bad}"
        );
    }
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

#[tokio::test]
async fn what_is_not_built_says_so_to_those_with_a_key() {
    let world = world().await;
    for (method, path) in [
        (Method::POST, "/access-tokens"),
        (Method::GET, "/nodes"),
        (Method::POST, "/admin/teams/x/sandboxes/kill"),
    ] {
        let answer = world.send(world.request(method.clone(), path)).await;
        assert_eq!(answer.status, 501, "{method} {path}");
        assert_eq!(answer.json["code"], 501);
        assert_eq!(answer.json["error_code"], "not_supported_yet");
        assert!(
            answer.text.contains("is not supported yet by SoulBox: "),
            "{}",
            answer.text
        );
        let answer = world.send(world.request(method, path).anonymous()).await;
        assert_eq!(answer.status, 401, "{path}");
    }
    assert_eq!(world.post("/templates", &json!({})).await.status, 410);
}

#[tokio::test]
async fn network_rules_are_told_back_and_replaced_as_a_whole() {
    let world = world().await;
    let rules = json!({"templateID": "base", "allow_internet_access": false, "network": {
        "allowOut": ["1.1.1.1", "10.0.0.0/8", "2606:4700::/32"], "denyOut": ["0.0.0.0/0"],
        "allowPublicTraffic": false, "maskRequestHost": "a.example:${PORT}", "httpsPorts": [8443],
    }});
    let made = world.post("/v2/sandboxes", &rules).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let token = made.json["trafficAccessToken"].as_str().unwrap();
    assert!(token.len() == 64 && made.json["envdAccessToken"] != token);
    let path = made.sandbox_path();
    let seen = world.get(&path).await.json;
    assert_eq!(seen["network"], rules["network"]);
    assert_eq!(seen["allowInternetAccess"], false);

    let put = |body: Value| {
        let path = format!("{path}/network");
        world.send(world.request(Method::PUT, &path).body(&body.to_string()))
    };
    let ingress = json!({
        "allowPublicTraffic": false, "maskRequestHost": "a.example:${PORT}", "httpsPorts": [8443],
    });
    for (body, allowed) in [
        (json!({"denyOut": ["8.8.8.8"]}), Value::Null),
        (json!({"allow_internet_access": false}), json!(false)),
        (json!({}), Value::Null),
    ] {
        assert_eq!(put(body.clone()).await.status, 204, "{body}");
        let mut expected = ingress.clone();
        if let Some(list) = body.get("denyOut") {
            expected["denyOut"] = list.clone();
        }
        let seen = world.get(&path).await.json;
        assert_eq!(seen["network"], expected);
        assert_eq!(seen["allowInternetAccess"], allowed);
    }

    let connected = format!("/v2{path}/connect");
    let connected = world.post(&connected, &json!({"timeout": 60})).await;
    assert_eq!(connected.json["trafficAccessToken"], token);
    let paused = world.post(&format!("{path}/pause"), &json!({})).await;
    assert_eq!(paused.status, 204, "{}", paused.text);
    assert_eq!(put(json!({})).await.status, 409);
    assert_eq!(world.delete(&path).await.status, 204);
    assert_eq!(put(json!({})).await.status, 404);
}

#[tokio::test]
async fn a_sandbox_without_network_wishes_has_no_traffic_token_and_tells_none() {
    let world = world().await;
    let made = world.create().await;
    assert!(made.json.get("trafficAccessToken").is_none());
    let seen = world.get(&made.sandbox_path()).await.json;
    assert!(seen.get("network").is_none() && seen["allowInternetAccess"].is_null());
}

#[tokio::test]
async fn network_rules_that_cannot_be_meant_are_refused() {
    let world = world().await;
    let made = world.create().await;
    for (network, word) in [
        (json!({"denyOut": ["example.com"]}), "denyOut"),
        (json!({"denyOut": ["0.0.0.0"]}), "denyOut"),
        (json!({"denyOut": [1]}), "invalid"),
        (json!({"denyOut": vec!["1.1.1.1"; 129]}), "at most"),
        (json!({"allowOut": ["example.com"]}), "denyOut"),
        (json!({"allowOut": ["not a domain"]}), "allowOut"),
        (json!({"allowOut": ["1.1.1.1.1"]}), "allowOut"),
    ] {
        let create = json!({"templateID": "base", "network": network});
        let created = world.post("/v2/sandboxes", &create).await;
        let path = format!("{}/network", made.sandbox_path());
        let put = world.request(Method::PUT, &path).body(&network.to_string());
        for answer in [created, world.send(put).await] {
            assert_eq!(answer.status, 400, "{network} {}", answer.text);
            let message = answer.json["message"].as_str().unwrap();
            assert!(message.contains(word), "{network}: {message}");
        }
    }
    for network in [
        json!({"maskRequestHost": "a b"}),
        json!({"httpsPorts": [49983]}),
        json!({"httpsPorts": [70000]}),
    ] {
        let create = json!({"templateID": "base", "network": network});
        assert_eq!(world.post("/v2/sandboxes", &create).await.status, 400);
    }
    let unsecured = json!({"templateID": "base", "network": {"allowPublicTraffic": false}});
    assert_eq!(world.post("/sandboxes", &unsecured).await.status, 400);
}

#[tokio::test]
async fn built_in_templates_can_be_seen_but_not_changed() {
    let world = world().await;
    let template = json!({
        "templateID": BASE_ID, "buildID": BASE_BUILD, "cpuCount": 2, "memoryMB": 512,
        "diskSizeMB": 10240, "public": true, "aliases": ["base"], "names": ["base"],
        "createdAt": "1970-01-01T00:00:00.001Z", "updatedAt": "1970-01-01T00:00:00.001Z",
        "createdBy": null, "lastSpawnedAt": null, "spawnCount": 0, "buildCount": 1,
        "envdVersion": "0.6.13", "buildStatus": "ready", "isDefault": true,
    });
    for path in ["/templates", "/v2/templates?limit=1", "/default-templates"] {
        assert_eq!(world.get(path).await.json, json!([template]), "{path}");
    }
    assert_eq!(world.get("/templates?teamID=x").await.status, 400);
    let one = world.get(&format!("/templates/{BASE_ID}")).await;
    assert_eq!(one.json["builds"][0]["buildID"], BASE_BUILD);
    assert_eq!(world.get("/templates/base").await.status, 404, "an id only");

    let alias = json!({"templateID": BASE_ID, "public": true});
    assert_eq!(world.get("/templates/aliases/base").await.json, alias);
    assert_eq!(
        world.get("/templates/aliases/base%3Adefault").await.json,
        alias
    );
    assert_eq!(
        world.get("/templates/aliases/base%3Av2").await.json["code"],
        404
    );
    assert_eq!(
        world.get("/templates/aliases/team%2Fbase").await.json["code"],
        404
    );
    assert_eq!(
        world.get("/templates/aliases/a%20b").await.json["code"],
        400
    );

    let tags =
        json!([{"tag": "default", "buildID": BASE_BUILD, "createdAt": "1970-01-01T00:00:00.001Z"}]);
    assert_eq!(world.get("/templates/base/tags").await.json, tags);
    assert_eq!(
        world.get("/templates/base/tags/count").await.json,
        json!({"total": 1})
    );
    let exists = world.get("/templates/base/tags/exists?tag=V1").await.json;
    assert_eq!(exists, json!({"exists": false, "normalizedTag": "v1"}));

    let status = world
        .get(&format!("/templates/{BASE_ID}/builds/{BASE_BUILD}/status"))
        .await;
    assert_eq!(
        status.json,
        json!({"templateID": BASE_ID, "buildID": BASE_BUILD, "status": "ready", "logs": [], "logEntries": []})
    );
    assert_eq!(
        world
            .get(&format!("/templates/{BASE_ID}/builds/x/status"))
            .await
            .status,
        400
    );

    assert_eq!(world.delete("/templates/base").await.status, 403);
    assert_eq!(
        world.delete("/templates/team%2Fname%3Atag").await.json["code"],
        404
    );
    let patch = |body: &str| {
        world.send(
            world
                .request(Method::PATCH, "/v2/templates/base")
                .body(body),
        )
    };
    assert_eq!(patch("").await.json, json!({"names": ["base"]}));
    assert_eq!(patch("{\"public\":false}").await.status, 403);
    let assign = json!({"target": "base", "tags": ["v1"]});
    assert_eq!(world.post("/templates/tags", &assign).await.status, 403);
    assert_eq!(
        world
            .post(
                "/templates/tags",
                &json!({"target": "base:", "tags": ["v1"]})
            )
            .await
            .status,
        400
    );
    assert_eq!(
        world
            .post(
                "/templates/tags",
                &json!({"target": "nope", "tags": ["v1"]})
            )
            .await
            .status,
        404
    );
}

#[tokio::test]
async fn a_key_sees_its_own_team_and_itself_only() {
    let world = world().await;
    let answer = world.get("/teams").await;
    let team = json!({
        "teamID": world.tenant.id, "name": "default", "apiKey": world.key, "isDefault": true,
    });
    assert_eq!(answer.json, json!([team]));
    let bearer = world.request(Method::GET, "/teams").anonymous();
    let bearer = bearer.header("authorization", &format!("Bearer {}", world.key));
    assert_eq!(world.send(bearer).await.json, json!([team]));
}

#[tokio::test]
async fn keys_are_made_renamed_listed_and_deleted() {
    let world = world().await;
    let made = world.post("/api-keys", &json!({"name": "ci"})).await;
    assert_eq!(made.status, 201);
    let (id, key) = (
        made.json["id"].as_str().unwrap(),
        made.json["key"].as_str().unwrap(),
    );
    assert_eq!(made.json["mask"]["prefix"], "e2b_");
    assert_eq!(made.json["mask"]["maskedValueSuffix"], key[key.len() - 4..]);
    let path = format!("/api-keys/{id}");
    let renamed = world
        .request(Method::PATCH, &path)
        .body("{\"name\":\"cd\"}");
    assert_eq!(world.send(renamed).await.status, 202);

    let list = world.get("/api-keys").await;
    assert!(!list.text.contains(key) && !list.text.contains(&world.key));
    assert_eq!(list.json[1]["name"], "cd");
    assert_eq!(list.json[1]["lastUsed"], Value::Null);
    assert!(list.json[0]["lastUsed"].is_string());

    let other = world.second_tenant().await;
    let stolen = world
        .send(world.request(Method::DELETE, &path).key(&other))
        .await;
    assert_eq!(stolen.status, 404);
    assert_eq!(
        world
            .send(world.request(Method::GET, "/teams").key(key))
            .await
            .status,
        200
    );
    assert_eq!(world.delete(&path).await.status, 204);
    assert_eq!(
        world
            .send(world.request(Method::GET, "/teams").key(key))
            .await
            .status,
        401
    );
    let last = world.get("/api-keys").await.json[0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(world.delete(&format!("/api-keys/{last}")).await.status, 409);
    assert_eq!(
        world.post("/api-keys", &json!({"name": " "})).await.status,
        400
    );
}

#[tokio::test]
async fn browsers_may_call_from_anywhere() {
    let world = world().await;
    let preflight = world.request(Method::OPTIONS, "/v2/sandboxes").anonymous();
    let preflight = world
        .send(preflight.header("origin", "https://a.example"))
        .await;
    assert_eq!(preflight.status, 204);
    assert_eq!(preflight.header("access-control-allow-origin"), Some("*"));
    let allowed = preflight.header("access-control-allow-headers").unwrap();
    for name in ["X-API-Key", "Idempotency-Key", "package_version"] {
        assert!(allowed.contains(name), "{name}");
    }
    let error = world.get("/nope").await;
    assert_eq!(error.header("access-control-allow-origin"), Some("*"));
    assert!(
        error
            .header("access-control-expose-headers")
            .unwrap()
            .contains("X-Next-Token")
    );
}

#[tokio::test]
async fn bodies_without_length_or_content_type_are_read() {
    let world: World = world().await;
    let chunks = ["{\"templ", "ateID\":\"base\"}"];
    let answer = world
        .send(world.request(Method::POST, "/v2/sandboxes").chunks(&chunks))
        .await;
    assert_eq!(answer.status, 201);
    let request = world
        .request(Method::POST, "/v2/sandboxes")
        .header("content-type", "text/plain");
    assert_eq!(
        world
            .send(request.body("{\"templateID\":\"base\"}"))
            .await
            .status,
        201
    );
}

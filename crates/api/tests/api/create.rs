//! Making sandboxes.

use std::{sync::atomic::Ordering, time::Duration};

use http::Method;
use serde_json::json;
use soulbox_runtime::{Error as NodeError, Node};

use crate::support::{BASE_ID, world};

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
    for (definition, name) in [
        (
            json!({"iam": {"tokens": {"t": {"audience": "a", "tokenType": "JWT-SVID"}}}}),
            "iam",
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
        let mut body = definition.clone();
        body["templateID"] = "base".into();
        let answer = world.post("/v2/sandboxes", &body).await;
        assert_eq!(answer.status, 501, "{definition}");
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
async fn the_template_of_the_mcp_gateway_is_not_just_unknown() {
    let world = world().await;
    for name in ["mcp-gateway", "mcp-gateway:latest"] {
        let body = json!({"templateID": name, "mcp": {"time": {}}});
        let answer = world.post("/v2/sandboxes", &body).await;
        assert_eq!(answer.status, 501, "{}", answer.text);
        let message = answer.json["message"].as_str().unwrap();
        assert!(message.contains("template of your own"), "{message}");
    }
    assert_eq!(world.node.creates.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_template_of_ones_own_may_have_the_mcp_gateway() {
    let world = world().await;
    let source = world.create().await;
    let snapshots = format!("{}/snapshots", source.sandbox_path());
    let named = world
        .post(&snapshots, &json!({"name": "mcp-gateway"}))
        .await;
    assert_eq!(named.status, 201, "{}", named.text);
    let body = json!({"templateID": "mcp-gateway", "mcp": {"time": {}}});
    let answer = world.post("/v2/sandboxes", &body).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
}

#[tokio::test]
async fn limits_of_a_create_are_checked() {
    let world = world().await;
    for (definition, message) in [
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
        let mut body = definition;
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
    let definition =
        json!({"templateID": "base", "cpuCount": 1, "memoryMB": 256, "diskSizeMB": 512});
    let made = world.post("/v2/sandboxes", &definition).await;
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

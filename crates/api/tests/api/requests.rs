//! What every request has to be, and what every answer has.

use std::sync::atomic::Ordering;

use http::{Method, StatusCode};
use serde_json::json;
use soulbox_runtime::Error as NodeError;

use crate::support::{World, world};

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

//! Requests that are sent twice.

use std::sync::atomic::Ordering;

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::{self, world};

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

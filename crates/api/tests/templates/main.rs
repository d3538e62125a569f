//! Templates over HTTP: building, finding, tagging, publishing and deleting them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod building;
mod catalog;
mod refusals;
#[path = "../support/world.rs"]
mod world;

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use soulbox_build::{Base, CopySource, Credentials, StepKind};
use soulbox_control::BuiltIn;
use soulbox_runtime::Node;
use soulbox_types::Limits;
use world::{Answer, BASE_ID, World, world, world_with};

const HASH: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const UNKNOWN: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

fn agent() -> Vec<BuiltIn> {
    vec![BuiltIn {
        name: "agent".into(),
        version: "1".into(),
        limits: Limits::default(),
        base: Base::Debian {
            packages: Vec::new(),
        },
        steps: Vec::new(),
        lanes: Vec::new(),
        start: None,
        ready: None,
        seconds: Vec::new(),
    }]
}

struct Asked {
    template: String,
    build: String,
}

impl Asked {
    fn start(&self) -> String {
        format!("/v2/templates/{}/builds/{}", self.template, self.build)
    }

    fn at(&self, rest: &str) -> String {
        format!("/templates/{}/builds/{}{rest}", self.template, self.build)
    }
}

async fn ask(world: &World, body: &Value) -> Asked {
    let answer = world.post("/v3/templates", body).await;
    assert_eq!(answer.status, 202, "{}", answer.text);
    let text = |name: &str| answer.json[name].as_str().unwrap().to_owned();
    Asked {
        template: text("templateID"),
        build: text("buildID"),
    }
}

async fn start(world: &World, asked: &Asked, body: &Value) {
    let answer = world.post(&asked.start(), body).await;
    assert_eq!(answer.status, 202, "{}", answer.text);
    assert_eq!(answer.text, "");
}

async fn status(world: &World, asked: &Asked) -> Value {
    let answer = world.get(&asked.at("/status")).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json
}

/// Waits for what the server does behind its answers.
async fn eventually(what: &str, mut check: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !check().await {
            tokio::task::yield_now().await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(10), waiting).await;
    assert!(waited.is_ok(), "{what}");
}

async fn ended(world: &World, asked: &Asked) -> Value {
    eventually("the build ends", async || {
        let status = status(world, asked).await;
        status["status"] == "ready" || status["status"] == "error"
    })
    .await;
    status(world, asked).await
}

async fn build(world: &World, name: &str) -> Asked {
    let asked = ask(world, &json!({"name": name})).await;
    start(world, &asked, &json!({"fromImage": "debian"})).await;
    assert_eq!(ended(world, &asked).await["status"], "ready");
    asked
}

async fn create(world: &World, template: &str) -> Answer {
    world
        .post("/v2/sandboxes", &json!({"templateID": template}))
        .await
}

fn messages(entries: &Value) -> Vec<&str> {
    let entries = entries.as_array().unwrap().iter();
    entries.map(|e| e["message"].as_str().unwrap()).collect()
}

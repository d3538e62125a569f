//! Pause, connect and resume over HTTP.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

#[path = "support/world.rs"]
mod world;

use http::Method;
use serde_json::{Value, json};
use soulbox_runtime::{Error as NodeError, Node};
use soulbox_types::{OnTimeout, PauseMode, SandboxState, UnixMillis};
use world::{Answer, World, world};

async fn paused(world: &World, body: &Value) -> Answer {
    let made = world.create().await;
    let answer = world
        .post(&format!("{}/pause", made.sandbox_path()), body)
        .await;
    assert_eq!(answer.status, 204, "{}", answer.text);
    made
}

async fn connect(world: &World, made: &Answer, body: &Value) -> Answer {
    let path = format!("/v2{}/connect", made.sandbox_path());
    world.post(&path, body).await
}

#[tokio::test]
async fn pause_takes_every_kind_of_body_and_answers_204_then_409() {
    let world = world().await;
    for chunks in [&[][..], &["{}"], &["{\"mem", "ory\":false}"], &["null"]] {
        let made = world.create().await;
        let path = format!("{}/pause", made.sandbox_path());
        let pause = || world.request(Method::POST, &path).chunks(chunks);
        let answer = world.send(pause()).await;
        assert_eq!((answer.status.as_u16(), answer.text.as_str()), (204, ""));
        let again = world.send(pause()).await;
        again.is_error(
            409,
            &format!("Sandbox {} is paused already", made.sandbox_id()),
        );
        world.delete(&made.sandbox_path()).await;
        assert_eq!(world.send(pause()).await.json["code"], 404, "after its end");
    }
    let unknown = world.post("/sandboxes/inope/pause", &json!({})).await;
    assert_eq!(unknown.json["code"], 404);
}

#[tokio::test]
async fn a_paused_sandbox_is_shown_with_what_is_kept_of_it() {
    let world = world().await;
    for (body, mode, kept) in [
        (json!({}), "full", "memory"),
        (json!({"memory": true}), "full", "memory"),
        (json!({"memory": false}), "filesystem", "filesystem"),
    ] {
        let made = paused(&world, &body).await;
        let shown = world.get(&made.sandbox_path()).await.json;
        assert_eq!(shown["state"], "paused");
        assert_eq!(shown["pauseMode"], mode);
        assert_eq!(shown["restored"], kept);
        assert_eq!(shown["durable"], "local");
        assert_eq!(
            shown["lifecycle"],
            json!({"autoResume": false, "onTimeout": "kill"})
        );
        assert!(shown["endAt"].as_str() >= shown["startedAt"].as_str());
        let deadline = world.node.get(&made.sandbox_id()).unwrap().spec.deadline;
        assert!(UnixMillis::now() < deadline, "the end shown is the pause");
        let list = world.get("/v2/sandboxes?state=paused").await;
        assert_eq!(list.json[0]["sandboxID"], made.json["sandboxID"]);
        assert_eq!(list.json[0]["state"], "paused");
        assert_eq!(
            world.get("/v2/sandboxes?state=running").await.json,
            json!([])
        );
        assert_eq!(world.get("/sandboxes").await.json, json!([]));
        let metrics = format!("{}/metrics", made.sandbox_path());
        assert_eq!(world.get(&metrics).await.status, 200);
        assert_eq!(world.delete(&made.sandbox_path()).await.status, 204);
        assert_eq!(world.delete(&made.sandbox_path()).await.status, 404);
    }
}

#[tokio::test]
async fn connect_wakes_with_201_and_finds_running_with_200() {
    let world = world().await;
    let made = paused(&world, &json!({})).await;
    let woken = connect(&world, &made, &json!({"timeout": 77})).await;
    assert_eq!(woken.status, 201, "{}", woken.text);
    assert_eq!(woken.json["restored"], "memory");
    assert_eq!(woken.json["durable"], "local");
    assert_eq!(woken.json["envdAccessToken"], made.json["envdAccessToken"]);
    let status = world.node.get(&made.sandbox_id()).unwrap();
    assert_eq!(status.state, SandboxState::Running);
    let left = status.spec.deadline.remaining(UnixMillis::now()).as_secs();
    assert!((70..=77).contains(&left), "a new life of 77 s, not {left}");
    let running = connect(&world, &made, &json!({})).await;
    assert_eq!(running.status, 200);
    assert_eq!(running.json.get("restored"), None);
    let v1 = format!("{}/connect", made.sandbox_path());
    world
        .post(&format!("{}/pause", made.sandbox_path()), &json!({}))
        .await;
    assert_eq!(
        world.post(&v1, &json!({})).await.status,
        400,
        "v1 needs a timeout"
    );
    assert_eq!(world.post(&v1, &json!({"timeout": 9})).await.status, 201);
}

#[tokio::test]
async fn files_only_come_back_when_that_was_kept_or_asked_for() {
    let world = world().await;
    let cold = paused(&world, &json!({"memory": false})).await;
    let woken = connect(&world, &cold, &json!({})).await;
    assert_eq!(
        (woken.status.as_u16(), &woken.json["restored"]),
        (201, &json!("filesystem"))
    );
    let frozen = paused(&world, &json!({})).await;
    let woken = connect(&world, &frozen, &json!({"memory": false})).await;
    assert_eq!(
        (woken.status.as_u16(), &woken.json["restored"]),
        (201, &json!("filesystem"))
    );
}

#[tokio::test]
async fn all_of_many_connects_to_one_paused_sandbox_succeed() {
    let world = world().await;
    let made = paused(&world, &json!({})).await;
    let body = json!({"timeout": 60});
    let all = (0..16).map(|_| connect(&world, &made, &body));
    let answers = futures_util::future::join_all(all).await;
    let woken = answers.iter().filter(|answer| answer.status == 201).count();
    let found = answers.iter().filter(|answer| answer.status == 200).count();
    assert_eq!((woken, found), (1, 15));
}

#[tokio::test]
async fn resume_wakes_only_what_rests() {
    let world = world().await;
    let made = paused(&world, &json!({})).await;
    let path = format!("{}/resume", made.sandbox_path());
    let asks = json!({"autoPause": true});
    assert_eq!(
        world.post(&path, &asks).await.status,
        501,
        "it would change it"
    );
    let woken = world.post(&path, &json!({"autoPause": false})).await;
    assert_eq!(
        (woken.status.as_u16(), &woken.json["restored"]),
        (201, &json!("memory"))
    );
    let again = world.post(&path, &json!({})).await;
    again.is_error(
        409,
        &format!("Sandbox {} is already running", made.sandbox_id()),
    );
    assert_eq!(
        world
            .post("/sandboxes/inope/resume", &json!({}))
            .await
            .status,
        404
    );
}

#[tokio::test]
async fn the_end_of_what_rests_cannot_be_moved() {
    let world = world().await;
    let made = paused(&world, &json!({})).await;
    for (what, body) in [
        ("timeout", json!({"timeout": 60})),
        ("timeout", json!({"timeout": 0})),
        ("refreshes", json!({"duration": 60})),
    ] {
        let path = format!("{}/{what}", made.sandbox_path());
        let message = format!(
            "Sandbox {} is paused: connect to it first",
            made.sandbox_id()
        );
        world.post(&path, &body).await.is_error(404, &message);
    }
}

#[tokio::test]
async fn the_lifecycle_is_what_create_asked_for() {
    let world = world().await;
    let create = async |mut body: Value| {
        body["templateID"] = "base".into();
        world.post("/v2/sandboxes", &body).await
    };
    for (body, on_timeout, shown, auto_resume) in [
        (json!({"autoPause": false}), OnTimeout::Kill, "kill", false),
        (
            json!({"autoPause": true}),
            OnTimeout::Pause(PauseMode::Memory),
            "pause",
            false,
        ),
        (
            json!({"autoPause": true, "autoPauseMemory": false}),
            OnTimeout::Pause(PauseMode::Filesystem),
            "pause",
            false,
        ),
        (
            json!({"autoPause": true, "autoResume": {"enabled": true}}),
            OnTimeout::Pause(PauseMode::Memory),
            "pause",
            true,
        ),
        (
            json!({"autoResume": {"enabled": true}}),
            OnTimeout::Kill,
            "kill",
            true,
        ),
    ] {
        let made = create(body).await;
        assert_eq!(made.status, 201, "{}", made.text);
        let status = world.node.get(&made.sandbox_id()).unwrap();
        let lifecycle = &status.spec.lifecycle;
        assert_eq!(
            (lifecycle.on_timeout, lifecycle.auto_resume),
            (on_timeout, auto_resume)
        );
        assert_eq!(lifecycle.timeout_seconds, 300);
        let answer = world.get(&made.sandbox_path()).await.json;
        assert_eq!(
            answer["lifecycle"],
            json!({"autoResume": auto_resume, "onTimeout": shown})
        );
        world.delete(&made.sandbox_path()).await;
    }
    for bad in [
        json!({"autoPauseMemory": false}),
        json!({"autoPause": true, "autoPauseMemory": false, "autoResume": {"enabled": true}}),
        json!({"autoResume": {}}),
        json!({"autoPause": "yes"}),
    ] {
        assert_eq!(create(bad.clone()).await.status, 400, "{bad}");
    }
}

#[tokio::test]
async fn a_timeout_of_zero_pauses_what_pauses_at_its_timeout() {
    let world = world().await;
    let body = json!({"templateID": "base", "autoPause": true, "autoPauseMemory": false});
    let made = world.post("/v2/sandboxes", &body).await;
    let path = format!("{}/timeout", made.sandbox_path());
    assert_eq!(world.post(&path, &json!({"timeout": 0})).await.status, 204);
    let shown = world.get(&made.sandbox_path()).await.json;
    assert_eq!(
        (&shown["state"], &shown["pauseMode"]),
        (&json!("paused"), &json!("filesystem"))
    );
}

#[tokio::test]
async fn paused_ones_need_no_place_until_they_wake() {
    let world = world().await;
    let made = paused(&world, &json!({})).await;
    for _ in 0..5 {
        world.create().await;
    }
    let full = connect(&world, &made, &json!({})).await;
    assert_eq!(
        (full.status.as_u16(), full.header("should-retry")),
        (429, Some("false"))
    );
    let newest = world.get("/v2/sandboxes?state=running&limit=1").await;
    let id = newest.json[0]["sandboxID"].as_str().unwrap();
    assert_eq!(world.delete(&format!("/sandboxes/{id}")).await.status, 204);
    assert_eq!(connect(&world, &made, &json!({})).await.status, 201);
}

#[tokio::test]
async fn a_strict_pause_is_refused_while_envd_does_not_answer() {
    let world = world().await;
    let made = world.create().await;
    let path = format!("{}/pause", made.sandbox_path());
    let refused = world
        .post(&path, &json!({"requireHealthyGuest": true}))
        .await;
    assert_eq!(refused.status, 503);
    assert_eq!(
        refused.json["error_code"],
        "sandbox_snapshot_guest_agent_unresponsive"
    );
    assert_eq!(refused.header("should-retry"), Some("false"));
    let status = world.node.get(&made.sandbox_id()).unwrap();
    assert_eq!(status.state, SandboxState::Running);
}

#[tokio::test]
async fn a_pause_that_fails_leaves_the_sandbox_running() {
    let world = world().await;
    let made = world.create().await;
    let path = format!("{}/pause", made.sandbox_path());
    let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
    world
        .node
        .fail_next(NodeError::io("could not write the disk", full));
    let failed = world.post(&path, &json!({})).await;
    assert_eq!(failed.status, 507, "{}", failed.text);
    assert_eq!(
        world.get(&made.sandbox_path()).await.json["state"],
        "running"
    );
    assert_eq!(world.post(&path, &json!({})).await.status, 204);
}

#[tokio::test]
async fn another_tenant_can_neither_pause_nor_wake() {
    let world = world().await;
    let made = paused(&world, &json!({})).await;
    let other = world.second_tenant().await;
    for what in ["pause", "connect", "resume", "timeout"] {
        let path = format!("{}/{what}", made.sandbox_path());
        let request = world
            .request(Method::POST, &path)
            .key(&other)
            .body("{\"timeout\":5}");
        assert_eq!(world.send(request).await.json["code"], 404, "{what}");
    }
    assert!(world.node.paused(&made.sandbox_id()).is_some());
}

//! Snapshots and forks over HTTP.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

#[path = "support/world.rs"]
mod world;

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use soulbox_runtime::{Error as NodeError, Node};
use soulbox_types::{SandboxState, UnixMillis};
use world::{Answer, BASE_ID, World, world};

async fn snapshot(world: &World, made: &Answer, body: &Value) -> Answer {
    let path = format!("{}/snapshots", made.sandbox_path());
    let answer = world.post(&path, body).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    answer
}

async fn create_from(world: &World, template: &str) -> Answer {
    world
        .post("/v2/sandboxes", &json!({"templateID": template}))
        .await
}

async fn fork(world: &World, made: &Answer, body: &Value) -> Answer {
    let path = format!("{}/fork", made.sandbox_path());
    world.post(&path, body).await
}

fn id(answer: &Answer) -> String {
    answer.json["snapshotID"].as_str().unwrap().to_owned()
}

/// As the SDKs write it into a path.
fn encoded(text: &str) -> String {
    text.replace('/', "%2F").replace(':', "%3A")
}

async fn ids(world: &World, query: &str) -> Vec<String> {
    let list = world.get(&format!("/snapshots{query}")).await;
    assert_eq!(list.status, 200, "{}", list.text);
    let ids = list.json.as_array().unwrap().iter();
    ids.map(|s| s["snapshotID"].as_str().unwrap().to_owned())
        .collect()
}

/// Waits for what the server does behind its answers.
async fn nothing_is_left(world: &World) {
    let waiting = async {
        while !world.node.snapshots().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(10), waiting).await;
    assert!(waited.is_ok(), "{:?}", world.node.snapshots());
}

#[tokio::test]
async fn a_snapshot_has_an_id_that_creates_and_deletes() {
    let world = world().await;
    let made = world.create().await;
    let taken = snapshot(&world, &made, &json!({})).await;
    assert_eq!(taken.json["names"], json!([]));
    assert_eq!(taken.json["restored"], "filesystem");
    assert_eq!(taken.json["durable"], "local");
    assert!(id(&taken).ends_with(":default"));
    assert_eq!(ids(&world, "").await, [id(&taken)]);
    let path = format!("/templates/{}", encoded(&id(&taken)));

    let child = create_from(&world, &id(&taken)).await;
    assert_eq!(child.status, 201, "{}", child.text);
    assert_eq!(child.json["templateID"], BASE_ID);
    let spec = world.node.get(&child.sandbox_id()).unwrap().spec;
    assert_eq!(spec.snapshot, Some(world.node.snapshots()[0].id.clone()));
    assert!(spec.metadata.is_empty());
    let bare = id(&taken).replace(":default", "");
    assert_eq!(create_from(&world, &bare).await.status, 201);

    let used = world.delete(&path).await;
    assert_eq!(
        (used.status.as_u16(), &used.json["code"]),
        (400, &json!(400))
    );
    assert!(used.text.contains(" and 1 more: kill"), "{}", used.text);
    for sandbox in ids_of_children(&world, &made).await {
        world.delete(&format!("/sandboxes/{sandbox}")).await;
    }
    assert_eq!(world.delete(&path).await.status, 204);
    let again = world.delete(&path).await;
    assert_eq!(
        (again.status.as_u16(), &again.json["code"]),
        (404, &json!(404))
    );
    assert_eq!(create_from(&world, &id(&taken)).await.status, 404);
    nothing_is_left(&world).await;
}

async fn ids_of_children(world: &World, source: &Answer) -> Vec<String> {
    let list = world.get("/v2/sandboxes").await.json;
    let all = list.as_array().unwrap().iter();
    all.map(|s| s["sandboxID"].as_str().unwrap().to_owned())
        .filter(|id| id != source.sandbox_id().as_str())
        .collect()
}

#[tokio::test]
async fn a_named_snapshot_is_found_by_every_form_of_its_name() {
    let world = world().await;
    let made = world.create().await;
    let taken = snapshot(&world, &made, &json!({"name": "My-Snap"})).await;
    assert_eq!(id(&taken), "default/my-snap:default");
    assert_eq!(taken.json["names"], json!(["default/my-snap"]));
    for form in [
        "my-snap",
        "my-snap:default",
        "default/my-snap",
        "default/my-snap:default",
        "MY-SNAP",
    ] {
        let child = create_from(&world, form).await;
        assert_eq!(child.status, 201, "{form}");
        assert_eq!(child.json["alias"], "my-snap");
        world.delete(&child.sandbox_path()).await;
        let alias = world
            .get(&format!("/templates/aliases/{}", encoded(form)))
            .await;
        assert_eq!(
            (alias.status.as_u16(), &alias.json["public"]),
            (200, &json!(false))
        );
    }
    let unknown = create_from(&world, "my-snap:v9").await;
    unknown.is_error(404, "tag 'v9' does not exist for template 'my-snap'");
    let foreign = snapshot_status(&world, &made, &json!({"name": "else/x"})).await;
    foreign.is_error(400, "namespace 'else' must match your team 'default'");
    for bad in [
        "a b",
        "a:",
        "a/b/c",
        "x:01890a5d-ac96-774b-bcce-b302099a8057",
    ] {
        let refused = snapshot_status(&world, &made, &json!({"name": bad})).await;
        assert_eq!(refused.status, 400, "{bad}");
    }
    let path = format!("/templates/{}", encoded(&id(&taken)));
    assert_eq!(world.delete(&path).await.status, 204);
}

async fn snapshot_status(world: &World, made: &Answer, body: &Value) -> Answer {
    let path = format!("{}/snapshots", made.sandbox_path());
    world.post(&path, body).await
}

#[tokio::test]
async fn the_same_name_again_is_a_new_build_and_tags_choose() {
    let world = world().await;
    let made = world.create().await;
    snapshot(&world, &made, &json!({"name": "app:v1"})).await;
    snapshot(&world, &made, &json!({"name": "app:v2"})).await;
    let newest = snapshot(&world, &made, &json!({"name": "app:v2"})).await;
    assert_eq!(id(&newest), "default/app:v2");
    let mut listed = ids(&world, "?name=app").await;
    listed.sort();
    assert_eq!(listed, ["default/app:v1", "default/app:v2"]);
    assert_eq!(
        world.node.snapshots().len(),
        3,
        "the superseded build stays"
    );
    let missing = create_from(&world, "app").await;
    missing.is_error(404, "tag 'default' does not exist for template 'app'");

    let body = json!({"target": "app:v1", "tags": ["default", "stable"]});
    let assigned = world.post("/templates/tags", &body).await;
    assert_eq!(assigned.status, 201, "{}", assigned.text);
    assert_eq!(assigned.json["tags"], json!(["default", "stable"]));
    assert_eq!(create_from(&world, "app").await.status, 201);
    let tags = world.get("/templates/app/tags").await.json;
    let names: Vec<_> = tags
        .as_array()
        .unwrap()
        .iter()
        .map(|t| t["tag"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["default", "stable", "v1", "v2"]);
    assert_eq!(tags[0]["buildID"], assigned.json["buildID"]);
    assert_eq!(
        world.get("/templates/app/tags/count").await.json,
        json!({"total": 4})
    );
    let exists = world.get("/templates/app/tags/exists?tag=stable").await;
    assert_eq!(exists.json["exists"], true);
    let remove = json!({"name": "app", "tags": ["stable"]});
    let removed = world
        .send(
            world
                .request(Method::DELETE, "/templates/tags")
                .body(&remove.to_string()),
        )
        .await;
    assert_eq!(removed.status, 204);
    assert_eq!(
        world.get("/templates/app/tags/count").await.json,
        json!({"total": 3})
    );
    let template = world.get("/templates/aliases/app").await.json["templateID"].clone();
    let shown = world
        .get(&format!("/templates/{}", template.as_str().unwrap()))
        .await
        .json;
    assert_eq!(shown["names"], json!(["default/app"]));
    assert_eq!(shown["builds"].as_array().unwrap().len(), 3);
    assert_eq!(shown["public"], false);
}

#[tokio::test]
async fn lists_are_filtered_by_source_and_name_and_paged() {
    let world = world().await;
    let (a, b) = (world.create().await, world.create().await);
    let first = id(&snapshot(&world, &a, &json!({"name": "one"})).await);
    let second = id(&snapshot(&world, &b, &json!({"name": "two:v1"})).await);
    let third = id(&snapshot(&world, &b, &json!({})).await);
    let of_b = ids(&world, &format!("?sandboxID={}", b.sandbox_id())).await;
    assert!(of_b.contains(&second) && of_b.contains(&third) && of_b.len() == 2);
    assert_eq!(ids(&world, "?name=one").await, std::slice::from_ref(&first));
    assert_eq!(
        ids(&world, "?name=default%2Fone%3Adefault").await,
        std::slice::from_ref(&first)
    );
    assert_eq!(
        ids(&world, "?name=two").await,
        std::slice::from_ref(&second)
    );
    assert!(ids(&world, "?name=two%3Adefault").await.is_empty());
    assert!(ids(&world, "?name=nope").await.is_empty());
    assert_eq!(
        ids(&world, &format!("?name={}", encoded(&third))).await,
        std::slice::from_ref(&third)
    );
    let (mut seen, mut token) = (Vec::new(), String::new());
    loop {
        let page = world
            .get(&format!("/snapshots?limit=1&nextToken={token}"))
            .await;
        seen.push(page.json[0]["snapshotID"].as_str().unwrap().to_owned());
        match page.header("x-next-token") {
            Some(next) => token = next.to_owned(),
            None => break,
        }
    }
    seen.sort();
    let mut all = [first, second, third];
    all.sort();
    assert_eq!(seen, all);
    assert_eq!(world.get("/snapshots?limit=0").await.status, 400);
    assert_eq!(world.get("/snapshots?name=a%20b").await.status, 400);
    let of_template = world.get("/v2/sandboxes?template=one").await;
    assert_eq!(of_template.json, json!([]));
    let child = create_from(&world, "one").await;
    let of_template = world.get("/v2/sandboxes?template=one").await;
    assert_eq!(of_template.json[0]["sandboxID"], child.json["sandboxID"]);
}

#[tokio::test]
async fn memory_is_refused_only_when_it_was_asked_for() {
    let world = world().await;
    let made = world.create().await;
    let refused = snapshot_status(&world, &made, &json!({"memory": true})).await;
    assert_eq!(refused.status, 501);
    assert_eq!(refused.json["error_code"], "not_supported_yet");
    assert!(world.node.snapshots().is_empty());
    snapshot(&world, &made, &json!({"memory": false})).await;
    world
        .post(&format!("{}/pause", made.sandbox_path()), &json!({}))
        .await;
    assert_eq!(
        snapshot_status(&world, &made, &json!({})).await.json["code"],
        404
    );
    assert_eq!(fork(&world, &made, &json!({})).await.json["code"], 409);
    let unknown = world.post("/sandboxes/inope/snapshots", &json!({})).await;
    assert_eq!(unknown.json["code"], 404);
}

#[tokio::test]
async fn a_snapshot_that_fails_leaves_nothing() {
    let world = world().await;
    let made = world.create().await;
    let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
    world.node.fail_next(NodeError::io("could not copy", full));
    let failed = snapshot_status(&world, &made, &json!({"name": "x"})).await;
    assert_eq!(failed.status, 507, "{}", failed.text);
    assert!(ids(&world, "").await.is_empty());
    assert_eq!(
        world.get(&made.sandbox_path()).await.json["state"],
        "running"
    );
}

#[tokio::test]
async fn a_snapshot_under_another_one_can_be_deleted() {
    let world = world().await;
    let made = world.create().await;
    let lower = snapshot(&world, &made, &json!({"name": "lower"})).await;
    let child = create_from(&world, "lower").await;
    snapshot(&world, &child, &json!({"name": "upper"})).await;
    world.delete(&child.sandbox_path()).await;
    assert_eq!(
        world
            .delete(&format!("/templates/{}", encoded(&id(&lower))))
            .await
            .status,
        204
    );
    assert_eq!(create_from(&world, "lower").await.status, 404);
    assert_eq!(
        world.node.snapshots().len(),
        2,
        "the upper one stands on it"
    );
    assert_eq!(world.delete("/templates/upper").await.status, 204);
    nothing_is_left(&world).await;
}

#[tokio::test]
async fn snapshots_are_their_tenants_own() {
    let world = world().await;
    let made = world.create().await;
    let named = id(&snapshot(&world, &made, &json!({"name": "mine"})).await);
    let plain = id(&snapshot(&world, &made, &json!({})).await);
    let other = world.second_tenant().await;
    let ask = async |method: Method, path: String, body: &str| {
        let request = world.request(method, &path).key(&other).body(body);
        world.send(request).await
    };
    assert_eq!(
        ask(Method::GET, "/snapshots".into(), "").await.json,
        json!([])
    );
    for (form, status) in [(&named, 403), (&plain, 403), (&"mine".to_owned(), 404)] {
        let path = format!("/templates/{}", encoded(form));
        assert_eq!(
            ask(Method::DELETE, path.clone(), "").await.json["code"],
            status
        );
        assert_eq!(
            ask(Method::GET, path + "/tags", "").await.json["code"],
            status
        );
        let alias = format!("/templates/aliases/{}", encoded(form));
        assert_eq!(ask(Method::GET, alias, "").await.json["code"], status);
        let body = json!({"templateID": form}).to_string();
        let created = ask(Method::POST, "/v2/sandboxes".into(), &body).await;
        assert_eq!(created.json["code"], status);
        let body = json!({"target": form, "tags": ["x"]}).to_string();
        assert_eq!(
            ask(Method::POST, "/templates/tags".into(), &body)
                .await
                .json["code"],
            status
        );
    }
    let path = format!("{}/snapshots", made.sandbox_path());
    assert_eq!(ask(Method::POST, path, "{}").await.json["code"], 404);
    let path = format!("{}/fork", made.sandbox_path());
    assert_eq!(ask(Method::POST, path, "{}").await.json["code"], 404);
    assert_eq!(world.node.snapshots().len(), 2);
}

#[tokio::test]
async fn a_fork_inherits_all_but_its_ids_and_tokens() {
    let world = world().await;
    let body = json!({
        "templateID": "base", "metadata": {"a": "b"}, "envVars": {"E": "1"}, "timeout": 1000,
        "autoPause": true, "allow_internet_access": false,
    });
    let made = world.post("/v2/sandboxes", &body).await;
    let before = world.node.get(&made.sandbox_id()).unwrap().spec;
    let forked = fork(&world, &made, &json!({"count": 3, "timeout": 60})).await;
    assert_eq!(forked.status, 201, "{}", forked.text);
    let copies = forked.json.as_array().unwrap();
    assert_eq!(copies.len(), 3);
    for copy in copies {
        let sandbox = &copy["sandbox"];
        assert!(copy.get("error").is_none());
        assert_eq!(sandbox["templateID"], BASE_ID);
        assert_eq!(sandbox["restored"], "filesystem");
        assert_ne!(sandbox["envdAccessToken"], made.json["envdAccessToken"]);
        let id = sandbox["sandboxID"].as_str().unwrap().parse().unwrap();
        let spec = world.node.get(&id).unwrap().spec;
        assert_ne!(spec.id, before.id);
        assert_eq!(spec.metadata, before.metadata);
        assert_eq!(spec.env, before.env);
        assert_eq!(spec.network, before.network);
        assert_eq!(spec.lifecycle.on_timeout, before.lifecycle.on_timeout);
        assert_eq!(spec.limits, before.limits);
        let left = spec.deadline.remaining(UnixMillis::now());
        assert!(left > Duration::from_secs(50) && left <= Duration::from_mins(1));
    }
    let after = world.node.get(&made.sandbox_id()).unwrap().spec;
    assert_eq!(after.deadline, before.deadline, "the source keeps its end");
    assert_eq!(
        ids(&world, "").await,
        Vec::<String>::new(),
        "its image is not listed"
    );
    assert_eq!(world.node.snapshots().len(), 1);
    world.delete(&made.sandbox_path()).await;
    assert_eq!(world.node.snapshots().len(), 1, "copies stand on it");
    for copy in copies {
        let id = copy["sandbox"]["sandboxID"].as_str().unwrap();
        assert_eq!(world.delete(&format!("/sandboxes/{id}")).await.status, 204);
    }
    nothing_is_left(&world).await;
}

#[tokio::test]
async fn each_copy_of_a_fork_fails_on_its_own() {
    let world = world().await;
    let made = world.create().await;
    world.create().await;
    world.create().await;
    let forked = fork(&world, &made, &json!({"count": 4})).await;
    assert_eq!(forked.status, 201);
    let copies = forked.json.as_array().unwrap();
    let worked = copies.iter().filter(|c| c.get("sandbox").is_some()).count();
    let full: Vec<_> = copies.iter().filter_map(|c| c.get("error")).collect();
    assert_eq!((worked, full.len()), (2, 2), "{}", forked.text);
    assert_eq!(full[0]["code"], 429);
    for bad in [
        json!({"count": 0}),
        json!({"count": 101}),
        json!({"count": 5}),
        json!({"timeout": 0}),
    ] {
        assert_eq!(fork(&world, &made, &bad).await.status, 400, "{bad}");
    }
    world.delete(&made.sandbox_path()).await;
    assert_eq!(fork(&world, &made, &json!({})).await.json["code"], 404);
}

#[tokio::test]
async fn a_restart_finds_snapshots_forks_and_paused_sandboxes() {
    let mut world = world().await;
    let made = world.create().await;
    let named = snapshot(&world, &made, &json!({"name": "kept:v1"})).await;
    let forked = fork(&world, &made, &json!({"timeout": 60})).await;
    let copy = forked.json[0]["sandbox"]["sandboxID"].clone();
    let pause = format!("{}/pause", made.sandbox_path());
    assert_eq!(world.post(&pause, &json!({})).await.status, 204);

    world.restart().await;
    let shown = world.get(&made.sandbox_path()).await.json;
    assert_eq!(
        (&shown["state"], &shown["pauseMode"]),
        (&json!("paused"), &json!("full"))
    );
    assert_eq!(ids(&world, "").await, [id(&named)]);
    let child = create_from(&world, "kept:v1").await;
    assert_eq!(child.status, 201, "{}", child.text);
    let connect = format!("/v2{}/connect", made.sandbox_path());
    assert_eq!(world.post(&connect, &json!({})).await.status, 201);
    let status = world.node.get(&made.sandbox_id()).unwrap();
    assert_eq!(status.state, SandboxState::Running);

    world.delete(&child.sandbox_path()).await;
    assert_eq!(world.delete("/templates/kept").await.status, 204);
    let copy = copy.as_str().unwrap();
    assert_eq!(
        world.delete(&format!("/sandboxes/{copy}")).await.status,
        204
    );
    nothing_is_left(&world).await;
}

#[tokio::test]
async fn a_snapshot_whose_files_are_missing_is_hidden_until_they_are_back() {
    let mut world = world().await;
    let made = world.create().await;
    snapshot(&world, &made, &json!({"name": "lost"})).await;
    let files = world.node.take_snapshots();
    world.restart().await;
    assert!(ids(&world, "").await.is_empty());
    assert_eq!(create_from(&world, "lost").await.status, 404);
    world.node.put_snapshots(files);
    world.restart().await;
    assert_eq!(ids(&world, "").await, ["default/lost:default"]);
    assert_eq!(create_from(&world, "lost").await.status, 201);
}

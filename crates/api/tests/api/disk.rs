//! What takes room, and who sees it.

use http::Method;
use serde_json::json;

use crate::support::world;

#[tokio::test]
async fn the_disk_is_shown_by_kind_and_the_build_cache_only_to_the_operator() {
    let world = world().await;
    world.create().await;
    let answer = world.get("/v1/df").await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let items = answer.json["items"].as_array().unwrap();
    let kinds: Vec<_> = items.iter().map(|item| &item["kind"]).collect();
    let running = items.iter().find(|item| item["kind"] == "running").unwrap();
    assert_eq!(running["count"], 1);
    assert_eq!(running["reclaimable"], 0);
    let operator = answer.json["operator"].as_bool().unwrap();
    assert_eq!(kinds.contains(&&json!("build_cache")), operator);
    let stranger = world.second_tenant().await;
    let request = world.request(Method::GET, "/v1/df").key(&stranger);
    let theirs = world.send(request).await;
    assert_eq!(theirs.json["operator"], false);
    assert!(!theirs.text.contains("build_cache"), "{}", theirs.text);
    assert_eq!(theirs.json["items"][0]["count"], 0, "none of another's");
}

#[tokio::test]
async fn a_dry_run_frees_nothing_and_a_prune_leaves_sandboxes() {
    let world = world().await;
    let made = world.create().await;
    let told = world.post("/v1/prune", &json!({ "dryRun": true })).await;
    assert_eq!(told.status, 200, "{}", told.text);
    assert_eq!(told.json["dryRun"], true);
    let misspelt = world.post("/v1/prune", &json!({ "dryrun": true })).await;
    assert_eq!(misspelt.status, 400, "{}", misspelt.text);
    let done = world.post("/v1/prune", &json!({})).await;
    assert_eq!(done.status, 200, "{}", done.text);
    assert_eq!(done.json["dryRun"], false);
    assert_eq!(world.get(&made.sandbox_path()).await.status, 200);
}

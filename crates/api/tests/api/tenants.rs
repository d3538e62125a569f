//! Teams and their keys.

use http::Method;
use serde_json::{Value, json};

use crate::support::world;

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

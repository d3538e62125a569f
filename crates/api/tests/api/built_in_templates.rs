//! The templates that every server has.

use http::Method;
use serde_json::json;

use crate::support::{BASE_BUILD, BASE_ID, world};

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

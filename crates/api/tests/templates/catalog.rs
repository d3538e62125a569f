//! Templates that are there: lists, tags, publishing, built-ins, sizes.

use super::*;

#[tokio::test]
async fn templates_are_listed_shown_and_deleted() {
    let world = world().await;
    let asked = build(&world, "app").await;
    let again = ask(&world, &json!({"name": "app", "cpuCount": 4})).await;
    let list = world.get("/templates").await.json;
    let own = list.as_array().unwrap().iter();
    let own: Vec<_> = own.filter(|t| t["templateID"] == asked.template).collect();
    assert_eq!(own.len(), 1);
    let own = own[0];
    assert_eq!(own["buildID"], asked.build);
    assert_eq!(own["buildStatus"], "ready");
    assert_eq!(own["buildCount"], 2);
    assert_eq!(
        (&own["cpuCount"], &own["memoryMB"]),
        (&json!(2), &json!(1024))
    );
    assert_eq!(own["names"], json!(["default/app"]));
    assert_eq!(own["aliases"], json!(["app"]));
    assert_eq!(
        (&own["public"], &own["isDefault"]),
        (&json!(false), &json!(false))
    );
    assert_eq!(own["spawnCount"], 0);

    let path = format!("/templates/{}", asked.template);
    let one = world.get(&path).await.json;
    assert_eq!(one["builds"][0]["buildID"], again.build);
    assert_eq!(one["builds"][0]["status"], "waiting");
    assert_eq!(one["builds"][0].get("finishedAt"), None);
    assert_eq!(one["builds"][1]["status"], "ready");
    assert!(one["builds"][1]["finishedAt"].is_string());

    let made = create(&world, "app").await;
    let used = world.delete("/templates/app").await;
    assert_eq!(used.json["code"], 400);
    assert!(
        used.text.contains(made.sandbox_id().as_str()),
        "{}",
        used.text
    );
    world.delete(&made.sandbox_path()).await;
    assert_eq!(world.get("/templates").await.json[0]["spawnCount"], 1);
    assert_eq!(
        world
            .delete("/templates/default%2Fapp%3Adefault")
            .await
            .status,
        204
    );
    for path in ["/templates/app", &path] {
        assert_eq!(world.delete(path).await.json["code"], 404);
    }
    assert_eq!(world.get(&path).await.json["code"], 404);
    assert_eq!(world.get("/templates/aliases/app").await.status, 404);
    assert_eq!(create(&world, "app").await.json["code"], 404);
}

#[tokio::test]
async fn the_templates_of_others_are_seen_only_when_they_are_published() {
    let world = world().await;
    let asked = build(&world, "app").await;
    let other = world.second_tenant().await;
    let as_other = async |method: Method, path: &str, body: &str| {
        let request = world.request(method, path).key(&other).body(body);
        world.send(request).await
    };
    let id = &asked.template;
    let upload = format!("/templates/{id}/files/{HASH}");
    let tags = json!({"target": "default/app", "tags": ["x"]}).to_string();
    let untag = json!({"name": "default/app", "tags": ["x"]}).to_string();
    let from = json!({"templateID": "default/app"}).to_string();
    for (method, path, body) in [
        (Method::GET, format!("/templates/{id}"), ""),
        (Method::DELETE, format!("/templates/{id}"), ""),
        (Method::DELETE, "/templates/default%2Fapp".into(), ""),
        (Method::PATCH, format!("/v2/templates/{id}"), "{}"),
        (Method::GET, format!("/templates/{id}/tags"), ""),
        (Method::GET, asked.at("/status"), ""),
        (Method::GET, asked.at("/logs"), ""),
        (Method::DELETE, asked.at(""), ""),
        (Method::POST, asked.start(), "{\"fromImage\": \"x\"}"),
        (Method::GET, upload.clone(), ""),
        (Method::GET, "/templates/aliases/default%2Fapp".into(), ""),
        (Method::POST, "/templates/tags".into(), &tags),
        (Method::DELETE, "/templates/tags".into(), &untag),
        (Method::POST, "/v2/sandboxes".into(), &from),
    ] {
        let request = world
            .request(method.clone(), &path)
            .header("host", "h")
            .key(&other)
            .body(body);
        let answer = world.send(request).await;
        assert_eq!(answer.json["code"], 403, "{method} {path} {}", answer.text);
    }
    let patch = async |path: &str, body: Value| {
        let request = world.request(Method::PATCH, path).body(&body.to_string());
        world.send(request).await
    };
    let v2 = format!("/v2/templates/{id}");
    let same = patch(&v2, json!({})).await;
    assert_eq!(
        (same.status.as_u16(), same.text.as_str()),
        (200, "{\"names\":[\"default/app\"]}")
    );
    let shown = patch(&v2, json!({"public": true})).await;
    assert_eq!(shown.json["names"], json!(["default/app"]));
    let made = as_other(Method::POST, "/v2/sandboxes", &from).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let alias = as_other(Method::GET, "/templates/aliases/default%2Fapp", "").await;
    assert_eq!(alias.json, json!({"templateID": id, "public": true}));
    let alias = as_other(Method::GET, "/templates/aliases/app", "").await;
    assert_eq!(alias.status, 404);
    let stolen = as_other(Method::DELETE, &format!("/templates/{id}"), "").await;
    assert_eq!(stolen.json["code"], 403);
    let stolen = as_other(Method::PATCH, &v2, "{\"public\": false}").await;
    assert_eq!(stolen.json["code"], 403);

    let claimed = patch("/templates/app", json!({"public": true})).await;
    assert_eq!(
        (claimed.status.as_u16(), claimed.text.as_str()),
        (200, "null")
    );
    let alias = as_other(Method::GET, "/templates/aliases/app", "").await;
    assert_eq!(alias.status, 200);
    let theirs = as_other(Method::POST, "/v3/templates", "{\"name\": \"app\"}").await;
    assert_eq!(theirs.status, 202);
    let taken = as_other(Method::PATCH, "/templates/app", "{\"public\": true}").await;
    assert_eq!(taken.json["code"], 409, "{}", taken.text);
    assert_eq!(patch(&v2, json!({"public": false})).await.status, 200);
    let made = as_other(Method::POST, "/v2/sandboxes", &from).await;
    assert_eq!(made.json["code"], 403);
}

#[tokio::test]
async fn tags_are_assigned_listed_grouped_and_removed() {
    let world = world_with(agent()).await;
    let asked = build(&world, "app:v1").await;
    let body = json!({"target": "app:v1", "tags": ["Stable", "default"]});
    let assigned = world.post("/templates/tags", &body).await;
    assert_eq!(assigned.status, 201, "{}", assigned.text);
    assert_eq!(
        assigned.json,
        json!({"tags": ["stable", "default"], "buildID": asked.build})
    );
    let tags = world.get("/templates/app/tags").await.json;
    assert_eq!(tags.as_array().unwrap().len(), 3);
    assert!(
        tags.as_array()
            .unwrap()
            .iter()
            .all(|t| t["buildID"] == asked.build)
    );
    assert_eq!(create(&world, "app:stable").await.status, 201);
    assert_eq!(
        world.get("/templates/app/tags/count").await.json,
        json!({"total": 3})
    );
    let groups = world
        .get("/templates/app/tags/groups?sort=name_desc&tagsLimit=2")
        .await
        .json;
    assert_eq!(groups["tags"][0]["tag"], "v1");
    assert_eq!(groups["tags"][0]["assignments"][0]["buildId"], asked.build);
    assert_eq!(groups["tags"][0]["hasMore"], false);
    let next = groups["nextCursor"].as_str().unwrap();
    let groups = world
        .get(&format!(
            "/templates/app/tags/groups?sort=name_desc&tagsCursor={next}"
        ))
        .await
        .json;
    assert_eq!(groups["tags"][0]["tag"], "default");
    assert_eq!(groups["nextCursor"], Value::Null);
    let found = world
        .get("/templates/app/tags/groups?search=STA")
        .await
        .json;
    assert_eq!(found["tags"].as_array().unwrap().len(), 1);
    let history = world.get("/templates/app/tags/v1/assignments").await.json;
    assert_eq!(history["data"][0]["buildId"], asked.build);
    assert!(history["data"][0]["buildFinishedAt"].is_string());
    for (path, code) in [
        ("/templates/app/tags/groups?sort=x", 400),
        ("/templates/app/tags/groups?tagsLimit=0", 400),
        ("/templates/app/tags/nope/assignments", 404),
        ("/templates/nope/tags", 404),
    ] {
        assert_eq!(world.get(path).await.json["code"], code, "{path}");
    }
    let remove = async |body: Value| {
        let request = world.request(Method::DELETE, "/templates/tags");
        world.send(request.body(&body.to_string())).await
    };
    let removed = remove(json!({"name": "app", "tags": ["stable"]})).await;
    assert_eq!(removed.status, 204);
    assert_eq!(create(&world, "app:stable").await.json["code"], 404);
    remove(json!({"name": "app", "tags": ["default"]}))
        .await
        .is_error(400, "Cannot delete the 'default' tag");
    for (body, code) in [
        (json!({"target": "app:nope", "tags": ["x"]}), 404),
        (json!({"target": "nope", "tags": ["x"]}), 404),
        (json!({"target": "app:v1", "tags": []}), 400),
        (json!({"target": "app:v1", "tags": [":x"]}), 400),
        (json!({"target": "app:v1", "tags": [UNKNOWN]}), 400),
        (json!({"target": "app:", "tags": ["x"]}), 400),
        (json!({"target": "agent", "tags": ["x"]}), 403),
    ] {
        let answer = world.post("/templates/tags", &body).await;
        assert_eq!(answer.json["code"], code, "{body}");
    }
    let alias = async |name: &str| world.get(&format!("/templates/aliases/{name}")).await;
    assert_eq!(alias("app%3Av1").await.status, 200);
    assert_eq!(alias("app%3Anope").await.status, 404);
    assert_eq!(alias("%3Av1").await.status, 400);
}

#[tokio::test]
async fn built_ins_exist_for_everybody_and_are_built_on_demand() {
    let world = world_with(agent()).await;
    assert_eq!(
        world.get("/templates/aliases/agent").await.json["public"],
        true
    );
    let listed = world.get("/default-templates").await.json;
    let agent = listed.as_array().unwrap().iter();
    let agent = agent.into_iter().find(|t| t["names"] == json!(["agent"]));
    assert_eq!(agent.unwrap()["buildStatus"], "waiting");
    let held = world.builder.gate.write().await;
    let wait = create(&world, "agent").await;
    assert_eq!(wait.status, 503);
    assert_eq!(wait.json["error_code"], "template_building");
    assert_eq!(wait.header("retry-after"), Some("5"));
    assert_eq!(wait.header("should-retry"), Some("true"));
    let started = world.post("/templates/builtin/agent", &json!({})).await;
    assert_eq!(started.status, 202);
    let other = world.second_tenant().await;
    let text = |name: &str| started.json[name].as_str().unwrap().to_owned();
    let asked = Asked {
        template: text("templateID"),
        build: text("buildID"),
    };
    let seen = world
        .send(world.request(Method::GET, &asked.at("/status")).key(&other))
        .await;
    assert_eq!(seen.json["status"], "building");
    assert_eq!(world.delete(&asked.at("")).await.json["code"], 403);
    drop(held);
    ended(&world, &asked).await;
    assert_eq!(create(&world, "agent").await.status, 201);
    assert_eq!(world.builder.requests().len(), 1);
    assert_eq!(world.delete("/templates/agent").await.json["code"], 403);
    let unknown = world.post("/templates/builtin/nope", &json!({})).await;
    assert_eq!(unknown.json["code"], 404);
    let anonymous = world.request(Method::POST, "/templates/builtin/agent");
    assert_eq!(world.send(anonymous.anonymous()).await.status, 401);
}

#[tokio::test]
async fn instance_types_are_sizes_with_names() {
    let world = world().await;
    let asked = ask(
        &world,
        &json!({"name": "app", "instanceType": "standard-2"}),
    )
    .await;
    start(&world, &asked, &json!({"fromImage": "x"})).await;
    ended(&world, &asked).await;
    let limits = async |body: Value| {
        let made = world.post("/v2/sandboxes", &body).await;
        assert_eq!(made.status, 201, "{}", made.text);
        world.node.get(&made.sandbox_id()).unwrap().spec.limits
    };
    let preset = |name: &str| Limits::of_instance_type(name).unwrap();
    let template = limits(json!({"templateID": "app"})).await;
    assert_eq!(
        (template.cpu_millis, template.memory_mib, template.disk_mib),
        (1000, 6144, 12_288)
    );
    let lite = limits(json!({"templateID": "app", "instanceType": "lite"})).await;
    assert_eq!(lite, preset("lite"));
    let mixed = json!({"templateID": "base", "instanceType": "lite", "memoryMB": 1024});
    assert_eq!(limits(mixed).await.memory_mib, 1024);
    let wrong = json!({"templateID": "base", "instanceType": "x"});
    assert_eq!(world.post("/v2/sandboxes", &wrong).await.json["code"], 400);
}

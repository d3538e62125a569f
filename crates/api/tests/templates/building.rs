//! The requests of a build, from its name to its sandbox.

use super::*;

#[tokio::test]
async fn the_way_of_the_sdks_leads_to_a_sandbox() {
    let world = world().await;
    let body = json!({"name": "My-App:v1", "tags": ["v1", "v2"], "cpuCount": 1, "memoryMB": 1024});
    let answer = world.post("/v3/templates", &body).await;
    assert_eq!(answer.status, 202);
    assert_eq!(answer.json["public"], false);
    assert_eq!(answer.json["names"], json!(["default/my-app"]));
    assert_eq!(answer.json["aliases"], json!(["my-app"]));
    assert_eq!(answer.json["tags"], json!(["v1", "v2"]));
    let asked = Asked {
        template: answer.json["templateID"].as_str().unwrap().into(),
        build: answer.json["buildID"].as_str().unwrap().into(),
    };
    assert_eq!(asked.template.len(), 20);
    assert_eq!(status(&world, &asked).await["status"], "waiting");

    let path = format!("/templates/{}/files/{HASH}", asked.template);
    let link = world
        .send(
            world
                .request(Method::GET, &path)
                .header("host", "api.example:3000"),
        )
        .await;
    assert_eq!(link.status, 201);
    assert_eq!(link.json["present"], false);
    let url = link.json["url"].as_str().unwrap();
    let upload = url.strip_prefix("http://api.example:3000").unwrap();
    let put = world
        .request(Method::PUT, upload)
        .anonymous()
        .chunks(&["ta", "r"]);
    assert_eq!(world.send(put).await.status, 200);
    assert_eq!(world.builder.files(&world.tenant.id, HASH).unwrap(), b"tar");
    let link = world
        .send(
            world
                .request(Method::GET, &path)
                .header("host", "x")
                .header("x-forwarded-proto", "https"),
        )
        .await;
    assert_eq!(link.json["present"], true);
    assert!(link.json["url"].as_str().unwrap().starts_with("https://x/"));

    let held = world.builder.gate.write().await;
    let body = json!({
        "fromImage": "debian", "force": true, "startCmd": "serve", "readyCmd": "sleep 1",
        "fromImageRegistry": {"type": "registry", "username": "me", "password": "open-sesame"},
        "steps": [
            {"type": "COPY", "args": ["a", "b", "", ""], "filesHash": HASH, "forceUpload": true},
            {"type": "RUN", "args": ["echo open-sesame", "root"], "force": true},
            {"type": "ARG", "args": ["A", "b"]},
        ],
    });
    start(&world, &asked, &body).await;
    let now = status(&world, &asked).await;
    assert_eq!(now["status"], "building");
    assert_eq!((&now["logs"], now.get("reason")), (&json!([]), None));
    drop(held);
    let now = ended(&world, &asked).await;
    assert_eq!(now["templateID"], asked.template);
    assert_eq!(now["buildID"], asked.build);
    let entries = now["logEntries"].as_array().unwrap();
    assert_eq!(entries.len(), 4, "{entries:?}");
    assert_eq!(entries[0]["step"], "base");
    assert_eq!(entries[0]["level"], "info");
    assert!(entries[0]["timestamp"].as_str().unwrap().ends_with('Z'));
    assert_eq!(entries[2]["message"], "Run echo *** root");
    let rest = world.get(&asked.at("/status?logsOffset=3&limit=5")).await;
    assert_eq!(messages(&rest.json["logEntries"]), ["Env A b"]);
    let end = world.get(&asked.at("/status?logsOffset=4")).await;
    assert_eq!(end.json["logEntries"], json!([]));

    let request = world.builder.requests().remove(0);
    assert!(request.force);
    assert_eq!(request.start.as_deref(), Some("serve"));
    let stage = &request.stages[0];
    assert_eq!(stage.steps[0].files_hash.as_deref(), Some(HASH));
    assert_eq!(stage.steps[1].args, ["echo open-sesame", "root"]);
    assert!(stage.steps[1].force && !stage.steps[0].force);
    assert_eq!(stage.steps[2].kind, StepKind::Env);
    assert!(matches!(
        &stage.base,
        Base::Image { credentials: Some(Credentials::Basic { username, .. }), .. } if username == "me"
    ));

    let made = create(&world, "my-app:v2").await;
    assert_eq!(made.status, 201, "{}", made.text);
    assert_eq!(made.json["templateID"], asked.template);
    assert_eq!(made.json["alias"], "my-app");
    let spec = world.node.get(&made.sandbox_id()).unwrap().spec;
    assert_eq!(spec.build, Some(asked.build.clone()));
    assert_eq!(
        create(&world, "my-app").await.json["code"],
        404,
        "no default"
    );
    let listed = world.get("/v2/sandboxes?template=my-app").await.json;
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
}

#[tokio::test]
async fn a_failed_step_is_told_with_its_number_as_text() {
    let world = world().await;
    let asked = ask(&world, &json!({"alias": "old-sdk"})).await;
    let steps = json!([{"type": "RUN", "args": ["true"]}, {"type": "RUN", "args": ["fail"]}]);
    let body = json!({"fromTemplate": "nope", "steps": steps});
    start(&world, &asked, &body).await;
    let unknown = ended(&world, &asked).await["reason"].clone();
    assert_eq!(unknown["step"], "base");
    assert_eq!(unknown["message"], "template 'nope' not found");

    let asked = ask(&world, &json!({"name": "app"})).await;
    let body = json!({"fromImage": "debian", "steps": steps});
    start(&world, &asked, &body).await;
    let failed = ended(&world, &asked).await;
    assert_eq!(failed["status"], "error");
    let message = "failed to run command 'fail': exit status 1";
    assert_eq!(failed["reason"], json!({"step": "2", "message": message}));
    world.post(&asked.start(), &body).await.is_error(
        400,
        &format!(
            "build {} is ended already: ask for another one",
            asked.build
        ),
    );
    assert_eq!(create(&world, "app").await.json["code"], 404);
}

#[tokio::test]
async fn stages_and_archives_are_ours() {
    let world = world().await;
    let asked = ask(&world, &json!({"name": "app"})).await;
    let body = json!({
        "stages": [
            {"from": {"image": "golang"}, "steps": [{"type": "RUN", "args": ["make"]}]},
            {"from": {"stage": 0}},
            {"from": {"archive": HASH}},
        ],
        "fromStage": 2,
        "steps": [
            {"type": "COPY", "args": ["a", "b", "", ""], "from": {"stage": 1}},
            {"type": "COPY", "args": ["a", "b", "", ""], "from": {"image": "busybox"}},
        ],
    });
    start(&world, &asked, &body).await;
    assert_eq!(ended(&world, &asked).await["status"], "ready");
    let stages = world.builder.requests().remove(0).stages;
    assert!(matches!(&stages[0].base, Base::Image { reference, .. } if reference == "golang"));
    assert!(matches!(stages[1].base, Base::Stage(0)));
    assert!(matches!(&stages[2].base, Base::Archive { hash } if hash == HASH));
    assert!(matches!(stages[3].base, Base::Stage(2)));
    assert_eq!(stages[3].steps[0].from, Some(CopySource::Stage(1)));
    assert_eq!(
        stages[3].steps[1].from,
        Some(CopySource::Image("busybox".into()))
    );

    let asked = ask(&world, &json!({"name": "app"})).await;
    start(&world, &asked, &json!({"fromArchive": HASH})).await;
    assert_eq!(ended(&world, &asked).await["status"], "ready");
}

#[tokio::test]
async fn an_upload_link_is_for_one_hash_of_one_template_for_a_while() {
    let world = world().await;
    let (one, two) = (
        ask(&world, &json!({"name": "one"})).await,
        ask(&world, &json!({"name": "two"})).await,
    );
    let link = async |asked: &Asked| {
        let path = format!("/templates/{}/files/{HASH}", asked.template);
        let request = world.request(Method::GET, &path).header("host", "h");
        let url = world.send(request).await.json["url"].clone();
        let path = url.as_str().unwrap().strip_prefix("http://h").unwrap();
        path.to_owned()
    };
    let put = async |path: &str, body: &str| {
        let request = world.request(Method::PUT, path).anonymous().body(body);
        world.send(request).await
    };
    let good = link(&one).await;
    let forged = [
        good.replace(&one.template, &two.template),
        good.replace(HASH, &HASH.replace('0', "f")),
        good.replace("expires=", "expires=9"),
        good.split('&').next().unwrap().to_owned(),
        good.replace(&one.template, "nope"),
    ];
    for path in forged {
        let message = "the upload link is not valid any more: ask for another one";
        put(&path, "x").await.is_error(403, message);
    }
    assert!(world.builder.files(&world.tenant.id, HASH).is_none());
    put(&good, &"x".repeat(1001))
        .await
        .is_error(413, "the upload is larger than 1000 bytes");
    assert_eq!(put(&good, "x").await.status, 200);
    assert_eq!(put(&good, "y").await.status, 200);
    assert_eq!(world.builder.files(&world.tenant.id, HASH).unwrap(), b"y");
    for hash in ["x", &"A".repeat(64), "..%2f..%2fetc"] {
        let path = format!("/templates/{}/files/{hash}", one.template);
        let request = world.request(Method::GET, &path).header("host", "h");
        world
            .send(request)
            .await
            .is_error(400, "the hash must be 64 lower-case hex digits");
    }
    let path = format!("/templates/{BASE_ID}/files/{HASH}");
    let request = world.request(Method::GET, &path).header("host", "h");
    assert_eq!(world.send(request).await.json["code"], 404);
}

#[tokio::test]
async fn the_log_is_read_by_time_in_both_directions() {
    let world = world().await;
    let asked = ask(&world, &json!({"name": "app"})).await;
    let steps = json!([{"type": "RUN", "args": ["a"]}, {"type": "RUN", "args": ["b"]}]);
    start(&world, &asked, &json!({"fromImage": "x", "steps": steps})).await;
    ended(&world, &asked).await;
    let logs = world.get(&asked.at("/logs")).await.json;
    assert_eq!(
        messages(&logs["logs"]),
        ["[base] FROM x None", "Run a", "Run b"]
    );
    let logs = world
        .get(&asked.at("/logs?direction=backward&limit=1"))
        .await;
    assert_eq!(messages(&logs.json["logs"]), ["Run b"]);
    let none = world.get(&asked.at("/logs?cursor=99999999999999")).await;
    assert_eq!(none.json["logs"], json!([]));
    let none = world.get(&asked.at("/logs?level=warn")).await;
    assert_eq!(none.json["logs"], json!([]));
}

#[tokio::test]
async fn a_build_can_be_cancelled() {
    let world = world().await;
    let held = world.builder.gate.write().await;
    let asked = ask(&world, &json!({"name": "app"})).await;
    start(&world, &asked, &json!({"fromImage": "x"})).await;
    assert_eq!(world.delete(&asked.at("")).await.status, 204);
    let now = status(&world, &asked).await;
    assert_eq!(now["status"], "error");
    assert_eq!(now["reason"]["message"], "build was cancelled");
    assert_eq!(world.delete(&asked.at("")).await.status, 204);
    drop(held);
    let ready = build(&world, "other").await;
    assert_eq!(world.delete(&ready.at("")).await.json["code"], 409);
    assert_eq!(world.delete(&asked.at("x")).await.json["code"], 400);
}

#[tokio::test]
async fn too_many_builds_at_once_are_told_to_come_back() {
    let world = world().await;
    let _held = world.builder.gate.write().await;
    for name in ["a", "b", "c"] {
        let asked = ask(&world, &json!({"name": name})).await;
        start(&world, &asked, &json!({"fromImage": "x"})).await;
    }
    let refused = world.post("/v3/templates", &json!({"name": "d"})).await;
    assert_eq!(refused.json["code"], 429);
    assert_eq!(refused.header("retry-after"), Some("10"));
}

#[tokio::test]
async fn the_log_and_the_template_outlive_the_server() {
    let mut world = world().await;
    let asked = build(&world, "app").await;
    world.restart().await;
    let now = status(&world, &asked).await;
    assert_eq!(now["status"], "ready");
    assert_eq!(messages(&now["logEntries"]), ["[base] FROM debian None"]);
    assert_eq!(create(&world, "app").await.status, 201);
}

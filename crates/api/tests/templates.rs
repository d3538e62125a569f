//! Templates over HTTP: building, finding, tagging, publishing and deleting them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[path = "support/world.rs"]
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
        start: None,
        ready: None,
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
async fn a_wrong_request_for_a_build_is_refused_with_the_reason() {
    let world = world().await;
    for (body, message) in [
        (json!({}), "Name is required"),
        (
            json!({"name": "a b"}),
            "Invalid template reference: names consist of a-z, 0-9, - and _",
        ),
        (
            json!({"name": "team/a"}),
            "namespace 'team' must match your team 'default'",
        ),
        (
            json!({"name": "a", "tags": ["x y"]}),
            "Invalid template reference: tags consist of a-z, 0-9, -, _ and .",
        ),
        (
            json!({"name": "a", "cpuCount": 3}),
            "cpuCount must be 1 or even, not 3",
        ),
        (
            json!({"name": "a", "cpuCount": 34}),
            "cpuCount must be at most 32, not 34",
        ),
        (
            json!({"name": "a", "memoryMB": 127}),
            "memoryMB must be at least 128, not 127",
        ),
        (
            json!({"name": "a", "diskSizeMB": 1}),
            "diskSizeMB must be between 64 and 1048576, not 1",
        ),
        (
            json!({"name": "a", "minFreeDiskMb": -1}),
            "minFreeDiskMb must not be negative",
        ),
        (
            json!({"name": "a", "instanceType": "huge"}),
            "instanceType \"huge\" is none of lite, basic, standard-1, standard-2, standard-3, \
             standard-4",
        ),
        (
            json!({"name": "a", "teamID": "x"}),
            "teamID is not the team of this API key",
        ),
    ] {
        world
            .post("/v3/templates", &body)
            .await
            .is_error(400, message);
    }
    let clash = world.post("/v3/templates", &json!({"name": BASE_ID})).await;
    assert_eq!(clash.json["code"], 409, "{}", clash.text);
    let anonymous = world.request(Method::POST, "/v3/templates").anonymous();
    assert_eq!(world.send(anonymous).await.status, 401);
}

#[tokio::test]
async fn a_wrong_start_is_refused_and_the_build_still_waits() {
    let world = world().await;
    let asked = ask(&world, &json!({"name": "app"})).await;
    let one = "a build starts from exactly one of fromImage, fromTemplate, fromStage \
               and fromArchive";
    let step = |step: Value| json!({"fromImage": "x", "steps": [{"type": "RUN"}, step]});
    for (body, message) in [
        (json!({}), one),
        (json!({"fromImage": "x", "fromTemplate": "y"}), one),
        (
            step(json!({"type": "FETCH"})),
            "step 2: there is no step type \"FETCH\"; there are COPY, ADD, RUN, ENV, ARG, \
             WORKDIR and USER",
        ),
        (
            step(json!({"type": "COPY"})),
            "step 2: COPY needs filesHash",
        ),
        (
            step(json!({"type": "COPY", "filesHash": "../../x"})),
            "the filesHash of step 2 must be 64 lower-case hex digits",
        ),
        (
            step(json!({"type": "RUN", "from": {"stage": 0}})),
            "step 2: only COPY takes `from`",
        ),
        (
            step(json!({"type": "COPY", "from": {"stage": 0}})),
            "step 2 copies from stage 0, which is not an earlier one",
        ),
        (
            json!({"fromImage": "x", "stages": [{"from": {"image": "y"}, "steps": [{"type": "?"}]}]}),
            "stage 0, step 1: there is no step type \"?\"; there are COPY, ADD, RUN, ENV, ARG, \
             WORKDIR and USER",
        ),
    ] {
        world
            .post(&asked.start(), &body)
            .await
            .is_error(400, message);
    }
    let many = vec![json!({"type": "RUN"}); 501];
    world
        .post(&asked.start(), &json!({"fromImage": "x", "steps": many}))
        .await
        .is_error(400, "a build has at most 500 steps, not 501");
    assert_eq!(status(&world, &asked).await["status"], "waiting");
    assert!(world.builder.requests().is_empty());

    let good = json!({"fromImage": "x"});
    let template = &asked.template;
    for (path, code) in [
        (format!("/v2/templates/{template}/builds/x"), 400),
        (format!("/v2/templates/{template}/builds/{UNKNOWN}"), 404),
        (format!("/v2/templates/nope/builds/{}", asked.build), 404),
        (format!("/v2/templates/{BASE_ID}/builds/{UNKNOWN}"), 404),
    ] {
        assert_eq!(world.post(&path, &good).await.json["code"], code, "{path}");
    }
    for (path, code) in [
        (format!("/templates/{template}/builds/x/status"), 400),
        (
            format!("/templates/{template}/builds/{UNKNOWN}/status"),
            404,
        ),
        (
            format!("/templates/{BASE_ID}/builds/{}/logs", asked.build),
            404,
        ),
        (asked.at("/status?limit=101"), 400),
        (asked.at("/status?logsOffset=x"), 400),
        (asked.at("/status?level=loud"), 400),
        (asked.at("/logs?direction=up"), 400),
        (asked.at("/logs?source=air"), 400),
    ] {
        assert_eq!(world.get(&path).await.json["code"], code, "{path}");
    }
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
    assert_eq!(wait.header("retry-after"), Some("10"));
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

//! Requests for builds that are wrong.

use super::*;

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

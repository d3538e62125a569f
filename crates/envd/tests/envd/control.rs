//! The node's routes, and the rules of the transport.

use serde_json::json;

use crate::support::{Envd, NODE_TOKEN, shell};

const NODE: (&str, &str) = ("X-Soulbox-Node-Token", NODE_TOKEN);

#[test]
fn control_routes_are_for_the_node_only() {
    let envd = Envd::start();
    for (method, path) in [
        ("POST", "/init"),
        ("GET", "/soulbox/logs"),
        ("POST", "/soulbox/copy?dest=/tmp/never"),
        ("GET", "/soulbox/tree?path=/etc"),
        ("POST", "/soulbox/rehearse"),
        ("GET", "/soulbox/other"),
        ("POST", "/freeze"),
    ] {
        assert_eq!(envd.http(method, path, &[], b"").status, 401, "{path}");
        let wrong = [("X-Soulbox-Node-Token", "wrong")];
        assert_eq!(envd.http(method, path, &wrong, b"").status, 401, "{path}");
    }
    assert_eq!(envd.http("POST", "/freeze", &[NODE], b"").status, 501);
    assert_eq!(envd.http("GET", "/soulbox/other", &[NODE], b"").status, 404);
    assert_eq!(envd.http("GET", "/soulbox/copy", &[NODE], b"").status, 405);
}

#[test]
fn a_clients_token_does_not_open_the_nodes_routes() {
    let envd = Envd::with_token(Some("secret"));
    let client = [("X-Access-Token", "secret")];
    assert_eq!(envd.http("GET", "/envs", &client, b"").status, 200);
    for (method, path) in [
        ("POST", "/init"),
        ("GET", "/soulbox/logs"),
        ("POST", "/soulbox/copy?dest=/tmp/never"),
        ("GET", "/soulbox/tree?path=/etc"),
    ] {
        assert_eq!(envd.http(method, path, &client, b"").status, 401, "{path}");
        let both = [client[0], ("X-Soulbox-Node-Token", "secret")];
        assert_eq!(envd.http(method, path, &both, b"").status, 401, "{path}");
    }
}

/// The real time: should envd ever move the clock here, it must not move it far.
fn now() -> String {
    let date = std::process::Command::new("date")
        .args(["-u", "+%FT%TZ"])
        .output()
        .unwrap();
    String::from_utf8(date.stdout).unwrap().trim().to_owned()
}

#[test]
fn init_changes_the_settings() {
    let envd = Envd::start();
    let init =
        |body: serde_json::Value| envd.http("POST", "/init", &[NODE], body.to_string().as_bytes());
    let answer = init(json!({
        "accessToken": "secret", "envVars": { "NEW": "1" }, "defaultUser": "daemon",
        "defaultWorkdir": "/usr", "timestamp": now(),
    }));
    assert_eq!(
        (answer.status, answer.header("x-envd-version")),
        (204, Some("0.6.13"))
    );
    assert_eq!(envd.get("/envs").status, 401);
    let token = ("X-Access-Token", "secret");
    let env = envd.http("GET", "/envs", &[token], b"").json();
    assert_eq!(
        (&env["NEW"], &env["E2B_SANDBOX"]),
        (&json!("1"), &json!("true"))
    );
    assert_eq!(
        env.get("FROM_TEMPLATE"),
        None,
        "the caller's variables are replaced"
    );
    let (_, stream) = envd.start_process_with(&[token], &shell("id -un; pwd"));
    assert_eq!(stream.finish().stdout(), "daemon\n/usr\n");

    // One that was overtaken changes nothing; one without a token takes the token away.
    assert_eq!(
        init(json!({ "timestamp": "2000-01-01T00:00:00Z" })).status,
        204
    );
    assert_eq!(envd.get("/envs").status, 401);
    assert_eq!(init(json!({})).status, 204);
    assert_eq!(envd.get("/envs").status, 200);
}

#[test]
fn init_gives_a_waiting_sandbox_its_name_and_its_limits() {
    let envd = Envd::first_process();
    let init = json!({
        "sandboxId": "taken", "templateId": "mine", "memoryBytes": 1 << 30, "cpuCount": 4,
        "diskBytes": 1 << 20,
    });
    let (_, fifo) = envd.start_process(&shell(
        "cd /run/e2b && rm .E2B_SANDBOX_ID && mkfifo .E2B_SANDBOX_ID",
    ));
    fifo.finish();
    let answer = envd.http("POST", "/init", &[NODE], init.to_string().as_bytes());
    assert_eq!(answer.status, 204, "{}", answer.text());
    let script = "cd /run/e2b; echo $E2B_SANDBOX_ID $(cat .E2B_SANDBOX_ID) $E2B_TEMPLATE_ID \
        $(cat .E2B_TEMPLATE_ID) $(stat -c %a .E2B_SANDBOX_ID) $FROM_TEMPLATE";
    let (_, stream) = envd.start_process(&shell(script));
    assert_eq!(
        stream.finish().stdout(),
        "taken taken mine mine 444 yes\n",
        "what is not given stays"
    );
    let metrics = envd.get("/metrics").json();
    assert_eq!(
        (
            &metrics["mem_total"],
            &metrics["cpu_count"],
            &metrics["disk_total"]
        ),
        (&json!(1 << 30), &json!(4), &json!(1 << 20))
    );
}

#[test]
fn a_rehearsal_starts_a_program_and_leaves_no_trace() {
    let envd = Envd::start();
    let log = |envd: &Envd| envd.http("GET", "/soulbox/logs", &[NODE], b"").text();
    let before = log(&envd);
    let answer = envd.http("POST", "/soulbox/rehearse", &[NODE], b"");
    assert_eq!(answer.status, 204, "{}", answer.text());
    assert_eq!(log(&envd), before);
    let list = envd.call("process.Process/List", &json!({}));
    assert_eq!(list, (200, json!({})), "nobody sees it");
    assert_eq!(
        envd.http("GET", "/soulbox/rehearse", &[NODE], b"").status,
        405
    );
}

#[test]
fn the_log_tells_of_processes_but_not_of_their_secrets() {
    let envd = Envd::start();
    let mut start = shell("cat");
    start["process"]["envs"] = json!({ "PASSWORD": "hunter2" });
    let (pid, stream) = envd.start_process(&start);
    stream.finish();
    let log = envd.http("GET", "/soulbox/logs", &[NODE], b"");
    assert!(!log.text().contains("hunter2"));
    let log = log.json();
    let of_pid: Vec<_> = log
        .as_array()
        .unwrap()
        .iter()
        .filter(|entry| entry["fields"]["pid"] == json!(pid.to_string()))
        .map(|entry| entry["fields"]["event_type"].as_str().unwrap())
        .collect();
    assert_eq!(of_pid, ["process_start", "process_end"]);
    assert!(log[0]["at"].is_u64() && log[0]["level"] == "info" && log[0]["logger"].is_string());
}

#[test]
fn metrics_have_every_field() {
    let envd = Envd::start();
    let metrics = envd.get("/metrics").json();
    for field in [
        "ts",
        "cpu_count",
        "cpu_used_pct",
        "mem_total",
        "mem_used",
        "mem_cache",
        "mem_total_mib",
        "mem_used_mib",
        "disk_used",
        "disk_total",
    ] {
        assert!(metrics[field].is_number(), "{field} in {metrics}");
    }
    assert_eq!(metrics["mem_total"], 1 << 29);
}

#[test]
fn wrong_routes_methods_and_types_are_told_apart() {
    let envd = Envd::start();
    assert_eq!(envd.get("/nowhere").status, 404);
    assert_eq!(envd.call("process.Process/Fly", &json!({})).0, 404);
    assert_eq!(envd.get("/process.Process/List").status, 405);
    assert_eq!(envd.http("PUT", "/files", &[], b"").status, 405);
    let wrong = envd.http(
        "POST",
        "/process.Process/List",
        &[("Content-Type", "text/plain")],
        b"",
    );
    assert_eq!(
        (wrong.status, wrong.header("accept-post").is_some()),
        (415, true)
    );
    assert_eq!(
        envd.call("process.Process/List", &json!({ "unknown": 1 }))
            .0,
        200
    );
    let (status, error) = envd.call("process.Process/SendSignal", &json!({ "signal": "NONE" }));
    assert_eq!((status, &error["code"]), (400, &json!("invalid_argument")));
}

#[test]
fn browsers_may_ask_from_anywhere() {
    let envd = Envd::start();
    let origin = ("Origin", "https://example.com");
    let asked = [
        origin,
        ("Access-Control-Request-Method", "POST"),
        ("Access-Control-Request-Headers", "x-access-token"),
    ];
    let preflight = envd.http("OPTIONS", "/process.Process/List", &asked, b"");
    assert_eq!(preflight.status, 204);
    assert_eq!(preflight.header("access-control-allow-origin"), Some("*"));
    assert_eq!(
        preflight.header("access-control-allow-headers"),
        Some("x-access-token")
    );
    let plain = envd.http("GET", "/health", &[origin], b"");
    assert_eq!(plain.header("access-control-allow-origin"), Some("*"));
}

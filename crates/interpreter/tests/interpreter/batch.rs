//! Programs that run once.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Server, has};

fn run(server: &Server, program: &Value) -> Value {
    let answer = server.post("/v1/execute", program);
    assert_eq!(answer.status, 200, "{}", answer.body);
    serde_json::from_str(&answer.body).unwrap()
}

#[test]
fn a_program_has_its_input_arguments_files_and_variables() {
    let server = Server::start(&json!({"A": "global"}));
    let report = run(
        &server,
        &json!({"language": "bash", "code": "cat; cat f; echo \"$1$A$B\"; exit 3", "stdin": "in ",
            "args": ["x"], "env": {"B": "own"}, "files": {"f": "file "}}),
    );
    assert_eq!(report["run"]["stdout"], "in file xglobalown\n");
    assert_eq!(report["run"]["exit_code"], 3);
    assert_eq!(report["compile"], Value::Null);
}

#[test]
fn what_a_compiler_says_is_kept_apart() {
    if !has("gcc", "gcc", &["--version"]) {
        return;
    }
    let server = Server::start(&json!({}));
    let good = run(
        &server,
        &json!({"language": "C", "code": "#include <stdio.h>\nint main(){puts(\"hi\");}"}),
    );
    assert_eq!(good["compile"]["exit_code"], 0);
    assert_eq!(good["run"]["stdout"], "hi\n");
    let bad = run(&server, &json!({"language": "c", "code": "int main( {"}));
    assert!(bad["compile"]["stderr"].as_str().unwrap().contains("error"));
    assert_eq!(bad["run"], Value::Null);
}

#[test]
fn time_and_output_have_limits_and_nothing_is_left_behind() {
    let server = Server::start(&json!({}));
    let started = Instant::now();
    let late = run(
        &server,
        &json!({"language": "bash", "code": "sleep 1000 & setsid sleep 1001 & echo up; wait",
            "timeout_ms": 300}),
    );
    assert!(started.elapsed() < Duration::from_secs(20));
    assert_eq!(
        (&late["run"]["timed_out"], &late["run"]["signal"]),
        (&json!(true), &json!(9))
    );
    assert_eq!(late["run"]["stdout"], "up\n");
    assert!(!has(
        "what should be gone",
        "pgrep",
        &["-f", "^sleep 1001$"]
    ));
    let loud = run(
        &server,
        &json!({"language": "bash", "code": "head -c 9999 /dev/zero | tr '\\0' x", "output_limit": 10}),
    );
    assert_eq!(loud["run"]["stdout"], "xxxxxxxxxx");
    assert_eq!(loud["run"]["truncated"], true);
}

#[test]
fn many_in_one_call_are_answered_in_order_each_for_itself() {
    let server = Server::start(&json!({}));
    let programs: Vec<Value> = (0..5)
        .map(|n| json!({"language": "sh", "code": format!("echo {n}")}))
        .chain([
            json!({"language": "klingon", "code": ""}),
            json!({"code": "?"}),
        ])
        .collect();
    let answer = run(&server, &json!({ "executions": programs }));
    let results = answer["results"].as_array().unwrap();
    for (n, result) in results[..5].iter().enumerate() {
        assert_eq!(result["run"]["stdout"], format!("{n}\n"));
    }
    assert_eq!(results[5]["error"]["code"], "unknown_language");
    let installed = results[5]["error"]["installed"].as_array().unwrap();
    assert!(installed.contains(&json!("bash")));
    assert_eq!(results[6]["error"]["code"], "invalid_request");
}

//! The shell as a kernel.

use serde_json::{Value, json};

use crate::harness::{Server, texts};

fn shell(code: &str) -> Value {
    json!({"code": code, "language": "bash"})
}

fn output(server: &Server, code: &str) -> String {
    texts(&server.execute(&shell(code)), "stdout").concat()
}

#[test]
fn state_stays_and_both_streams_are_one() {
    let server = Server::start(&json!({"GLOBAL": "it's \"here\""}));
    assert_eq!(output(&server, "x=1; cd /; echo a; echo b >&2"), "a\nb\n");
    assert_eq!(output(&server, "echo $x; pwd"), "1\n/\n");
    assert_eq!(output(&server, "echo \"$GLOBAL\""), "it's \"here\"\n");
}

#[test]
fn an_answer_is_lines_of_json_from_the_count_to_the_end() {
    let server = Server::start(&json!({}));
    let events = server.execute(&shell("echo hi; false"));
    let kinds: Vec<&Value> = events.iter().map(|event| &event["type"]).collect();
    assert_eq!(
        kinds,
        ["number_of_executions", "stdout", "end_of_execution"]
    );
    let answer = server.post("/execute", &shell("echo ü"));
    assert!(answer.body.is_ascii());
    assert!(!answer.headers.contains("content-type"));
}

#[test]
fn exit_and_broken_code_leave_a_shell_behind() {
    let server = Server::start(&json!({}));
    output(&server, "x=1; exit 3");
    assert_eq!(output(&server, "echo \"[$x]\""), "[]\n");
    output(&server, "echo 'never closed");
    assert_eq!(output(&server, "echo fine"), "fine\n");
}

#[test]
fn a_client_that_goes_away_ends_the_command_and_keeps_the_shell() {
    let server = Server::start(&json!({}));
    output(&server, "x=kept");
    for endless in ["while true; do echo x; done", "echo x; sleep 1000", "yes"] {
        server.abandon(&shell(endless));
        assert_eq!(output(&server, "echo $x"), "kept\n", "{endless}");
    }
}

#[test]
fn the_variables_of_one_run_are_taken_back() {
    let server = Server::start(&json!({"A": "global"}));
    let request = json!({"code": "echo $A $B", "language": "bash",
        "env_vars": {"A": "own", "B": "$(id)"}});
    assert_eq!(texts(&server.execute(&request), "stdout"), ["own $(id)\n"]);
    assert_eq!(output(&server, "echo $A [$B]"), "global []\n");
}

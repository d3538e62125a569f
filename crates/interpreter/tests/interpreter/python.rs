//! Python behind Jupyter's protocol.

use serde_json::{Value, json};

use crate::harness::{Server, error, has, peak_memory, texts};

fn server() -> Option<Server> {
    server_with(&json!({}))
}

fn server_with(variables: &Value) -> Option<Server> {
    has("ipykernel", "python3", &["-c", "import ipykernel"]).then(|| Server::start(variables))
}

fn value(server: &Server, code: &str) -> String {
    texts(&server.run(code), "result").concat()
}

#[test]
fn state_lives_between_cells_and_contexts_are_apart() {
    let Some(server) = server() else { return };
    assert_eq!(value(&server, "x = 41; x"), "41");
    let context: Value = serde_json::from_str(&server.post("/contexts", &json!({})).body).unwrap();
    let there = json!({"code": "x", "context_id": context["id"]});
    assert_eq!(error(&server.execute(&there)).0, "NameError");
    assert_eq!(value(&server, "x + 1"), "42");
    let listed: Vec<Value> = serde_json::from_str(&server.get("/contexts").body).unwrap();
    assert_eq!(listed.last().unwrap()["id"], context["id"]);
    assert_eq!(listed[0]["language"], "python");
}

#[test]
fn a_print_is_one_event_and_errors_count() {
    let Some(server) = server() else { return };
    assert_eq!(texts(&server.run("print('hello')"), "stdout"), ["hello\n"]);
    assert_eq!(error(&server.run("1/0")).0, "ZeroDivisionError");
    assert_eq!(server.run("1")[0]["execution_count"], 3);
}

#[test]
fn a_kernel_that_dies_says_so_and_a_new_one_is_there() {
    let Some(server) = server() else { return };
    let (name, value_of_error) = error(&server.run("import os; os.kill(os.getpid(), 9)"));
    assert_eq!(name, "ContextRestarting");
    // Not for lack of memory, which is only told when it was counted.
    assert_eq!(
        value_of_error,
        "Context was restarted: the kernel was killed (signal 9)"
    );
    assert_eq!(value(&server, "1 + 1"), "2");
}

#[test]
fn a_restart_forgets_everything_but_the_folder_and_a_removed_default_comes_back() {
    let Some(server) = server() else { return };
    let asked = json!({"cwd": "/usr"});
    let context: Value = serde_json::from_str(&server.post("/contexts", &asked).body).unwrap();
    let path = format!("/contexts/{}", context["id"].as_str().unwrap());
    let run = |code: &str| server.execute(&json!({"code": code, "context_id": context["id"]}));
    run("x = 1");
    let restarted = server.request("POST", &format!("{path}/restart"), "");
    assert_eq!((restarted.status, restarted.body.as_str()), (200, "null"));
    assert_eq!(error(&run("x")).0, "NameError");
    assert_eq!(texts(&run("import os; os.getcwd()"), "result"), ["/usr"]);

    let default: Vec<Value> = serde_json::from_str(&server.get("/contexts").body).unwrap();
    let path = format!("/contexts/{}", default[0]["id"].as_str().unwrap());
    assert_eq!(server.request("DELETE", &path, "").body, "null");
    assert_eq!(value(&server, "1 + 1"), "2");
}

#[test]
fn a_client_that_goes_away_interrupts_its_cell_and_the_context_goes_on() {
    let Some(server) = server() else { return };
    server.run("x = 'kept'");
    for endless in [
        "print(1)\nwhile True: pass",
        "print(1)\nimport time; time.sleep(1000)",
        "while True: print('x' * 1000)",
    ] {
        server.abandon(&json!({ "code": endless }));
        assert_eq!(value(&server, "x"), "kept", "{endless}");
    }
}

#[test]
fn the_variables_of_one_run_are_taken_back() {
    let Some(server) = server_with(&json!({"A": "global"})) else {
        return;
    };
    let code = "import os; [os.environ.get('A'), os.environ.get('B')]";
    let own = json!({"code": code, "env_vars": {"A": "own\"'\n", "B": "b"}});
    assert_eq!(server.execute(&own)[1]["json"], json!(["own\"'\n", "b"]));
    assert_eq!(server.run(code)[1]["json"], json!(["global", null]));
}

#[test]
fn much_output_arrives_whole_and_fills_nobodys_memory() {
    let Some(server) = server() else { return };
    let peak = "import resource; resource.getrusage(resource.RUSAGE_SELF).ru_maxrss";
    let before: u64 = value(&server, peak).parse().unwrap();
    let output = texts(
        &server.run("for _ in range(400): print('x' * 99_999)"),
        "stdout",
    );
    assert_eq!(output.iter().map(String::len).sum::<usize>(), 40_000_000);
    let after: u64 = value(&server, peak).parse().unwrap();
    assert!(
        after - before < 20_000,
        "the kernel grew from {before} to {after} kB"
    );
    let peak = peak_memory(server.pid());
    assert!(peak < 40_000, "the server needed {peak} kB");
}

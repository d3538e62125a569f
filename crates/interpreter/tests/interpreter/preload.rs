//! Libraries are loaded beside the first kernels, and later kernels have them.
//!
//! The libraries here are the tests' own, found before the real ones: one that waits until it is let
//! go shows the time before it is loaded, however fast the machine is.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::harness::{Server, eventually, has, texts};

/// `pandas`, until the file `go` is beside it.
const WAITS: &str = "
import os, time
while not os.path.exists(os.path.join(os.path.dirname(__file__), 'go')):
    time.sleep(0.01)
";

const LOADED: &str = "import sys; 'pandas' in sys.modules";

fn server(library: &Path, code: &str) -> Option<Server> {
    if !has("ipykernel", "python3", &["-c", "import ipykernel"]) {
        return None;
    }
    fs::write(library.join("pandas.py"), code).unwrap();
    let folder = library.to_str().unwrap();
    Some(Server::start_in(&json!({}), &[("PYTHONPATH", folder)]))
}

fn value(server: &Server, code: &str) -> String {
    texts(&server.run(code), "result").concat()
}

/// What a context that is made for the question answers.
fn asked_elsewhere(server: &Server, code: &str) -> String {
    let made = server.post("/contexts", &json!({}));
    assert_eq!(made.status, 200, "{}", made.body);
    let context: Value = serde_json::from_str(&made.body).unwrap();
    let id = context["id"].as_str().unwrap();
    let events = server.execute(&json!({"code": code, "context_id": id}));
    server.request("DELETE", &format!("/contexts/{id}"), "");
    texts(&events, "result").concat()
}

fn let_go(library: &Path) {
    fs::write(library.join("go"), "").unwrap();
}

#[test]
fn nobody_waits_for_the_libraries_and_who_comes_later_has_them() {
    let library = tempfile::tempdir().unwrap();
    let Some(server) = server(library.path(), WAITS) else {
        return;
    };
    assert_eq!(value(&server, "x = 1; x"), "1");
    assert_eq!(value(&server, LOADED), "False");
    assert_eq!(asked_elsewhere(&server, LOADED), "False");
    let_go(library.path());
    eventually("a new context has pandas", || {
        asked_elsewhere(&server, LOADED) == "True"
    });
    // What has state keeps it.
    assert_eq!(value(&server, "x"), "1");
    assert_eq!(value(&server, LOADED), "False");
}

#[test]
fn a_context_that_nobody_has_used_gets_the_libraries_and_stays_the_same_context() {
    let library = tempfile::tempdir().unwrap();
    let Some(server) = server(library.path(), WAITS) else {
        return;
    };
    let contexts = server.get("/contexts").body;
    let first = server.kernels();
    assert_eq!(first.len(), 1);
    let_go(library.path());
    eventually("the default context has another kernel", || {
        let now = server.kernels();
        now.len() == 1 && now != first
    });
    assert_eq!(server.get("/contexts").body, contexts);
    assert_eq!(value(&server, LOADED), "True");
}

#[test]
fn libraries_that_cannot_be_loaded_cost_nothing_but_themselves() {
    for broken in [
        "raise RuntimeError('broken')",
        "import sys; sys.exit(3)",
        "import os; os.kill(os.getpid(), 11)",
    ] {
        // Says that it was tried, for the test to know.
        let code = format!("open(__file__ + '.tried', 'w').close()\n{broken}");
        let library = tempfile::tempdir().unwrap();
        let Some(server) = server(library.path(), &code) else {
            return;
        };
        eventually("it is tried", || {
            library.path().join("pandas.py.tried").exists()
        });
        assert_eq!(value(&server, "1 + 1"), "2", "{broken}");
        assert_eq!(asked_elsewhere(&server, "1 + 1"), "2", "{broken}");
        assert_eq!(asked_elsewhere(&server, LOADED), "False", "{broken}");
    }
}

#[test]
fn a_file_of_the_users_is_not_mistaken_for_a_library() {
    let library = tempfile::tempdir().unwrap();
    let Some(server) = server(library.path(), WAITS) else {
        return;
    };
    assert_eq!(value(&server, LOADED), "False");
    let mine = server.home().join("pandas.py");
    fs::write(&mine, "open(__file__ + '.ran', 'w').close(); mine = 1").unwrap();
    let_go(library.path());
    eventually("a new context has pandas", || {
        asked_elsewhere(&server, LOADED) == "True"
    });
    assert!(!server.home().join("pandas.py.ran").exists());
    assert_eq!(value(&server, "import pandas; pandas.mine"), "1");
}

#[test]
fn kernels_end_with_the_server_whoever_forked_them() {
    let library = tempfile::tempdir().unwrap();
    let Some(server) = server(library.path(), WAITS) else {
        return;
    };
    let pid = "import os; os.getpid()";
    let early = value(&server, pid);
    let_go(library.path());
    eventually("a new context has pandas", || {
        asked_elsewhere(&server, LOADED) == "True"
    });
    server.post("/contexts", &json!({}));
    let contexts: Vec<Value> = serde_json::from_str(&server.get("/contexts").body).unwrap();
    let late = json!({"code": pid, "context_id": contexts.last().unwrap()["id"]});
    let late = texts(&server.execute(&late), "result").concat();
    drop(server);
    for pid in [early, late] {
        let state = || fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        eventually("the kernel is gone", || {
            state().is_empty() || state().contains(") Z ")
        });
    }
}

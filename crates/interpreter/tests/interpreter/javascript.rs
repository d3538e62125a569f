//! The kernel for JavaScript and TypeScript.

use std::path::Path;

use serde_json::{Value, json};

use crate::harness::{Server, error, has, texts};

fn server() -> Option<Server> {
    let packages = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernel/javascript/node_modules");
    if !packages.is_dir() {
        eprintln!("skipped: npm install was not run in kernel/javascript");
        return None;
    }
    has("node", "node", &["--version"]).then(|| Server::start(&json!({"GLOBAL": "g"})))
}

fn cell(language: &str, code: &str) -> Value {
    json!({"code": code, "language": language})
}

fn value(server: &Server, code: &str) -> String {
    texts(&server.execute(&cell("javascript", code)), "result").concat()
}

#[test]
fn modules_waiting_and_declaring_again_work_at_the_top() {
    let Some(server) = server() else { return };
    let code = "import path, { basename as base } from 'node:path'\n\
        const x = await Promise.resolve(1)\nclass A { n = 2 }\nfunction f() { return x }\n\
        f() + new A().n + base('/a/bcd').length";
    assert_eq!(value(&server, code), "6");
    assert_eq!(value(&server, "const x = 5; x + f()"), "10");
    assert_eq!(value(&server, "Promise.resolve('done')"), "done");
    assert_eq!(value(&server, "undefined"), "");
    assert_eq!(value(&server, "process.env.GLOBAL"), "g");
}

#[test]
fn types_are_taken_away() {
    let Some(server) = server() else { return };
    let code =
        "interface P { n: number }\nenum E { A = 2 }\nconst p: P = { n: E.A }\np.n as number";
    assert_eq!(texts(&server.execute(&cell("ts", code)), "result"), ["2"]);
}

#[test]
fn a_log_is_one_event_and_errors_have_names() {
    let Some(server) = server() else { return };
    let events = server.execute(&cell("js", "console.log('Hello, World!')"));
    assert_eq!(texts(&events, "stdout"), ["Hello, World!\n"]);
    let events = server.execute(&cell("js", "throw new RangeError('no')"));
    assert_eq!(error(&events), ("RangeError".into(), "no".into()));
}

#[test]
fn a_client_that_goes_away_interrupts_its_cell_and_the_context_goes_on() {
    let Some(server) = server() else { return };
    value(&server, "var x = 'kept'");
    for endless in [
        "console.log(1); await null; await new Promise(() => {})",
        "for (;;) console.log('x'.repeat(1000))",
    ] {
        server.abandon(&cell("js", endless));
        assert_eq!(value(&server, "x"), "kept", "{endless}");
    }
}

//! The kernel for Java.

use serde_json::{Value, json};

use crate::harness::{Server, error, has, texts};

fn cell(code: &str) -> Value {
    json!({"code": code, "language": "java"})
}

#[test]
fn snippets_values_output_variables_and_errors() {
    if !has("a JDK", "javac", &["--version"]) {
        return;
    }
    let server = Server::start(&json!({"GLOBAL": "it's \"here\" \\u0041"}));
    let run = |code: &str| server.execute(&cell(code));
    let events = run("int f(int a) { return a * 2; }\nint x = f(4);\nx + 1");
    assert_eq!(texts(&events, "result"), ["9"]);
    let events = run("System.out.println(\"Hello, World!\")");
    assert_eq!(texts(&events, "stdout"), ["Hello, World!", "\n"]);
    let events = run("System.out.print(System.getProperty(\"GLOBAL\"))");
    assert_eq!(texts(&events, "stdout"), ["it's \"here\" \\u0041"]);
    let events = run("throw new IllegalStateException(\"no\");");
    assert_eq!(
        error(&events),
        ("java.lang.IllegalStateException".into(), "no".into())
    );
    assert_eq!(error(&run("nothing + 1")).0, "CompilationException");

    server.abandon(&cell("System.out.println(1); while (true) {}"));
    assert_eq!(texts(&run("x"), "result"), ["8"]);
}

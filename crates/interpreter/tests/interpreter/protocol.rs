//! Routes, statuses and texts that need no kernel.

use serde_json::json;

use crate::harness::Server;

#[test]
fn unknown_contexts_languages_routes_and_bodies_have_the_texts_that_clients_know() {
    let server = Server::start(&json!({}));
    let both = json!({"code": "1", "language": "python", "context_id": "x"});
    for (method, path, body, status, text) in [
        (
            "POST",
            "/execute",
            both.to_string(),
            400,
            "Only one of context_id or language can be provided",
        ),
        (
            "POST",
            "/execute",
            json!({"code": "1", "context_id": "x"}).to_string(),
            404,
            "Context x not found",
        ),
        (
            "POST",
            "/execute?source=ci",
            json!({"code": "1", "context_id": "x"}).to_string(),
            404,
            "Context x not found",
        ),
        (
            "POST",
            "/contexts",
            json!({"language": "nope"}).to_string(),
            500,
            "Failed to create context: No such kernel named nope",
        ),
        (
            "POST",
            "/contexts",
            json!({"language": "bash", "cwd": "/nowhere"}).to_string(),
            500,
            "Failed to set working directory",
        ),
        (
            "POST",
            "/contexts/x/restart",
            String::new(),
            404,
            "Context x not found",
        ),
        (
            "DELETE",
            "/contexts/x",
            String::new(),
            404,
            "Context x not found",
        ),
        (
            "GET",
            "/nope",
            String::new(),
            404,
            r#"{"detail":"Not Found"}"#,
        ),
        (
            "GET",
            "/execute",
            String::new(),
            405,
            r#"{"detail":"Method Not Allowed"}"#,
        ),
    ] {
        let answer = server.request(method, path, &body);
        assert_eq!(
            (answer.status, answer.body.as_str()),
            (status, text),
            "{method} {path}"
        );
    }
    assert_eq!(server.post("/execute", &json!({"code": 5})).status, 422);
    assert_eq!(server.request("POST", "/contexts", "").status, 422);
}

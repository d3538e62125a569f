//! Texts that clients take apart, word for word: pydantic-ai-harness makes Python's own exceptions of
//! them, and so do others. E2B's envd says the same.

use serde_json::{Value, json};

use crate::support::Envd;

const OCTETS: (&str, &str) = ("Content-Type", "application/octet-stream");

struct World {
    envd: Envd,
    file: String,
    directory: String,
}

fn world() -> World {
    let envd = Envd::start();
    let path = |name: &str| envd.home.path().join(name).to_str().unwrap().to_owned();
    let (file, directory) = (path("file"), path("directory"));
    std::fs::write(&file, "").unwrap();
    std::fs::create_dir(&directory).unwrap();
    World {
        envd,
        file,
        directory,
    }
}

impl World {
    fn rpc(&self, method: &str, message: &Value) -> (u16, String, String) {
        let (status, answer) = self
            .envd
            .call(&format!("filesystem.Filesystem/{method}"), message);
        let text = |field: &str| answer[field].as_str().unwrap().to_owned();
        (status, text("code"), text("message"))
    }

    fn write(&self, path: &str) -> (u16, Value) {
        let answer = self
            .envd
            .http("POST", &format!("/files?path={path}"), &[OCTETS], b"x");
        (answer.status, answer.json())
    }
}

fn told(status: u16, code: &str, message: String) -> (u16, String, String) {
    (status, code.to_owned(), message)
}

#[test]
fn already_exists() {
    let world = world();
    let World {
        file, directory, ..
    } = &world;
    let make = |path: &str| world.rpc("MakeDir", &json!({ "path": path }));
    assert_eq!(
        make(directory),
        told(
            409,
            "already_exists",
            format!("directory already exists: {directory}")
        )
    );
    let text = format!("path already exists but it is not a directory: {file}");
    assert_eq!(make(file), told(400, "invalid_argument", text));
}

#[test]
fn not_a_directory() {
    let world = world();
    let file = &world.file;
    assert_eq!(
        world.rpc("ListDir", &json!({ "path": file, "depth": 1 })),
        told(
            400,
            "invalid_argument",
            format!("path is not a directory: {file}")
        )
    );
}

#[test]
fn path_is_a_file() {
    let world = world();
    let file = &world.file;
    let (status, code, message) = world.rpc("MakeDir", &json!({ "path": format!("{file}/below") }));
    assert_eq!((status, code.as_str()), (500, "internal"));
    assert!(
        message.ends_with(&format!(": path is a file: {file}")),
        "{message}"
    );
    let (status, answer) = world.write(&format!("{file}/below/f"));
    let message = answer["message"].as_str().unwrap();
    assert_eq!(status, 500);
    assert!(
        message.ends_with(&format!(": path is a file: {file}")),
        "{message}"
    );
}

#[test]
fn is_a_directory() {
    let world = world();
    let directory = &world.directory;
    let expected = json!({ "code": 400, "message": format!("path '{directory}' is a directory") });
    assert_eq!(world.write(directory), (400, expected.clone()));
    let read = world.envd.get(&format!("/files?path={directory}"));
    assert_eq!((read.status, read.json()), (400, expected));
}

#[test]
fn permission_denied() {
    let world = world();
    // Nobody may write there, not even root.
    let (status, answer) = world.write("/proc/sys/kernel/osrelease");
    let message = answer["message"].as_str().unwrap();
    assert_eq!(status, 500, "{message}");
    assert!(message.ends_with(": permission denied"), "{message}");
}

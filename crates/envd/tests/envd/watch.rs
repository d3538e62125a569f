//! Watching, as a stream and by asking.

use serde_json::{Value, json};

use crate::support::Envd;

fn create(envd: &Envd, recursive: bool) -> Value {
    let request = json!({ "path": envd.home.path(), "recursive": recursive });
    let (status, answer) = envd.call("filesystem.Filesystem/CreateWatcher", &request);
    assert_eq!(status, 200, "{answer}");
    answer
}

fn events(envd: &Envd, watcher: &Value) -> Vec<(String, String)> {
    let (_, answer) = envd.call("filesystem.Filesystem/GetWatcherEvents", watcher);
    let text = |value: &Value| {
        value
            .as_str()
            .unwrap_or_default()
            .replace("EVENT_TYPE_", "")
    };
    let events = answer["events"].as_array().cloned().unwrap_or_default();
    events
        .iter()
        .map(|event| (text(&event["name"]), text(&event["type"])))
        .collect()
}

fn pair(name: &str, kind: &str) -> (String, String) {
    (name.to_owned(), kind.to_owned())
}

fn upload(envd: &Envd, name: &str) {
    let url = format!("/files?path={}", envd.home.path().join(name).display());
    let headers = [("Content-Type", "application/octet-stream")];
    assert_eq!(envd.http("POST", &url, &headers, b"content").status, 200);
}

#[test]
fn an_upload_is_three_events_right_after_it_is_answered() {
    let envd = Envd::start();
    for recursive in [false, true] {
        let watcher = create(&envd, recursive);
        let name = format!("file-{recursive}");
        upload(&envd, &name);
        assert_eq!(
            events(&envd, &watcher),
            [
                pair(&name, "CREATE"),
                pair(&name, "CHMOD"),
                pair(&name, "WRITE")
            ]
        );
        assert_eq!(events(&envd, &watcher), []);
        assert_eq!(
            envd.call("filesystem.Filesystem/RemoveWatcher", &watcher).0,
            200
        );
        let (status, error) = envd.call("filesystem.Filesystem/GetWatcherEvents", &watcher);
        assert_eq!((status, &error["code"]), (404, &json!("not_found")));
    }
}

#[test]
fn new_directories_are_watched_from_their_first_file_on() {
    let envd = Envd::start();
    let watcher = create(&envd, true);
    upload(&envd, "new/nested/file");
    let seen = events(&envd, &watcher);
    for expected in [
        pair("new", "CREATE"),
        pair("new/nested", "CREATE"),
        pair("new/nested/file", "WRITE"),
    ] {
        assert!(seen.contains(&expected), "{expected:?} in {seen:?}");
    }
}

#[test]
fn a_stream_reports_with_entries_when_asked() {
    let envd = Envd::start();
    let request = json!({ "path": envd.home.path(), "include_entry": true });
    let mut stream = envd.stream("filesystem.Filesystem/WatchDir", &[], &request);
    assert_eq!(stream.next().unwrap(), json!({ "start": {} }));
    upload(&envd, "f");
    let event = stream.next().unwrap();
    assert_eq!(event["filesystem"]["type"], "EVENT_TYPE_CREATE");
    assert_eq!(event["filesystem"]["entry"]["type"], "FILE_TYPE_FILE");
    assert_eq!(
        event["filesystem"]["entry"]["path"],
        json!(envd.home.path().join("f"))
    );
}

#[test]
fn what_cannot_be_watched_is_refused() {
    let envd = Envd::start();
    let error = |path: &str| {
        let request = json!({ "path": path });
        envd.stream("filesystem.Filesystem/WatchDir", &[], &request)
            .finish()
            .error["code"]
            .clone()
    };
    assert_eq!(error("/no/such/directory"), "not_found");
    assert_eq!(error("/etc/passwd"), "invalid_argument");
}

#[test]
fn a_watch_ends_at_its_deadline() {
    let envd = Envd::start();
    let request = json!({ "path": envd.home.path() });
    let deadline = [("Connect-Timeout-Ms", "200")];
    let stream = envd.stream("filesystem.Filesystem/WatchDir", &deadline, &request);
    assert_eq!(stream.finish().error["code"], "deadline_exceeded");
}

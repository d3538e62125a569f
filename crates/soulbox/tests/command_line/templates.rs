//! `soulbox template` against a builder that says what a real one would.

use std::{
    convert::Infallible,
    fs,
    path::Path,
    process::{Output, Stdio},
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use serde_json::{Value, json};
use tokio::{io::AsyncReadExt, net::TcpListener, process::Command, time::timeout};

use super::{LIMIT, text};

/// How the build goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Course {
    Ready,
    /// At this step.
    Fails(&'static str),
    /// Until it is cancelled.
    Hangs,
}

#[derive(Debug)]
struct Builder {
    course: Course,
    /// So many uploads are cut off first.
    cuts: Mutex<usize>,
    uploads: Mutex<Vec<Bytes>>,
    start: Mutex<Option<Value>>,
    request: Mutex<Option<Value>>,
    cancelled: Mutex<bool>,
    url: String,
}

async fn builder(course: Course, cuts: usize) -> Arc<Builder> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let builder = Arc::new(Builder {
        course,
        cuts: Mutex::new(cuts),
        uploads: Mutex::default(),
        start: Mutex::default(),
        request: Mutex::default(),
        cancelled: Mutex::default(),
        url: format!("http://{}", listener.local_addr().unwrap()),
    });
    let shared = builder.clone();
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            let builder = shared.clone();
            let service = service_fn(move |request| answer(builder.clone(), request));
            tokio::spawn(async move {
                // Clients that go away in the middle are part of the tests.
                auto::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(connection), service)
                    .await
                    .ok();
            });
        }
    });
    builder
}

async fn answer(
    builder: Arc<Builder>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let parsed = || serde_json::from_slice::<Value>(&body).ok();
    let line = format!("{} {}", head.method, head.uri.path());
    let (status, value) = match line.as_str() {
        "POST /v3/templates" => {
            *builder.request.lock().unwrap() = parsed();
            let names = json!(["web"]);
            (
                202,
                json!({"templateID": "t1", "buildID": "b1", "names": names, "tags": []}),
            )
        }
        "POST /templates/builtin/agent" => (202, json!({"templateID": "t1", "buildID": "b1"})),
        "PUT /put" => {
            assert!(head.headers.get("x-api-key").is_none());
            assert_eq!(head.headers["content-length"], body.len().to_string());
            let mut cuts = builder.cuts.lock().unwrap();
            if *cuts > 0 {
                *cuts -= 1;
                (503, json!({"code": 503, "message": "cut"}))
            } else {
                builder.uploads.lock().unwrap().push(body.clone());
                (201, Value::Null)
            }
        }
        "POST /v2/templates/t1/builds/b1" => {
            *builder.start.lock().unwrap() = parsed();
            (202, Value::Null)
        }
        "GET /templates/t1/builds/b1/status" => (200, status_of(&builder, head.uri.query())),
        "DELETE /templates/t1/builds/b1" => {
            *builder.cancelled.lock().unwrap() = true;
            (204, Value::Null)
        }
        line if line.starts_with("GET /templates/t1/files/") => (
            201,
            json!({"present": false, "url": format!("{}/put", builder.url)}),
        ),
        _ => (404, json!({"code": 404, "message": "no such thing"})),
    };
    let text = if value.is_null() {
        String::new()
    } else {
        value.to_string()
    };
    Ok(Response::builder()
        .status(status)
        .body(Full::from(text))
        .unwrap())
}

fn status_of(builder: &Builder, query: Option<&str>) -> Value {
    let offset: usize = query
        .and_then(|query| {
            query
                .split('&')
                .find_map(|part| part.strip_prefix("logsOffset="))
        })
        .and_then(|offset| offset.parse().ok())
        .unwrap_or_default();
    let entry = |message: &str| json!({"timestamp": "2026-01-01T00:00:00Z", "level": "info", "message": message});
    let log = [
        entry("[base] FROM x"),
        entry("[builder 1/1] \x1b[1mRUN\x1b[0m y"),
    ];
    let entries = log.get(offset..).unwrap_or_default();
    match builder.course {
        Course::Ready => json!({"status": "ready", "logEntries": entries}),
        Course::Fails(step) => {
            let message = "failed to run command 'y': exit status 3";
            let error =
                json!({"timestamp": "2026-01-01T00:00:00Z", "level": "error", "message": message});
            let log = [&log[..], &[error]].concat();
            json!({"status": "error", "logEntries": log.get(offset..).unwrap_or_default(),
                "reason": {"message": message, "step": step}})
        }
        Course::Hangs if *builder.cancelled.lock().unwrap() => json!({"status": "error",
            "logEntries": entries, "reason": {"message": "build was cancelled"}}),
        Course::Hangs => json!({"status": "building", "logEntries": entries}),
    }
}

fn soulbox(builder: &Builder, folder: &Path, line: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_soulbox"));
    command
        .arg("template")
        .args(line)
        .current_dir(folder)
        .env_clear()
        .env("SOULBOX_API_URL", &builder.url)
        .env("SOULBOX_API_KEY", "e2b_test")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

async fn output(builder: &Builder, folder: &Path, line: &[&str]) -> Output {
    timeout(LIMIT, soulbox(builder, folder, line).output())
        .await
        .expect("it ends")
        .unwrap()
}

fn context() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| fs::write(folder.path().join(name), content).unwrap();
    file(
        "Dockerfile",
        "FROM x\nUSER u\nWORKDIR /w\nCOPY . .\nRUN y\nCMD [\"serve\"]\n",
    );
    file("app.py", "print(1)\n");
    file(".dockerignore", "secret\nDockerfile\n");
    file("secret", "s3cret");
    folder
}

#[tokio::test]
async fn a_dockerfile_is_sent_with_its_files_and_its_log_is_shown() {
    let (builder, folder) = (builder(Course::Ready, 0).await, context());
    let line = ["build", "-t", "web", "--type", "lite", "--cpu", "2", "."];
    let built = output(&builder, folder.path(), &line).await;
    assert_eq!(built.status.code(), Some(0), "{}", text(&built.stderr));
    assert_eq!(text(&built.stdout), "t1\n");
    let log = text(&built.stderr);
    assert!(
        log.starts_with("[base] FROM x\n[builder 1/1] RUN y\nbuilt web in "),
        "{log}"
    );

    let request = builder.request.lock().unwrap().clone().unwrap();
    assert_eq!(
        request,
        json!({"name": "web", "instanceType": "lite", "cpuCount": 2})
    );
    let start = builder.start.lock().unwrap().clone().unwrap();
    assert_eq!(start["startCmd"], "serve");
    assert_eq!(start["readyCmd"], "sleep 20");
    assert_eq!(start["steps"][4]["args"], json!([".", ".", "root", ""]));
    let uploads = builder.uploads.lock().unwrap();
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(&uploads[0][..]));
    let names: Vec<String> = archive
        .entries()
        .unwrap()
        .map(|entry| entry.unwrap().path().unwrap().display().to_string())
        .collect();
    assert_eq!(names, [".dockerignore", "app.py"]);
}

#[tokio::test]
async fn an_upload_that_is_cut_off_is_tried_again() {
    let (builder, folder) = (builder(Course::Ready, 2).await, context());
    let built = output(&builder, folder.path(), &["build", "-q", "-t", "web"]).await;
    assert_eq!(built.status.code(), Some(0), "{}", text(&built.stderr));
    assert_eq!(builder.uploads.lock().unwrap().len(), 1);
    assert_eq!(text(&built.stderr).matches("trying again").count(), 2);
}

#[tokio::test]
async fn a_failed_step_is_told_with_its_line() {
    let (builder, folder) = (builder(Course::Fails("6"), 0).await, context());
    let built = output(&builder, folder.path(), &["build", "-t", "web"]).await;
    assert_eq!(built.status.code(), Some(1));
    let told = text(&built.stderr);
    assert!(
        told.contains(
            "./Dockerfile, line 5: RUN failed: failed to run command 'y': exit status 3\n\
             hint: line 5 is: RUN y"
        ),
        "{told}"
    );
    assert_eq!(told.matches("exit status 3").count(), 1, "{told}");
}

#[tokio::test]
async fn what_cannot_be_built_is_refused_before_the_server_hears_of_it() {
    let (builder, folder) = (builder(Course::Ready, 0).await, context());
    for (dockerfile, part) in [
        ("FROM x\nONBUILD RUN y\n", "line 2: ONBUILD"),
        ("FROM x\n\nCOPY nope /\n", "line 3: there is no nope"),
        ("FROM x\nCOPY secret /\n", "left out by .dockerignore"),
    ] {
        fs::write(folder.path().join("Dockerfile"), dockerfile).unwrap();
        let built = output(&builder, folder.path(), &["build", "-t", "web"]).await;
        assert_eq!(built.status.code(), Some(1));
        assert!(
            text(&built.stderr).contains(part),
            "{}",
            text(&built.stderr)
        );
    }
    assert!(builder.request.lock().unwrap().is_none());
}

/// Starts a build that hangs, interrupts it, and returns the exit code.
async fn interrupted(builder: &Builder, line: &[&str]) -> Option<i32> {
    let folder = context();
    let mut child = soulbox(builder, folder.path(), line).spawn().unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let mut seen = [0; 13];
    timeout(LIMIT, stderr.read_exact(&mut seen))
        .await
        .expect("it builds")
        .unwrap();
    assert_eq!(&seen, b"[base] FROM x");
    let pid = child.id().unwrap().to_string();
    std::process::Command::new("kill")
        .args(["-INT", &pid])
        .status()
        .unwrap();
    let status = timeout(LIMIT, child.wait()).await.expect("it ends");
    status.unwrap().code()
}

#[tokio::test]
async fn an_interrupt_cancels_the_build() {
    let builder = builder(Course::Hangs, 0).await;
    let code = interrupted(&builder, &["build", "-t", "web"]).await;
    assert_eq!(code, Some(130));
    assert!(*builder.cancelled.lock().unwrap());
}

#[tokio::test]
async fn an_interrupt_leaves_the_build_of_a_builtin_alone() {
    let builder = builder(Course::Hangs, 0).await;
    let code = interrupted(&builder, &["build", "--builtin", "agent"]).await;
    assert_eq!(code, Some(130));
    assert!(!*builder.cancelled.lock().unwrap());
}

#[tokio::test]
async fn images_tar_files_hosts_and_builtins_need_no_dockerfile() {
    let (builder, folder) = (builder(Course::Ready, 0).await, context());
    let start = || builder.start.lock().unwrap().take().unwrap();
    for line in [
        vec!["from-image", "debian:12", "-t", "x", "--run", "a"],
        vec!["from-host", "-t", "x", "--start", "s", "--ready", "r"],
        vec!["from-tar", "app.py", "-t", "x"],
    ] {
        let built = output(&builder, folder.path(), &line).await;
        assert_eq!(built.status.code(), Some(0), "{}", text(&built.stderr));
        match line[0] {
            "from-image" => {
                let sent = start();
                assert_eq!(sent["fromImage"], "debian:12");
                assert_eq!(
                    sent["steps"],
                    json!([{"type": "RUN", "args": ["a", "root"]}])
                );
            }
            "from-host" => {
                let sent = start();
                assert_eq!(
                    (&sent["fromTemplate"], &sent["readyCmd"]),
                    (&json!("base"), &json!("r"))
                );
            }
            _ => {
                assert_eq!(start()["fromArchive"].as_str().unwrap().len(), 64);
                assert_eq!(&builder.uploads.lock().unwrap()[0][..], b"print(1)\n");
            }
        }
    }
    let line = ["build", "--builtin", "agent", "--json"];
    let built = output(&builder, folder.path(), &line).await;
    let outcome: Value = serde_json::from_slice(&built.stdout).unwrap();
    assert_eq!(
        (&outcome["buildID"], &outcome["status"]),
        (&json!("b1"), &json!("ready"))
    );
}

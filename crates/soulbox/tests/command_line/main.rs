//! The real program against a peer on loopback that speaks E2B's wire formats: what it prints,
//! what it exits with, and that it cleans up behind itself.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking; the lint knows only #[test] functions"
)]

use std::{
    process::{Output, Stdio},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    process::Command,
    time::timeout,
};

use peer::{Peer, Script};

mod peer;
mod templates;
mod terminal;

const LIMIT: Duration = Duration::from_secs(20);

fn soulbox(peer: &Peer, line: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_soulbox"));
    command
        .args(line)
        .env_clear()
        .env("SOULBOX_API_URL", peer.url())
        .env("SOULBOX_API_KEY", "e2b_test")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

async fn output(peer: &Peer, line: &[&str]) -> Output {
    timeout(LIMIT, soulbox(peer, line).output())
        .await
        .expect("it ends")
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test]
async fn run_passes_output_and_exit_code_through_and_leaves_nothing() {
    let peer = Peer::start(Script::Exit {
        stdout: "out",
        stderr: "err",
        code: 42,
    })
    .await;
    let output = output(&peer, &["run", "--", "prog", "-x"]).await;
    assert_eq!(output.status.code(), Some(42));
    assert_eq!(
        (text(&output.stdout), text(&output.stderr)),
        ("out".into(), "err".into())
    );
    assert_eq!(peer.count("DELETE", "/sandboxes/iabc"), 1);
    let started = &peer.bodies("/process.Process/Start")[0];
    assert_eq!(started["process"]["cmd"], "prog");
    assert_eq!(started["process"]["args"], json!(["-x"]));
}

#[tokio::test]
async fn run_ends_the_sandbox_when_it_is_told_to_end() {
    let peer = Peer::start(Script::Hang { stdout: "ready" }).await;
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let mut child = soulbox(&peer, &["run", "--", "sleep", "60"])
            .spawn()
            .unwrap();
        let mut ready = [0; 5];
        let mut stdout = child.stdout.take().unwrap();
        timeout(LIMIT, stdout.read_exact(&mut ready))
            .await
            .expect("it starts")
            .unwrap();
        let pid = child.id().unwrap().to_string();
        std::process::Command::new("kill")
            .args([signal, &pid])
            .status()
            .unwrap();
        let status = timeout(LIMIT, child.wait())
            .await
            .expect("it ends")
            .unwrap();
        assert_eq!(status.code(), Some(code));
    }
    assert_eq!(peer.count("DELETE", "/sandboxes/iabc"), 2);
}

#[tokio::test]
async fn a_kept_sandbox_is_not_killed() {
    let peer = Peer::start(Script::Exit {
        stdout: "",
        stderr: "",
        code: 0,
    })
    .await;
    let output = output(&peer, &["run", "--keep", "--timeout", "1h", "true"]).await;
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stderr).contains("iabc"));
    assert_eq!(peer.count("DELETE", "/sandboxes/iabc"), 0);
}

#[tokio::test]
async fn a_missing_program_is_127_and_still_leaves_nothing() {
    let peer = Peer::start(Script::Refuse {
        code: "invalid_argument",
        message: "error starting process 'nope': No such file or directory (os error 2)",
    })
    .await;
    let output = output(&peer, &["run", "nope"]).await;
    assert_eq!(output.status.code(), Some(127));
    assert!(text(&output.stderr).starts_with("error: nope: no such command"));
    assert_eq!(peer.count("DELETE", "/sandboxes/iabc"), 1);
}

#[tokio::test]
async fn whoever_waits_for_a_template_to_be_built_is_told_so_meanwhile() {
    let peer = Peer::start(Script::TemplateIsBuilt).await;
    let mut child = soulbox(&peer, &["run", "true"]).spawn().unwrap();
    let stderr = child.stderr.take().unwrap();
    let mut lines = BufReader::new(stderr).lines();
    let told = timeout(LIMIT, lines.next_line())
        .await
        .expect("it says something")
        .unwrap()
        .unwrap();
    assert!(told.contains("base is being built"), "{told}");
    assert!(told.contains("soulbox template logs -f base"), "{told}");
}

#[tokio::test]
async fn a_line_for_a_shell_is_127_with_what_to_write() {
    let peer = Peer::start(Script::Refuse {
        code: "invalid_argument",
        message: "error starting process 'ls | wc': No such file or directory (os error 2)",
    })
    .await;
    for line in [&["run", "ls | wc"][..], &["exec", "iabc", "ls | wc"]] {
        let output = output(&peer, line).await;
        assert_eq!(output.status.code(), Some(127));
        let told = text(&output.stderr);
        assert!(
            told.starts_with("error: ls | wc: no such command"),
            "{told}"
        );
        assert!(told.contains("--shell 'ls | wc'"), "{told}");
    }
}

#[tokio::test]
async fn a_sandbox_that_dies_under_the_command_is_125() {
    let peer = Peer::start(Script::Cut).await;
    let output = output(&peer, &["run", "true"]).await;
    assert_eq!(output.status.code(), Some(125));
    let told = text(&output.stderr);
    assert!(
        told.contains("error: ") && told.contains("hint: "),
        "{told}"
    );
}

#[tokio::test]
async fn a_command_past_its_time_is_124() {
    let peer = Peer::start(Script::Late).await;
    let output = output(&peer, &["exec", "iabc", "--timeout", "1", "true"]).await;
    assert_eq!(output.status.code(), Some(124));
}

#[tokio::test]
async fn piped_input_reaches_the_command_and_is_closed() {
    let peer = Peer::start(Script::UntilStdinCloses).await;
    let mut command = soulbox(&peer, &["exec", "iabc", "cat"]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut stdin, b"hello")
        .await
        .unwrap();
    drop(stdin);
    let output = timeout(LIMIT, child.wait_with_output())
        .await
        .expect("it ends")
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "hello");
}

#[tokio::test]
async fn a_detached_command_prints_its_pid() {
    let peer = Peer::start(Script::Hang { stdout: "" }).await;
    let output = output(&peer, &["exec", "iabc", "-d", "sleep", "60"]).await;
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stdout), "7\n");
}

#[tokio::test]
async fn ids_may_be_shortened_while_they_are_unique() {
    let peer = Peer::start(Script::Cut).await;
    let killed = output(&peer, &["kill", "iab"]).await;
    assert_eq!(
        (killed.status.code(), text(&killed.stdout)),
        (Some(0), "iabc\n".into())
    );
    let ambiguous = output(&peer, &["kill", "i"]).await;
    assert_eq!(ambiguous.status.code(), Some(1));
    assert!(text(&ambiguous.stderr).contains("2 ids begin with i: iabc, ixyz"));
}

#[tokio::test]
async fn whoever_moves_the_end_of_a_sandbox_is_told_where_it_is_now() {
    let peer = Peer::start(Script::Cut).await;
    for (line, stdout) in [
        (["timeout", "iabc", "99h"].as_slice(), ""),
        (["resume", "iabc"].as_slice(), "iabc\n"),
    ] {
        let done = output(&peer, line).await;
        assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
        assert_eq!(text(&done.stdout), stdout);
        let told = text(&done.stderr);
        assert!(
            told.contains("sandbox iabc ends") && told.contains("2026-01-01 00:05:00 UTC"),
            "{told}"
        );
    }
}

#[tokio::test]
async fn listings_are_tables_for_people_and_json_for_programs() {
    let peer = Peer::start(Script::Cut).await;
    let table = text(&output(&peer, &["ls"]).await.stdout);
    assert!(table.starts_with("SANDBOX"), "{table}");
    assert!(!table.contains('\x1b'), "no colours without a terminal");
    let json: Value =
        serde_json::from_slice(&output(&peer, &["ls", "--json"]).await.stdout).unwrap();
    assert_eq!(json[0]["sandboxID"], "iabc");
    assert_eq!(
        text(&output(&peer, &["ls", "-q"]).await.stdout),
        "iabc\nixyz\n"
    );
}

#[tokio::test]
async fn mistakes_in_the_command_line_are_2() {
    let peer = Peer::start(Script::Cut).await;
    assert_eq!(output(&peer, &["run"]).await.status.code(), Some(2));
    assert_eq!(output(&peer, &["dance"]).await.status.code(), Some(2));
    let mistyped = output(&peer, &["run", "--memroy", "1g", "--", "true"]).await;
    assert_eq!(mistyped.status.code(), Some(2));
    let told = text(&mistyped.stderr);
    assert!(told.contains("--memory"), "{told}");
    assert_eq!(peer.count("POST", "/v2/sandboxes"), 0);
}

#[tokio::test]
async fn without_a_server_the_hint_says_how_to_start_one() {
    let peer = Peer::start(Script::Cut).await;
    let mut command = soulbox(&peer, &["run", "true"]);
    // A port that nobody may listen on.
    let output = command
        .env("SOULBOX_API_URL", "http://127.0.0.1:1")
        .output()
        .await
        .unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("soulbox serve"));
}

#[tokio::test]
async fn names_are_not_said_to_be_answered_on_a_port_that_is_taken() {
    let peer = Peer::start(Script::Cut).await;
    let address = peer.url().trim_start_matches("http://");
    let refused = output(&peer, &["dns", "--listen", address]).await;
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(text(&refused.stdout), "");
    let told = text(&refused.stderr);
    assert!(told.contains("choose another address"), "{told}");
}

#[tokio::test]
async fn files_are_copied_in_and_out() {
    let peer = Peer::start(Script::Cut).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.txt");
    std::fs::write(&file, "content").unwrap();
    let copied = output(&peer, &["cp", file.to_str().unwrap(), "iabc:/tmp/"]).await;
    assert_eq!(copied.status.code(), Some(0), "{}", text(&copied.stderr));
    assert_eq!(peer.count("POST", "/files?path=%2Ftmp%2Fa%2Etxt"), 1);

    let habit = output(&peer, &["cp", "-r", file.to_str().unwrap(), "iabc:/tmp/"]).await;
    assert_eq!(habit.status.code(), Some(0), "{}", text(&habit.stderr));

    let back = output(&peer, &["cp", "iabc:/tmp/a.txt", "-"]).await;
    assert_eq!(text(&back.stdout), "stored");
}

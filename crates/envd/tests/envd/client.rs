//! The host's client against the real envd.

use std::{
    collections::BTreeMap,
    fs,
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use soulbox_envd_client::{
    CommandSpec, CopyRequest, Dial, EnvdClient, Error, InitUpdate, OutputStream, ProcessExit,
};
use soulbox_runtime::DynStream;
use soulbox_types::Secret;
use tokio::{
    io::{AsyncRead, AsyncReadExt, ReadBuf},
    net::TcpStream,
};

use crate::support::{Envd, NODE_TOKEN, eventually};

const LIMIT: Duration = Duration::from_secs(20);

struct Loopback(u16);

#[async_trait]
impl Dial for Loopback {
    async fn dial(&self, _: u16) -> soulbox_runtime::Result<DynStream> {
        let stream = TcpStream::connect(("127.0.0.1", self.0)).await;
        match stream {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => Err(soulbox_runtime::Error::io("dialling", error)),
        }
    }
}

fn client(envd: &Envd, token: Option<&str>) -> EnvdClient {
    EnvdClient::with_tokens(
        Arc::new(Loopback(envd.port)),
        Secret::new(NODE_TOKEN),
        token.map(Secret::new),
    )
}

fn with_client<T>(test: impl AsyncFnOnce(&Envd, EnvdClient) -> T) -> T {
    let envd = Envd::with_token(Some("secret"));
    let client = client(&envd, Some("secret"));
    tokio::runtime::Runtime::new()
        .unwrap()
        .block_on(test(&envd, client))
}

fn shell(script: &str) -> CommandSpec {
    CommandSpec {
        program: "/bin/bash".into(),
        args: vec!["-c".into(), script.into()],
        user: "root".into(),
        ..CommandSpec::default()
    }
}

async fn run(
    client: &EnvdClient,
    command: &CommandSpec,
) -> (Result<ProcessExit, Error>, String, String) {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let mut output = |stream, bytes: &[u8]| match stream {
        OutputStream::Stdout => stdout.extend_from_slice(bytes),
        OutputStream::Stderr => stderr.extend_from_slice(bytes),
    };
    let exit = client.run(command, &mut output, LIMIT).await;
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (exit, text(stdout), text(stderr))
}

fn is_running(marker: &str) -> bool {
    fs::read_dir("/proc").unwrap().any(|process| {
        let command = fs::read(process.unwrap().path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&command).contains(marker)
    })
}

#[test]
fn a_command_runs_as_its_user_and_its_output_and_end_are_told() {
    with_client(async |_, client| {
        let mut command = shell("id -un; pwd; echo $MINE; echo oops >&2; exit 3");
        command.user = "daemon".into();
        command.cwd = Some("/usr".into());
        command.env = BTreeMap::from([("MINE".into(), "yes".into())]);
        let (exit, stdout, stderr) = run(&client, &command).await;
        assert_eq!(exit.unwrap(), ProcessExit::Code(3));
        assert_eq!(
            (stdout.as_str(), stderr.as_str()),
            ("daemon\n/usr\nyes\n", "oops\n")
        );
        let (exit, ..) = run(&client, &shell("kill -9 $$")).await;
        assert_eq!(exit.unwrap().to_string(), "signal: killed");
        let (exit, stdout, _) =
            run(&client, &shell("head -c 5000000 /dev/zero | tr '\\0' x")).await;
        assert!(exit.unwrap().is_success());
        assert_eq!(stdout.len(), 5_000_000);
    });
}

#[test]
fn an_unknown_user_is_refused_in_envds_words() {
    with_client(async |_, client| {
        let command = CommandSpec::login_shell("whoami", "root123");
        let (exit, ..) = run(&client, &command).await;
        let error = exit.unwrap_err();
        assert_eq!(error.code(), Some("unauthenticated"));
        assert_eq!(
            error.to_string(),
            "unauthenticated: invalid username: 'root123'"
        );
    });
}

#[test]
fn a_program_that_is_not_there_is_refused() {
    with_client(async |_, client| {
        let mut command = shell("");
        command.program = "/not/there".into();
        let (exit, ..) = run(&client, &command).await;
        assert_eq!(exit.unwrap_err().code(), Some("invalid_argument"));
    });
}

#[test]
fn a_wrong_token_is_refused_and_a_closed_port_is_unreachable() {
    let envd = Envd::with_token(Some("secret"));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        for token in [None, Some("wrong")] {
            let (exit, ..) = run(&client(&envd, token), &shell("true")).await;
            assert_eq!(exit.unwrap_err().code(), Some("unauthenticated"));
        }
        let nobody = EnvdClient::with_tokens(Arc::new(Loopback(1)), Secret::new("x"), None);
        let (exit, ..) = run(&nobody, &shell("true")).await;
        assert!(matches!(exit, Err(Error::Unreachable(_))));
    });
}

#[test]
fn a_command_that_takes_too_long_is_ended() {
    with_client(async |envd, client| {
        let marker = format!("{}.77", 100_000 + u32::from(envd.port));
        let command = shell(&format!("sleep {marker}; true"));
        let limit = Duration::from_millis(300);
        let exit = client.run(&command, &mut |_, _| {}, limit).await;
        assert!(matches!(exit, Err(Error::TooSlow { .. })), "{exit:?}");
        eventually("the process is gone", || !is_running(&marker));
    });
}

#[test]
fn dropping_a_run_ends_the_process_at_any_moment() {
    with_client(async |envd, client| {
        let marker = format!("{}.55", 100_000 + u32::from(envd.port));
        let command = shell(&format!("echo up; sleep {marker}; true"));
        for wait in [0, 1, 3, 10, 50, 200] {
            let mut ignore = |_: OutputStream, _: &[u8]| {};
            let run = client.run(&command, &mut ignore, LIMIT);
            let dropped = tokio::time::timeout(Duration::from_millis(wait), run).await;
            assert!(dropped.is_err());
        }
        // The last may be heard of late: until all attempts to end it are over.
        eventually("no process is left", || !is_running(&marker));
        let (exit, ..) = run(&client, &shell("true")).await;
        assert!(exit.unwrap().is_success());
        assert!(!is_running(&marker));
    });
}

#[test]
fn a_started_process_outlives_its_handle_and_tells_its_end() {
    with_client(async |envd, client| {
        let marker = format!("{}.33", 100_000 + u32::from(envd.port));
        let command = shell(&format!("echo hello; sleep {marker}; true"));
        let process = client.start(&command).await.unwrap();
        assert!(process.pid() > 0);
        eventually("its output comes", || process.tail() == "hello\n");
        drop(process);
        // Whatever a drop could have done is done once envd has answered again.
        run(&client, &shell("true")).await.0.unwrap();
        assert!(is_running(&marker));

        let script = "head -c 20000 /dev/zero | tr '\\0' x; echo end >&2; exit 7";
        let mut process = client.start(&shell(script)).await.unwrap();
        assert_eq!(process.exited().await.unwrap(), ProcessExit::Code(7));
        assert_eq!(process.exited().await.unwrap(), ProcessExit::Code(7));
        let tail = process.tail();
        assert_eq!(tail.len(), 8 << 10);
        assert!(tail.ends_with("end\n") || tail.contains("xend\n"), "{tail}");
    });
}

#[test]
fn a_process_whose_sandbox_ends_is_cut_off() {
    let envd = Envd::with_token(Some("secret"));
    let client = client(&envd, Some("secret"));
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let mut process = client.start(&shell("sleep 100")).await.unwrap();
        let pid = rustix::process::Pid::from_raw(envd.pid().cast_signed()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        for _ in 0..2 {
            let exit = process.exited().await;
            assert!(matches!(exit, Err(Error::CutOff { .. })), "{exit:?}");
        }
        let _ = rustix::process::kill_process_group(
            rustix::process::Pid::from_raw(process.pid().cast_signed()).unwrap(),
            rustix::process::Signal::KILL,
        );
    });
}

#[test]
fn init_changes_what_later_processes_get() {
    with_client(async |envd, before| {
        let update = InitUpdate {
            access_token: Some(Secret::new("new")),
            env: Some(BTreeMap::from([("CALLER".into(), "1".into())])),
            default_user: Some("daemon".into()),
            default_workdir: Some("/usr".into()),
            sandbox_id: Some("claimed".into()),
            cpu_count: Some(7),
            ..InitUpdate::default()
        };
        before.init(&update).await.unwrap();
        let (exit, ..) = run(&before, &shell("true")).await;
        assert_eq!(exit.unwrap_err().code(), Some("unauthenticated"));
        let mut command = shell("echo $CALLER $FROM_TEMPLATE $E2B_SANDBOX_ID $(id -un) $PWD");
        command.user = String::new();
        let (_, stdout, _) = run(&client(envd, Some("new")), &command).await;
        assert_eq!(stdout, "1 claimed daemon /usr\n");
    });
}

async fn archive(directory: &std::path::Path) -> Vec<u8> {
    let output = tokio::task::spawn_blocking({
        let directory = directory.to_owned();
        move || {
            let mut tar = std::process::Command::new("tar");
            tar.arg("-C").arg(directory).args(["-cf", "-", "."]);
            tar.output().unwrap()
        }
    });
    output.await.unwrap().stdout
}

#[test]
fn files_go_in_and_come_out_again() {
    with_client(async |envd, client| {
        let source = tempfile::tempdir().unwrap();
        fs::create_dir(source.path().join("sub")).unwrap();
        fs::write(source.path().join("sub/f"), vec![9; 3 << 20]).unwrap();
        let copy = CopyRequest {
            src: ".".into(),
            dest: "in &+%".into(),
            owner: "daemon:root".into(),
            mode: "0711".into(),
            workdir: envd.home.path().to_str().unwrap().into(),
            ..CopyRequest::default()
        };
        let bytes = archive(source.path()).await;
        client.copy_in(&copy, io::Cursor::new(bytes)).await.unwrap();
        let target = envd.home.path().join("in &+%");
        assert_eq!(fs::read(target.join("sub/f")).unwrap().len(), 3 << 20);

        // Out of one place and into another, as COPY --from does.
        let tree = client.tree(target.to_str().unwrap()).await.unwrap();
        let again = CopyRequest {
            dest: envd.home.path().join("again").to_str().unwrap().into(),
            keep_owners: true,
            ..CopyRequest::default()
        };
        client.copy_in(&again, tree).await.unwrap();
        let listing = "cd \"$1\" && find . -printf '%P %U:%G %m %s\\n' | sort";
        let list = async |directory: &std::path::Path| {
            let mut command = shell(listing);
            command
                .args
                .extend(["bash".into(), directory.to_str().unwrap().into()]);
            run(&client, &command).await.1
        };
        let first = list(&target).await;
        assert_eq!(first, list(&envd.home.path().join("again")).await);
        assert!(first.contains("sub/f 1:0 711 3145728\n"), "{first}");
    });
}

#[test]
fn refused_copies_and_trees_tell_why() {
    with_client(async |envd, client| {
        let source = tempfile::tempdir().unwrap();
        let copy = CopyRequest {
            src: "not-there".into(),
            dest: envd.home.path().join("x").to_str().unwrap().into(),
            ..CopyRequest::default()
        };
        let bytes = archive(source.path()).await;
        let refused = client.copy_in(&copy, io::Cursor::new(bytes)).await;
        let Err(Error::Refused { code, message }) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(code, "invalid_argument");
        assert!(message.starts_with("failed to move files in sandbox: source 'not-there'"));

        // More than envd takes before it answers: the answer must come through all the same.
        let huge = io::Cursor::new(vec![b'x'; 8 << 20]);
        let refused = client.copy_in(&copy, huge).await;
        assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");

        let missing = client.tree("/not/there").await;
        assert_eq!(missing.unwrap_err().code(), Some("not_found"));
    });
}

/// Fails after a while.
struct Broken(usize);

impl AsyncRead for Broken {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.0 == 0 {
            return Poll::Ready(Err(io::Error::other("the file is gone")));
        }
        self.0 -= 1;
        buffer.put_slice(&[0]);
        Poll::Ready(Ok(()))
    }
}

#[test]
fn an_archive_that_cannot_be_read_here_is_our_own_error() {
    with_client(async |envd, client| {
        let copy = CopyRequest {
            dest: envd.home.path().join("x").to_str().unwrap().into(),
            ..CopyRequest::default()
        };
        let copied = client.copy_in(&copy, Broken(300)).await;
        assert!(matches!(copied, Err(Error::Archive(_))), "{copied:?}");
    });
}

#[test]
fn a_dropped_copy_and_a_dropped_tree_leave_nothing() {
    with_client(async |envd, client| {
        let home = envd.home.path().to_owned();
        let scratches = || {
            fs::read_dir(&home)
                .unwrap()
                .filter(|entry| {
                    let name = entry.as_ref().unwrap().file_name();
                    name.to_string_lossy().starts_with(".soulbox-copy")
                })
                .count()
        };
        let copy = CopyRequest {
            dest: home.join("x").to_str().unwrap().into(),
            ..CopyRequest::default()
        };
        let (reader, mut writer) = tokio::io::duplex(64);
        {
            let copied = client.copy_in(&copy, reader);
            tokio::pin!(copied);
            let since = Instant::now();
            tokio::io::AsyncWriteExt::write_all(&mut writer, b"abc")
                .await
                .unwrap();
            while scratches() == 0 {
                assert!(since.elapsed() < LIMIT);
                let waited = tokio::time::timeout(Duration::from_millis(10), &mut copied).await;
                assert!(waited.is_err());
            }
        }
        eventually("the scratch goes", || scratches() == 0);

        let mut tree = client.tree("/usr/bin").await.unwrap();
        tree.read_exact(&mut [0; 1024]).await.unwrap();
        drop(tree);
    });
}

fn _is_send(client: &EnvdClient, command: &CommandSpec) -> impl Future + Send {
    let client = client.clone();
    let command = command.clone();
    async move { client.run(&command, &mut |_, _| {}, LIMIT).await }
}

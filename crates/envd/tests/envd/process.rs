//! `process.Process`.

use std::time::{Duration, Instant};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::support::{Envd, envelope, eventually, shell};

fn is_alive(pid: u64) -> bool {
    std::path::Path::new(&format!("/proc/{pid}")).exists()
}

fn connect(pid: u64) -> Value {
    json!({ "process": { "pid": pid } })
}

#[test]
fn output_streams_and_the_exit_code_arrive() {
    let envd = Envd::start();
    let (pid, stream) = envd.start_process(&shell("echo out; echo err >&2; exit 3"));
    let finished = stream.finish();
    assert_eq!(
        (finished.stdout.as_slice(), finished.stderr.as_slice()),
        (&b"out\n"[..], &b"err\n"[..])
    );
    assert_eq!(
        finished.end,
        json!({ "exitCode": 3, "exited": true, "status": "exit status 3", "error": "exit status 3" })
    );
    assert!(finished.error.is_null());
    eventually("the child is reaped", || !is_alive(pid));
}

#[test]
fn success_leaves_out_defaults() {
    let envd = Envd::start();
    let (_, stream) = envd.start_process(&shell("true"));
    assert_eq!(
        stream.finish().end,
        json!({ "exited": true, "status": "exit status 0" })
    );
}

#[test]
fn a_process_sees_its_environment_and_only_its_own_descriptors() {
    let envd = Envd::start();
    let mut start =
        shell("env; ls /proc/self/fd | tr '\\n' ,; cat /proc/self/oom_score_adj; umask");
    start["process"]["envs"] = json!({ "ASKED": "for", "FROM_TEMPLATE": "overridden" });
    let (_, stream) = envd.start_process(&start);
    let output = stream.finish().stdout();
    for expected in [
        "ASKED=for\n",
        "FROM_TEMPLATE=overridden\n",
        "E2B_SANDBOX=true\n",
        "HOME=/root\n",
        "USER=root\n",
    ] {
        assert!(output.contains(expected), "{expected} in {output}");
    }
    assert!(!output.contains("LEAK"), "{output}");
    assert!(
        output.contains("0,1,2,3,"),
        "ls itself has 3 open: {output}"
    );
    assert!(!output.contains(",4,"), "{output}");
    assert!(output.contains("100\n0022\n"), "{output}");
}

#[test]
fn errors_before_the_start_come_at_the_end_of_the_stream() {
    let envd = Envd::start();
    let error = |headers: &[(&str, &str)], message: &Value| {
        envd.stream("process.Process/Start", headers, message)
            .finish()
            .error
    };
    let user = format!("Basic {}", STANDARD.encode("nobody-here:"));
    let unknown = error(&[("Authorization", &user)], &shell("true"));
    assert_eq!(unknown["code"], "unauthenticated");
    assert_eq!(unknown["message"], "invalid username: 'nobody-here'");

    let mut start = shell("true");
    start["process"]["cwd"] = json!("/no/such/directory");
    assert_eq!(
        error(&[], &start)["message"],
        "cwd '/no/such/directory' does not exist"
    );
    assert_eq!(error(&[], &start)["code"], "invalid_argument");

    let missing = json!({ "process": { "cmd": "/no/such/program" } });
    assert_eq!(error(&[], &missing)["code"], "invalid_argument");
    assert_eq!(
        error(&[("Connect-Timeout-Ms", "soon")], &shell("true"))["code"],
        "invalid_argument"
    );
}

#[test]
fn another_user_gets_its_own_rights_and_home() {
    let envd = Envd::start();
    let user = format!("Basic {}", STANDARD.encode("daemon:"));
    let mut start = shell("id -u; id -g; echo $HOME; cat /etc/shadow || echo denied");
    start["process"]["cwd"] = json!("/");
    let (_, stream) = envd.start_process_with(&[("Authorization", &user)], &start);
    assert_eq!(stream.finish().stdout(), "1\n1\n/usr/sbin\ndenied\n");
}

#[test]
fn leaving_does_not_kill_and_connecting_replays_only_when_asked() {
    let envd = Envd::start();
    let mut start = shell("echo early; read line; echo late");
    start["stdin"] = json!(true);
    let (pid, mut stream) = envd.start_process(&start);
    stream.wait_for("early\n");
    stream.hang_up();

    let mut plain = envd.stream("process.Process/Connect", &[], &connect(pid));
    assert_eq!(plain.next().unwrap()["event"]["start"]["pid"], pid);
    let replay = [("Soulbox-Replay", "true")];
    let mut replayed = envd.stream("process.Process/Connect", &replay, &connect(pid));
    replayed.wait_for("early\n");

    let input = json!({ "process": { "pid": pid }, "input": { "stdin": STANDARD.encode("go\n") } });
    assert_eq!(envd.call("process.Process/SendInput", &input).0, 200);
    assert_eq!(plain.finish().stdout(), "late\n");
    assert_eq!(replayed.finish().stdout(), "late\n");

    let ended = envd
        .stream("process.Process/Connect", &[], &connect(pid))
        .finish();
    assert_eq!(
        (ended.stdout(), &ended.end["exited"]),
        (String::new(), &json!(true))
    );
    let again = envd
        .stream("process.Process/Connect", &replay, &connect(pid))
        .finish();
    assert_eq!(again.stdout(), "early\nlate\n");
}

#[test]
fn tags_select_processes_too() {
    let envd = Envd::start();
    let mut start = shell("sleep 100");
    start["tag"] = json!("mine");
    let (pid, stream) = envd.start_process(&start);
    let (_, list) = envd.call("process.Process/List", &json!({}));
    let listed = &list["processes"][0];
    assert_eq!(
        (&listed["pid"], &listed["tag"]),
        (&json!(pid), &json!("mine"))
    );
    assert_eq!(listed["config"]["args"], json!(["-c", "sleep 100"]));
    let kill = json!({ "process": { "tag": "mine" }, "signal": 9 });
    assert_eq!(envd.call("process.Process/SendSignal", &kill).0, 200);
    assert_eq!(stream.finish().end["status"], "signal: killed");
    let (status, error) = envd.call("process.Process/SendSignal", &kill);
    assert_eq!(
        (status, &error["message"]),
        (404, &json!("process with tag mine not found"))
    );
}

#[test]
fn a_hangup_reaches_the_whole_group_and_other_numbers_are_refused() {
    let envd = Envd::start();
    let (pid, mut stream) = envd.start_process(&shell("sleep 1000 & echo begun; wait"));
    stream.wait_for("begun\n");
    let send = |number: i32| {
        let message = json!({ "process": { "pid": pid }, "signal": number });
        envd.call("process.Process/SendSignal", &message).0
    };
    for refused in [0, 4, 11, 19, 64, -1] {
        assert_eq!(send(refused), 501, "{refused}");
    }
    assert_eq!(send(1), 200);
    // Its output is complete only when the child is gone too.
    assert_eq!(stream.finish().end["status"], "signal: hangup");
}

#[test]
fn an_sftp_server_is_there_for_whoever_asks() {
    let envd = Envd::start();
    let message = json!({ "process": { "cmd": "soulbox:sftp-server" }, "stdin": true });
    let (pid, mut stream) = envd.start_process(&message);
    // INIT, version 3.
    let hello = json!({ "process": { "pid": pid }, "input": { "stdin": "AAAABQEAAAAD" } });
    assert_eq!(envd.call("process.Process/SendInput", &hello).0, 200);
    stream.wait_for("posix-rename@openssh.com");
    let process = json!({ "process": { "pid": pid } });
    assert_eq!(envd.call("process.Process/CloseStdin", &process).0, 200);
    assert_eq!(stream.finish().end["status"], "exit status 0");
}

#[test]
fn killing_takes_the_whole_group_and_is_seen_at_once() {
    let envd = Envd::start();
    let (pid, mut stream) = envd.start_process(&shell("sleep 1000 & echo child $!; wait"));
    let child: u64 = stream
        .wait_for("\n")
        .trim()
        .rsplit(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert_eq!(envd.signal(pid, "SIGNAL_SIGKILL").0, 200);
    let end = stream.finish().end;
    assert_eq!(
        (&end["exitCode"], &end["status"]),
        (&json!(-1), &json!("signal: killed"))
    );
    assert!(!is_alive(pid), "gone when the kill is answered");
    eventually("its child is gone", || !is_alive(child));
    let (status, error) = envd.signal(999_999, "SIGNAL_SIGKILL");
    assert_eq!((status, &error["code"]), (404, &json!("not_found")));
    assert_eq!(error["message"], "process with pid 999999 not found");
}

/// util-linux' `setsid` forks when its caller leads a group, and then ends at once with 0.
#[test]
fn a_command_leads_no_group_so_that_setsid_keeps_its_exit_code() {
    let envd = Envd::start();
    let (_, stream) = envd.start_process(&shell("setsid sh -c 'echo in a session; exit 5'"));
    let finished = stream.finish();
    assert_eq!(finished.end["exitCode"], 5);
    assert_eq!(finished.stdout(), "in a session\n");

    // A shell's own number, its group and its session.
    let fields = "exec awk '{ print $1 == $5, $5 == $6, $6 }' /proc/self/stat";
    let (_, stream) = envd.start_process(&shell(fields));
    let first = stream.finish().stdout();
    let (_, stream) = envd.start_process(&shell(fields));
    assert_eq!(first, stream.finish().stdout(), "the same session");
    assert!(first.starts_with("0 0 "), "leads nothing: {first}");
}

#[test]
fn what_a_command_sends_to_its_group_reaches_no_other_command() {
    let envd = Envd::start();
    let (other, mut stream) = envd.start_process(&shell("echo ready; sleep 1000"));
    stream.wait_for("ready\n");
    let (_, suicide) = envd.start_process(&shell("kill -9 0"));
    assert_eq!(suicide.finish().end["status"], "signal: killed");
    assert!(is_alive(other));
    assert_eq!(envd.signal(other, "SIGNAL_SIGKILL").0, 200);
}

#[test]
fn killing_takes_a_session_that_the_command_has_made() {
    let envd = Envd::start();
    let script = "exec setsid sh -c 'sleep 1000 & echo $!; wait'";
    let (pid, mut stream) = envd.start_process(&shell(script));
    let child: u64 = stream.wait_for("\n").trim().parse().unwrap();
    assert_eq!(envd.signal(pid, "SIGNAL_SIGKILL").0, 200);
    assert_eq!(stream.finish().end["status"], "signal: killed");
    eventually("its child is gone", || !is_alive(child));
}

#[test]
fn the_deadline_kills_and_ends_the_stream() {
    let envd = Envd::start();
    let since = Instant::now();
    let (pid, stream) =
        envd.start_process_with(&[("Connect-Timeout-Ms", "300")], &shell("sleep 1000 | cat"));
    assert_eq!(stream.finish().error["code"], "deadline_exceeded");
    assert!(since.elapsed() < Duration::from_secs(10));
    eventually("the process is gone", || !is_alive(pid));
}

#[test]
fn a_child_that_keeps_the_output_open_keeps_the_stream_open_until_killed() {
    let envd = Envd::start();
    let script = "setsid sleep 1000 & echo $!; exit 0";
    let (pid, mut stream) = envd.start_process(&shell(script));
    let child: u64 = stream.wait_for("\n").trim().parse().unwrap();
    eventually("the shell is gone", || !is_alive(pid));
    let (_, list) = envd.call("process.Process/List", &json!({}));
    assert_eq!(
        list["processes"][0]["pid"], pid,
        "still there: its output is not complete"
    );
    assert_eq!(envd.signal(pid, "SIGNAL_SIGKILL").0, 200);
    assert_eq!(stream.finish().end["status"], "exit status 0");
    let _ = std::process::Command::new("kill")
        .args(["-9", &child.to_string()])
        .status();
}

#[test]
fn nobody_listening_does_not_block_a_process() {
    let envd = Envd::start();
    let (pid, stream) = envd.start_process(&shell(
        "head -c 20000000 /dev/zero; echo end > marker; exit 7",
    ));
    stream.hang_up();
    eventually("it wrote everything", || {
        envd.home.path().join("marker").exists()
    });
    let ended = envd
        .stream("process.Process/Connect", &[], &connect(pid))
        .finish();
    assert_eq!(ended.end["exitCode"], 7);
}

#[test]
fn a_stalled_reader_does_not_hold_up_the_others() {
    let envd = Envd::start();
    let mut start = shell("read go; head -c 30000000 /dev/zero; echo done");
    start["stdin"] = json!(true);
    let (pid, reader) = envd.start_process(&start);
    let stalled = envd.stream("process.Process/Connect", &[], &connect(pid));
    let input = json!({ "process": { "pid": pid }, "input": { "stdin": STANDARD.encode("go\n") } });
    assert_eq!(envd.call("process.Process/SendInput", &input).0, 200);
    let finished = reader.finish();
    assert_eq!(finished.stdout.len(), 30_000_005);
    assert_eq!(finished.end["exited"], true);
    assert_eq!(stalled.finish().error["code"], "resource_exhausted");
}

#[test]
fn a_single_slow_reader_gets_every_byte() {
    let envd = Envd::start();
    let script = "for i in $(seq 200000); do echo line $i; done | sha256sum >&2; \
                  for i in $(seq 200000); do echo line $i; done";
    let (_, stream) = envd.start_process(&shell(script));
    let finished = stream.finish();
    assert!(finished.stdout().ends_with("line 200000\n"));
    assert_eq!(finished.stdout().lines().count(), 200_000);
}

#[test]
fn input_reaches_the_process_until_it_is_closed() {
    let envd = Envd::start();
    let (pid, stream) = envd.start_process(&json!({ "process": { "cmd": "cat" } }));
    let text = "é".repeat(300_000);
    let input = json!({ "process": { "pid": pid }, "input": { "stdin": STANDARD.encode(&text) } });
    let reading = std::thread::spawn(move || stream.finish());
    assert_eq!(envd.call("process.Process/SendInput", &input).0, 200);
    assert_eq!(
        envd.call("process.Process/CloseStdin", &connect(pid)).0,
        200
    );
    assert_eq!(reading.join().unwrap().stdout(), text);
}

#[test]
fn input_that_cannot_be_taken_is_refused() {
    let envd = Envd::start();
    let (pid, _stream) = envd.start_process(&shell("sleep 100"));
    let send = |input: Value| {
        envd.call(
            "process.Process/SendInput",
            &json!({ "process": { "pid": pid }, "input": input }),
        )
    };
    assert_eq!(send(json!({ "stdin": "eA==" })).1["code"], "internal");
    assert_eq!(send(json!({ "pty": "eA==" })).1["code"], "internal");
    assert_eq!(send(json!({})).1["code"], "unimplemented");
    assert_eq!(
        envd.signal(pid, "SIGNAL_UNSPECIFIED").1["code"],
        "unimplemented"
    );
    for _ in 0..2 {
        let closed = envd.call("process.Process/CloseStdin", &connect(pid));
        assert_eq!(closed.0, 200, "closing is fine, also twice");
    }
    envd.signal(pid, "SIGNAL_SIGTERM");
}

#[test]
fn a_stream_of_input_keeps_its_order() {
    let envd = Envd::start();
    let (pid, stream) = envd.start_process(&json!({ "process": { "cmd": "cat" } }));
    let mut body = envelope(json!({ "start": connect(pid) }).to_string().as_bytes());
    for i in 0..500 {
        let data = json!({ "data": { "input": { "stdin": STANDARD.encode(format!("{i}\n")) } } });
        body.extend(envelope(data.to_string().as_bytes()));
        body.extend(envelope(br#"{"keepalive":{}}"#));
    }
    let headers = [("Content-Type", "application/connect+json")];
    let response = envd.http("POST", "/process.Process/StreamInput", &headers, &body);
    assert_eq!(response.status, 200);
    assert_eq!(
        response.body,
        [&[0, 0, 0, 0, 2], &b"{}"[..], &[2, 0, 0, 0, 2], b"{}"].concat()
    );
    envd.call("process.Process/CloseStdin", &connect(pid));
    let expected: String = (0..500).fold(String::new(), |text, i| format!("{text}{i}\n"));
    assert_eq!(stream.finish().stdout(), expected);
}

#[test]
fn a_terminal_echoes_resizes_and_ends() {
    let envd = Envd::start();
    let start = json!({
        "process": { "cmd": "/bin/bash", "args": ["--norc", "-i"], "envs": { "TERM": "xterm", "PS1": "$ " } },
        "pty": { "size": { "cols": 80, "rows": 24 } },
    });
    let (pid, mut stream) = envd.start_process(&start);
    let send = |text: &str| {
        let input = json!({ "process": { "pid": pid }, "input": { "pty": STANDARD.encode(text) } });
        assert_eq!(envd.call("process.Process/SendInput", &input).0, 200);
    };
    send("stty size; tty\n");
    let seen = stream.wait_for("/dev/pts/");
    assert!(seen.contains("24 80"), "{seen}");
    let size = json!({ "process": { "pid": pid }, "pty": { "size": { "cols": 100, "rows": 30 } } });
    assert_eq!(envd.call("process.Process/Update", &size).0, 200);
    send("stty size\n");
    stream.wait_for("30 100");
    assert_eq!(
        envd.call("process.Process/CloseStdin", &connect(pid)).1["code"],
        "unknown"
    );
    send("exit 4\n");
    assert_eq!(stream.finish().end["exitCode"], 4);
}

#[test]
fn the_binary_encoding_works_too() {
    let envd = Envd::start();
    // StartRequest { process: { cmd: "echo", args: ["hi"] } }
    let process = [b"\x0a\x04echo".as_slice(), b"\x12\x02hi"].concat();
    let message = [
        &[0x0a, u8::try_from(process.len()).unwrap()],
        process.as_slice(),
    ]
    .concat();
    let headers = [("Content-Type", "application/connect+proto")];
    let response = envd.http(
        "POST",
        "/process.Process/Start",
        &headers,
        &envelope(&message),
    );
    assert_eq!(
        response.header("content-type"),
        Some("application/connect+proto")
    );
    // EventResponse { event: { data: { stdout: "hi\n" } } }
    let data = b"\x0a\x07\x12\x05\x0a\x03hi\n";
    assert!(
        response
            .body
            .windows(data.len())
            .any(|window| window == data),
        "{:?}",
        response.body
    );
    assert!(response.body.ends_with(b"\x02\0\0\0\x02{}"));
    let list = envd.http(
        "POST",
        "/process.Process/List",
        &[("Content-Type", "application/proto")],
        b"",
    );
    assert_eq!((list.status, list.body.len()), (200, 0));
}

#[test]
fn silence_is_filled_with_keepalives() {
    let envd = Envd::start();
    let (pid, mut stream) =
        envd.start_process_with(&[("Keepalive-Ping-Interval", "1")], &shell("sleep 100"));
    assert_eq!(
        stream.next().unwrap(),
        json!({ "event": { "keepalive": {} } })
    );
    envd.signal(pid, "SIGNAL_SIGKILL");
}

#[test]
fn orphans_and_many_processes_leave_nothing_behind() {
    let envd = Envd::start();
    for _ in 0..50 {
        let (_, stream) = envd.start_process(&shell("echo x"));
        assert_eq!(stream.finish().stdout(), "x\n");
    }
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", envd.pid()));
    assert_eq!(children.unwrap_or_default(), "");
    let descriptors = || {
        std::fs::read_dir(format!("/proc/{}/fd", envd.pid()))
            .unwrap()
            .count()
    };
    eventually("descriptors are closed", || descriptors() < 20);
}

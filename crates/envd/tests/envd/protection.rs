//! envd against programs of its own sandbox, root's included.

use crate::support::{Envd, shell};

fn run(envd: &Envd, script: &str) -> String {
    let (_, stream) = envd.start_process(&shell(script));
    let finished = stream.finish();
    finished.stdout() + &String::from_utf8_lossy(&finished.stderr)
}

fn attach(pid: &str) -> String {
    let program = "import ctypes, sys\n\
        libc = ctypes.CDLL(None, use_errno=True)\n\
        print(libc.ptrace(16, int(sys.argv[1]), 0, 0), ctypes.get_errno())";
    format!("python3 -c '{program}' {pid}")
}

#[test]
fn root_inside_cannot_trace_envd_or_read_its_memory() {
    let envd = Envd::first_process();
    let eperm = format!("-1 {}\n", libc::EPERM);
    assert_eq!(run(&envd, &attach("1")), eperm);
    for file in ["environ", "maps", "mem", "auxv", "stack", "syscall"] {
        let read = format!("head -c 1 /proc/1/{file} && echo read");
        let answer = run(&envd, &read);
        assert!(!answer.contains("read\n"), "{file}: {answer}");
    }
    for link in ["cwd", "exe", "fd/0", "root"] {
        let read = format!("readlink /proc/1/{link}");
        assert_eq!(run(&envd, &read), "", "{link}");
    }
}

#[test]
fn programs_inside_can_still_be_traced_by_their_owner() {
    let envd = Envd::first_process();
    let script = format!(
        "sleep 100 & {} && cat /proc/$!/environ >/dev/null && kill -9 $!",
        attach("$!")
    );
    assert_eq!(run(&envd, &script), "0 0\n");
}

#[test]
fn children_are_the_first_victims_of_a_full_memory() {
    let envd = Envd::first_process();
    let score = "cat /proc/self/oom_score_adj";
    assert_eq!(run(&envd, score), "100\n");
    let mut start = shell(score);
    start["process"]["cwd"] = "/".into();
    let daemon = ("Authorization", "Basic ZGFlbW9uOg==");
    let (_, stream) = envd.start_process_with(&[daemon], &start);
    assert_eq!(stream.finish().stdout(), "100\n");
}

#[test]
fn no_signal_from_inside_ends_the_sandbox() {
    let envd = Envd::first_process();
    // All the time, as there are moments (a fork) when envd cannot take signals.
    let storm = "trap '' PIPE; while :; do for n in $(seq 64); do kill -$n 1; done; done 2>&-";
    let (storm, _stream) = envd.start_process(&shell(storm));
    for _ in 0..200 {
        run(&envd, "true");
    }
    envd.signal(storm, "SIGNAL_SIGKILL");
    assert_eq!(
        run(&envd, "echo alive; cat /proc/1/comm"),
        "alive\nsoulbox-envd\n"
    );
}

#[test]
fn programs_start_with_every_signal_at_its_default() {
    let envd = Envd::first_process();
    let status = run(&envd, "exec grep -E 'Sig(Ign|Blk)' /proc/self/status");
    let none = "0000000000000000";
    assert_eq!(status, format!("SigBlk:\t{none}\nSigIgn:\t{none}\n"));
}

#[test]
fn connections_that_ask_for_nothing_do_not_shut_out_who_asks() {
    use std::{io::Read, net::TcpStream};
    let envd = Envd::start();
    let connect = || TcpStream::connect(("127.0.0.1", envd.port)).unwrap();
    let mut silent: Vec<_> = (0..2_100).map(|_| connect()).collect();
    assert_eq!(envd.get("/health").status, 204);
    let first = &mut silent[0];
    first
        .set_read_timeout(Some(std::time::Duration::from_secs(10)))
        .unwrap();
    assert_eq!(first.read(&mut [0]).unwrap(), 0, "the oldest made room");
}

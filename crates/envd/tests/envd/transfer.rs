//! Whole trees in and out, over HTTP.

use std::{
    fs,
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    os::unix::fs::MetadataExt,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use crate::support::{Envd, Mounted, NODE_TOKEN, Response, eventually};

const NODE: (&str, &str) = ("X-Soulbox-Node-Token", NODE_TOKEN);

/// The archive that the real `tar` makes of a directory.
fn tar(directory: &Path, more: &[&str]) -> Vec<u8> {
    let made = Command::new("tar")
        .arg("-C")
        .arg(directory)
        .args(["-c", "-f", "-"])
        .args(more)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    made.stdout
}

fn copy(envd: &Envd, query: &str, archive: &[u8]) -> Response {
    envd.http("POST", &format!("/soulbox/copy?{query}"), &[NODE], archive)
}

fn scratch_is_gone(directory: &Path) -> bool {
    fs::read_dir(directory).unwrap().all(|entry| {
        let name = entry.unwrap().file_name();
        !name.to_string_lossy().starts_with(".soulbox-copy-")
    })
}

#[test]
fn archives_of_the_real_tar_are_taken_plain_and_compressed_in_every_format() {
    let envd = Envd::start();
    let source = tempfile::tempdir().unwrap();
    let long = "n".repeat(140);
    fs::create_dir_all(source.path().join("folder/sub")).unwrap();
    fs::write(source.path().join("folder/a"), "a").unwrap();
    fs::write(source.path().join("folder/sub").join(&long), "long").unwrap();
    fs::hard_link(
        source.path().join("folder/a"),
        source.path().join("folder/b"),
    )
    .unwrap();
    for (number, more) in [
        &["--format=gnu", "folder"][..],
        &["--format=pax", "folder"],
        &["--format=gnu", "-z", "folder"],
        &["--format=pax", "-z", "./folder"],
    ]
    .iter()
    .enumerate()
    {
        let dest = envd.home.path().join(number.to_string());
        let query = format!("src=folder&dest={}&user=daemon&mode=755", dest.display());
        let answer = copy(&envd, &query, &tar(source.path(), more));
        assert_eq!(answer.status, 204, "{more:?} {}", answer.text());
        let found = fs::metadata(dest.join("sub").join(&long)).unwrap();
        assert_eq!((found.uid(), found.mode() & 0o7777), (1, 0o755));
        assert_eq!(fs::metadata(dest.join("b")).unwrap().nlink(), 2);
    }
    assert!(scratch_is_gone(envd.home.path()));
}

#[test]
fn failures_are_told_and_leave_no_scratch() {
    let envd = Envd::start();
    let source = tempfile::tempdir().unwrap();
    fs::write(source.path().join("f"), vec![1; 1 << 20]).unwrap();
    let whole = tar(source.path(), &["f"]);
    let dest = format!("dest={}/x", envd.home.path().display());
    for (query, archive, status, text) in [
        (
            "src=other",
            &whole[..],
            400,
            "failed to move files in sandbox: source 'other' not found",
        ),
        (
            "src=f&owner=nobody-here",
            &whole,
            400,
            "failed to move files in sandbox: invalid user: 'nobody-here'",
        ),
        (
            "src=f&mode=9",
            &whole,
            400,
            "failed to move files in sandbox: invalid mode: '9'",
        ),
        (
            "src=f",
            &whole[..600_000],
            400,
            "failed to extract files in sandbox: the archive is cut off",
        ),
        (
            "src=f",
            &whole[512..],
            400,
            "failed to extract files in sandbox: it is not a tar archive",
        ),
        (
            "src=f",
            b"",
            400,
            "failed to extract files in sandbox: the archive is cut off",
        ),
    ] {
        let answer = copy(&envd, &format!("{query}&{dest}"), archive);
        assert_eq!(answer.status, status, "{query}");
        let message = answer.json()["message"].as_str().unwrap().to_owned();
        assert!(message.starts_with(text), "{message}");
    }
    assert!(!envd.home.path().join("x").exists());
    assert!(scratch_is_gone(envd.home.path()));
}

#[test]
fn a_hostile_archive_of_the_real_tar_writes_nothing_outside() {
    let envd = Envd::start();
    let source = tempfile::tempdir().unwrap();
    let at = |name: &str| source.path().join(name);
    fs::create_dir(at("in")).unwrap();
    fs::create_dir(at("outside")).unwrap();
    fs::write(at("escaped"), "x").unwrap();
    std::os::unix::fs::symlink(at("outside"), at("in/link")).unwrap();
    let through = "--transform=s,^escaped$,in/link/escaped,";
    let up = "--transform=s,^escaped$,in/../../escaped,";
    for more in [
        ["-P", through, "in", "escaped"],
        ["-P", up, "in", "escaped"],
    ] {
        let query = format!("src=in&dest={}/x", envd.home.path().display());
        let answer = copy(&envd, &query, &tar(source.path(), &more));
        assert_eq!(answer.status, 400, "{}", answer.text());
    }
    assert_eq!(fs::read_dir(at("outside")).unwrap().count(), 0);
    assert!(scratch_is_gone(envd.home.path()));
}

#[test]
fn a_full_disk_is_told_and_what_was_unpacked_goes() {
    let disk = tempfile::tempdir().unwrap();
    let _mounted = Mounted::new(disk.path(), "1m");
    let envd = Envd::start();
    let source = tempfile::tempdir().unwrap();
    // Compressed it is nothing.
    fs::write(source.path().join("bomb"), vec![0; 64 << 20]).unwrap();
    let bomb = tar(source.path(), &["-z", "bomb"]);
    assert!(bomb.len() < 100_000);
    let query = format!("src=bomb&dest={}/x", disk.path().display());
    let answer = copy(&envd, &query, &bomb);
    assert_eq!(answer.status, 507, "{}", answer.text());
    assert_eq!(fs::read_dir(disk.path()).unwrap().count(), 0);
}

/// Sends the head and half of the body, then waits until the copy has begun.
fn half_a_copy(envd: &Envd, archive: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", envd.port)).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let dest = envd.home.path().join("x");
    let head = format!(
        "POST /soulbox/copy?src=.&dest={} HTTP/1.1\r\nHost: x\r\n{}: {}\r\nContent-Length: {}\r\n\r\n",
        dest.display(),
        NODE.0,
        NODE.1,
        archive.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&archive[..archive.len() / 2]).unwrap();
    eventually("the scratch appears", || !scratch_is_gone(envd.home.path()));
    stream
}

#[test]
fn a_client_that_goes_away_leaves_nothing() {
    let envd = Envd::start();
    let source = tempfile::tempdir().unwrap();
    fs::write(source.path().join("f"), vec![1; 1 << 20]).unwrap();
    let archive = tar(source.path(), &["f"]);
    for _ in 0..3 {
        let stream = half_a_copy(&envd, &archive);
        stream.shutdown(Shutdown::Both).unwrap();
        drop(stream);
        eventually("the scratch goes", || scratch_is_gone(envd.home.path()));
    }
    assert!(!envd.home.path().join("x").exists());
}

#[test]
fn copies_go_on_side_by_side_and_files_are_reachable_meanwhile() {
    let envd = Envd::start();
    let source = tempfile::tempdir().unwrap();
    fs::write(source.path().join("f"), vec![1; 1 << 20]).unwrap();
    let archive = tar(source.path(), &["f"]);
    let unfinished: Vec<_> = (0..7).map(|_| half_a_copy(&envd, &archive)).collect();
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (envd, archive) = (&envd, &archive);
            scope.spawn(move || {
                let dest = envd.home.path().join(format!("d{number}"));
                let query = format!("src=f&dest={}/", dest.display());
                let answer = copy(envd, &query, archive);
                assert_eq!(answer.status, 204, "{}", answer.text());
                assert_eq!(fs::metadata(dest.join("f")).unwrap().len(), 1 << 20);
            });
        }
        let file = format!("/files?path={}/.config.json", envd.home.path().display());
        assert_eq!(envd.get(&file).status, 200);
    });
    for mut stream in unfinished {
        stream.write_all(&archive[archive.len() / 2..]).unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 204");
    }
    assert!(scratch_is_gone(envd.home.path()));
}

#[test]
fn the_real_tar_reads_a_tree_and_a_copy_takes_it() {
    let envd = Envd::start();
    let source = tempfile::tempdir().unwrap();
    let at = |name: &str| source.path().join(name);
    fs::create_dir(at("d")).unwrap();
    fs::write(at("d/f"), "content").unwrap();
    std::os::unix::fs::symlink("f", at("d/l")).unwrap();
    let tree = |path: &str| envd.http("GET", &format!("/soulbox/tree?path={path}"), &[NODE], b"");
    let answer = tree(source.path().to_str().unwrap());
    assert_eq!(answer.header("content-type"), Some("application/x-tar"));

    let unpacked = tempfile::tempdir().unwrap();
    let mut real = Command::new("tar")
        .args(["-x", "-f", "-", "-C"])
        .arg(unpacked.path())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    real.stdin.take().unwrap().write_all(&answer.body).unwrap();
    assert!(real.wait().unwrap().success());
    let read = |path: &Path| fs::read_to_string(path.join("d/l")).unwrap();
    assert_eq!(read(unpacked.path()), "content");

    let dest = envd.home.path().join("again");
    let query = format!("src=&dest={}&keep_owners=true", dest.display());
    assert_eq!(copy(&envd, &query, &answer.body).status, 204);
    assert_eq!(read(&dest), "content");

    let one = tree(at("d/l").to_str().unwrap());
    let query = format!("dest={}", envd.home.path().join("one").display());
    assert_eq!(copy(&envd, &query, &one.body).status, 204);
    let one = fs::read_to_string(envd.home.path().join("one")).unwrap();
    assert_eq!(one, "content");
}

#[test]
fn a_tree_that_is_not_there_or_not_a_tree_is_refused() {
    let envd = Envd::start();
    let status = |query: &str| {
        envd.http("GET", &format!("/soulbox/tree?{query}"), &[NODE], b"")
            .status
    };
    assert_eq!(status("path=/not/there"), 404);
    assert_eq!(status("path=/etc/passwd/x"), 404);
    assert_eq!(status("path=relative"), 400);
    assert_eq!(status(""), 400);
    assert_eq!(status("path=/dev/null"), 400);
}

#[test]
fn a_reader_that_goes_away_ends_the_tree() {
    let envd = Envd::start();
    let threads = || {
        fs::read_dir(format!("/proc/{}/task", envd.pid()))
            .unwrap()
            .filter_map(|task| fs::read_to_string(task.unwrap().path().join("comm")).ok())
            .filter(|name| name == "transfer\n")
            .count()
    };
    let mut stream = TcpStream::connect(("127.0.0.1", envd.port)).unwrap();
    let head = format!(
        "GET /soulbox/tree?path=/usr HTTP/1.1\r\nHost: x\r\n{}: {}\r\n\r\n",
        NODE.0, NODE.1
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.read_exact(&mut [0; 4096]).unwrap();
    eventually("the tree is read", || threads() == 1);
    drop(stream);
    eventually("the thread ends", || threads() == 0);
}

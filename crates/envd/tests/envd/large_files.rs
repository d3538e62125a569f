//! Large files: sent by the kernel, written while they are received.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpStream},
    time::Duration,
};

use crate::support::{Envd, Mounted, eventually};

/// Far more than any buffer on the way holds.
const HUGE: u64 = 256 << 20;

fn path(envd: &Envd, name: &str) -> String {
    envd.home.path().join(name).to_str().unwrap().to_owned()
}

fn pattern(length: usize) -> Vec<u8> {
    (0_u32..)
        .flat_map(|n| n.wrapping_mul(0x9e37_79b9).to_le_bytes())
        .take(length)
        .collect()
}

fn connect(envd: &Envd) -> BufReader<TcpStream> {
    let stream = TcpStream::connect(("127.0.0.1", envd.port)).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    BufReader::new(stream)
}

/// Asks without saying that the connection is to be closed; the head of the answer, in lower case.
fn ask(stream: &mut BufReader<TcpStream>, envd: &Envd, name: &str) -> String {
    let path = path(envd, name);
    write!(
        stream.get_mut(),
        "GET /files?path={path} HTTP/1.1\r\nHost: x\r\n\r\n"
    )
    .unwrap();
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(stream.read_line(&mut head).unwrap(), 0, "{head}");
    }
    head.to_ascii_lowercase()
}

fn sparse(envd: &Envd, name: &str, length: u64) {
    let file = File::create(path(envd, name)).unwrap();
    file.set_len(length).unwrap();
}

#[test]
fn a_large_file_comes_whole_with_the_head_of_any_answer() {
    let envd = Envd::start();
    let content = pattern(9_000_001);
    std::fs::write(path(&envd, "f.bin"), &content).unwrap();
    let target = format!("/files?path={}", path(&envd, "f.bin"));
    let read = envd.http("GET", &target, &[("Origin", "http://there")], b"");
    assert_eq!((read.status, read.body == content), (200, true));
    assert_eq!(read.header("content-length"), Some("9000001"));
    assert_eq!(
        read.header("content-type"),
        Some("application/octet-stream")
    );
    assert_eq!(read.header("accept-ranges"), Some("bytes"));
    assert!(read.header("access-control-allow-origin").is_some());
    assert!(read.header("date").unwrap().ends_with(" GMT"));

    let part = envd.http("GET", &target, &[("Range", "bytes=4000000-7999999")], b"");
    assert_eq!(part.status, 206);
    assert_eq!(
        part.header("content-range"),
        Some("bytes 4000000-7999999/9000001")
    );
    assert_eq!(part.header("content-length"), Some("4000000"));
    assert!(part.body == content[4_000_000..8_000_000]);
}

#[test]
fn connections_are_kept_or_said_to_be_closed() {
    let envd = Envd::start();
    let content = pattern(3_000_000);
    std::fs::write(path(&envd, "large"), &content).unwrap();
    std::fs::write(path(&envd, "small"), "small").unwrap();
    let mut small = [0; 5];
    let mut large = vec![0; content.len()];

    let mut stream = connect(&envd);
    for _ in 0..2 {
        let head = ask(&mut stream, &envd, "small");
        assert!(!head.contains("connection: close"), "{head}");
        stream.read_exact(&mut small).unwrap();
        ask(&mut stream, &envd, "large");
        stream.read_exact(&mut large).unwrap();
        assert!(large == content);
    }

    let mut stream = connect(&envd);
    let head = ask(&mut stream, &envd, "large");
    assert!(head.contains("connection: close"), "{head}");
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    assert!(all == content);
}

#[test]
fn what_a_client_sends_too_early_does_not_cost_it_the_file() {
    let envd = Envd::start();
    let content = pattern(3_000_000);
    std::fs::write(path(&envd, "large"), &content).unwrap();
    let mut stream = connect(&envd);
    let request = format!(
        "GET /files?path={} HTTP/1.1\r\nHost: x\r\n\r\n",
        path(&envd, "large")
    );
    write!(stream.get_mut(), "{request}{request}").unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    assert!(all.ends_with(&content));
}

#[test]
fn a_file_that_is_cut_while_it_is_sent_does_not_look_complete() {
    let envd = Envd::start();
    sparse(&envd, "f", HUGE);
    let mut stream = connect(&envd);
    let head = ask(&mut stream, &envd, "f");
    assert!(
        head.contains(&format!("content-length: {HUGE}\r\n")),
        "{head}"
    );
    File::options()
        .write(true)
        .open(path(&envd, "f"))
        .unwrap()
        .set_len(1 << 20)
        .unwrap();
    let got = std::io::copy(&mut stream, &mut std::io::sink()).unwrap_or(0);
    assert!(got < HUGE, "{got}");
}

/// More than there are file threads.
#[test]
fn clients_who_do_not_read_keep_nobody_from_their_files() {
    let envd = Envd::start();
    sparse(&envd, "huge", HUGE);
    let content = pattern(3_000_000);
    std::fs::write(path(&envd, "f"), &content).unwrap();
    let mut sleepers: Vec<_> = (0..12).map(|_| connect(&envd)).collect();
    for sleeper in &mut sleepers {
        ask(sleeper, &envd, "huge");
    }
    let target = format!("/files?path={}", path(&envd, "f"));
    assert!(envd.get(&target).body == content);
    let octets = [("Content-Type", "application/octet-stream")];
    let written = envd.http("POST", &format!("{target}2"), &octets, &content);
    assert_eq!(written.status, 200, "{}", written.text());
    assert!(std::fs::read(path(&envd, "f2")).unwrap() == content);
    // The sleepers were waited for, not cut.
    let got = std::io::copy(&mut sleepers[0], &mut std::io::sink()).unwrap();
    assert_eq!(got, HUGE);
}

/// As chunks of these sizes, in turn.
fn upload(envd: &Envd, name: &str, content: &[u8], sizes: &[usize]) -> BufReader<TcpStream> {
    let mut stream = connect(envd);
    let to = stream.get_mut();
    write!(
        to,
        "POST /files?path={} HTTP/1.1\r\nHost: x\r\nContent-Type: application/octet-stream\r\n\
         Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n",
        path(envd, name)
    )
    .unwrap();
    let mut rest = content;
    for size in sizes.iter().cycle() {
        let (chunk, later) = rest.split_at(rest.len().min(*size));
        if chunk.is_empty() {
            break;
        }
        write!(to, "{:x}\r\n", chunk.len()).unwrap();
        to.write_all(chunk).unwrap();
        to.write_all(b"\r\n").unwrap();
        rest = later;
    }
    stream
}

#[test]
fn pieces_of_any_size_are_written_in_their_order() {
    let envd = Envd::start();
    let content = pattern(6_000_000);
    for sizes in [
        &[1, 300_000, 5, 70_000][..],
        &[16_384, 16_383, 1],
        &[1_000_000],
        &[4_000],
    ] {
        let mut stream = upload(&envd, "f", &content, sizes);
        stream.get_mut().write_all(b"0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let written = std::fs::read(path(&envd, "f")).unwrap();
        assert!(written == content, "{sizes:?}");
    }
}

#[test]
fn an_upload_after_one_that_broke_is_whole() {
    let envd = Envd::start();
    let (first, second) = (pattern(4_000_000), vec![b'x'; 1_000_000]);
    for _ in 0..20 {
        let mut broken = upload(&envd, "f", &first, &[100_000]);
        broken.get_mut().write_all(b"not a length\r\n").unwrap();
        let mut answer = String::new();
        broken.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
        let mut stream = upload(&envd, "f", &second, &[1_000_000]);
        stream.get_mut().write_all(b"0\r\n\r\n").unwrap();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.contains("HTTP/1.1 200"), "{answer}");
        assert!(std::fs::read(path(&envd, "f")).unwrap() == second);
    }
}

#[test]
fn a_large_upload_onto_a_full_disk_is_told_apart() {
    let disk = tempfile::tempdir().unwrap();
    let _mounted = Mounted::new(disk.path(), "2m");
    let envd = Envd::start();
    let target = |name: &str| format!("/files?path={}/{name}", disk.path().display());
    let octets = [("Content-Type", "application/octet-stream")];
    let full = envd.http("POST", &target("f"), &octets, &pattern(5_000_000));
    assert_eq!(full.status, 507, "{}", full.text());
    std::fs::remove_file(disk.path().join("f")).unwrap();
    let fits = envd.http("POST", &target("f"), &octets, &pattern(1_000_000));
    assert_eq!(fits.status, 200, "{}", fits.text());
}

#[test]
fn an_upload_that_ends_too_early_is_refused_and_leaves_no_descriptor() {
    let envd = Envd::start();
    let descriptors = || {
        std::fs::read_dir(format!("/proc/{}/fd", envd.pid()))
            .unwrap()
            .count()
    };
    let before = descriptors();
    for _ in 0..10 {
        let mut stream = connect(&envd);
        let to = stream.get_mut();
        write!(
            to,
            "POST /files?path={} HTTP/1.1\r\nHost: x\r\nContent-Length: 5000000\r\n\
             Content-Type: application/octet-stream\r\n\r\n",
            path(&envd, "f")
        )
        .unwrap();
        to.write_all(&pattern(1_000_000)).unwrap();
        to.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    }
    eventually("the connections are closed", || descriptors() <= before);
}

#[test]
fn a_large_form_is_written_whole() {
    let envd = Envd::start();
    let content = vec![b'q'; 3_000_000];
    let head = b"--XX\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n";
    let body = [&head[..], &content, b"\r\n--XX--\r\n"].concat();
    let form = [("Content-Type", "multipart/form-data; boundary=XX")];
    let target = format!("/files?path={}", path(&envd, "f"));
    let written = envd.http("POST", &target, &form, &body);
    assert_eq!(written.status, 200, "{}", written.text());
    assert!(std::fs::read(path(&envd, "f")).unwrap() == content);
}

#[test]
fn a_form_that_never_comes_to_its_boundary_is_refused_before_it_fills_the_memory() {
    let envd = Envd::start();
    let form = [("Content-Type", "multipart/form-data; boundary=XX")];
    let target = format!("/files?path={}", path(&envd, "f"));
    let endless = vec![b'a'; 20 << 20];
    let head = b"--XX\r\nContent-Disposition: form-data; name=\"file\"; x=";
    for start in [&b""[..], head] {
        let refused = envd.http("POST", &target, &form, &[start, &endless].concat());
        assert_eq!(refused.status, 400, "{}", refused.text());
        assert!(refused.text().contains("boundary"), "{}", refused.text());
    }
    // A part that nobody wants may be as long as it likes.
    let unwanted = b"--XX\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\n";
    let wanted =
        b"\r\n--XX\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nhi\r\n--XX--\r\n";
    let body = [&unwanted[..], &endless, wanted].concat();
    let written = envd.http("POST", &target, &form, &body);
    assert_eq!(written.status, 200, "{}", written.text());
    assert_eq!(std::fs::read(path(&envd, "f")).unwrap(), b"hi");
}

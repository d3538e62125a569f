//! `/files` and `filesystem.Filesystem`.

use std::{
    io::{Read, Write},
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
};

use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use serde_json::json;

use crate::support::{Envd, shell};

const OCTETS: (&str, &str) = ("Content-Type", "application/octet-stream");

fn path(envd: &Envd, name: &str) -> String {
    envd.home.path().join(name).to_str().unwrap().to_owned()
}

fn url(envd: &Envd, name: &str) -> String {
    format!("/files?path={}", path(envd, name))
}

fn form(parts: &[(&str, Option<&str>, &str)]) -> Vec<u8> {
    let mut body = String::new();
    for (name, filename, content) in parts {
        let filename = filename
            .map(|f| format!("; filename=\"{f}\""))
            .unwrap_or_default();
        body += &format!(
            "--XX\r\nContent-Disposition: form-data; name=\"{name}\"{filename}\r\n\r\n{content}\r\n"
        );
    }
    (body + "--XX--\r\n").into_bytes()
}

const FORM: (&str, &str) = ("Content-Type", "multipart/form-data; boundary=XX");

#[test]
fn what_is_written_is_read() {
    let envd = Envd::start();
    for size in [0, 1, 65_536, 65_537, 5_000_001] {
        let content: Vec<u8> = (0..size).map(|i: u32| i.to_le_bytes()[0]).collect();
        let written = envd.http("POST", &url(&envd, "new/dir/f.bin"), &[OCTETS], &content);
        assert_eq!(
            written.json(),
            json!([{ "path": path(&envd, "new/dir/f.bin"), "name": "f.bin", "type": "file" }])
        );
        let read = envd.get(&url(&envd, "new/dir/f.bin"));
        assert_eq!((read.status, read.body == content), (200, true), "{size}");
        assert_eq!(
            read.header("content-length"),
            Some(size.to_string().as_str())
        );
        assert_eq!(
            read.header("content-disposition"),
            Some("inline; filename=f.bin")
        );
    }
    let found = std::fs::metadata(path(&envd, "new/dir/f.bin")).unwrap();
    assert_eq!((found.mode() & 0o777, found.uid()), (0o644, 0));
    assert_eq!(
        std::fs::metadata(path(&envd, "new")).unwrap().mode() & 0o777,
        0o755
    );
}

#[test]
fn an_existing_file_keeps_its_mode() {
    let envd = Envd::start();
    std::fs::write(path(&envd, "f"), "a long old content").unwrap();
    std::fs::set_permissions(path(&envd, "f"), PermissionsExt::from_mode(0o755)).unwrap();
    envd.http("POST", &url(&envd, "f"), &[OCTETS], b"new");
    assert_eq!(std::fs::read_to_string(path(&envd, "f")).unwrap(), "new");
    assert_eq!(
        std::fs::metadata(path(&envd, "f")).unwrap().mode() & 0o777,
        0o755
    );
}

#[test]
fn forms_name_their_files_or_take_the_path_of_the_query() {
    let envd = Envd::start();
    let (a, b) = (path(&envd, "x/a.txt"), path(&envd, "b"));
    let body = form(&[
        ("file", Some(&a), "A"),
        ("note", None, "ignored"),
        ("file", Some(&b), "B"),
    ]);
    let written = envd.http("POST", "/files", &[FORM], &body).json();
    assert_eq!(
        (&written[0]["path"], &written[1]["path"]),
        (&json!(a), &json!(b))
    );
    assert_eq!(std::fs::read_to_string(a).unwrap(), "A");

    let unnamed = envd.http(
        "POST",
        &url(&envd, "c"),
        &[FORM],
        &form(&[("file", None, "C")]),
    );
    assert_eq!(unnamed.status, 200, "{}", unnamed.text());
    assert_eq!(std::fs::read_to_string(path(&envd, "c")).unwrap(), "C");

    let twice = form(&[("file", Some("x"), "1"), ("file", Some("y"), "2")]);
    let refused = envd.http("POST", &url(&envd, "d"), &[FORM], &twice);
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("same path"), "{}", refused.text());
    assert_eq!(std::fs::read_to_string(path(&envd, "d")).unwrap(), "1");
}

#[test]
fn compression_works_both_ways() {
    let envd = Envd::start();
    let content = "compress me ".repeat(50_000);
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content.as_bytes()).unwrap();
    let compressed = encoder.finish().unwrap();
    let gzip = ("Content-Encoding", "gzip");
    let written = envd.http("POST", &url(&envd, "z"), &[OCTETS, gzip], &compressed);
    assert_eq!(written.status, 200, "{}", written.text());
    assert_eq!(std::fs::read_to_string(path(&envd, "z")).unwrap(), content);

    let read = envd.http("GET", &url(&envd, "z"), &[("Accept-Encoding", "gzip")], b"");
    assert_eq!(read.header("content-encoding"), Some("gzip"));
    let mut plain = String::new();
    GzDecoder::new(read.body.as_slice())
        .read_to_string(&mut plain)
        .unwrap();
    assert_eq!(plain, content);

    let broken = envd.http(
        "POST",
        &url(&envd, "z"),
        &[OCTETS, gzip],
        b"not gzip at all",
    );
    assert_eq!(broken.status, 400);
    let unknown = envd.http(
        "POST",
        &url(&envd, "z"),
        &[OCTETS, ("Content-Encoding", "br")],
        b"",
    );
    assert_eq!(unknown.status, 400);
}

#[test]
fn ranges_and_conditions_are_honoured() {
    let envd = Envd::start();
    std::fs::write(path(&envd, "f"), "0123456789").unwrap();
    let get = |name: &str, value: &str| envd.http("GET", &url(&envd, "f"), &[(name, value)], b"");
    let part = get("Range", "bytes=2-4");
    assert_eq!((part.status, part.text().as_str()), (206, "234"));
    assert_eq!(part.header("content-range"), Some("bytes 2-4/10"));
    assert_eq!(get("Range", "bytes=50-").status, 416);
    let modified = envd
        .get(&url(&envd, "f"))
        .header("last-modified")
        .unwrap()
        .to_owned();
    assert_eq!(get("If-Modified-Since", &modified).status, 304);
    let head = envd.http("HEAD", &url(&envd, "f"), &[], b"");
    assert_eq!(
        (head.header("content-length"), head.body.len()),
        (Some("10"), 0)
    );
    assert_eq!(get("Accept-Encoding", "identity;q=0").status, 406);
}

#[test]
fn files_that_claim_to_be_empty_are_read_to_their_end() {
    let envd = Envd::start();
    let read = envd.get("/files?path=/proc/self/status");
    assert!(
        read.text().starts_with("Name:\tsoulbox-envd"),
        "{}",
        read.text()
    );
    assert_eq!(
        envd.get("/files?path=/proc/sys/kernel/random/boot_id")
            .body
            .len(),
        37
    );
}

#[test]
fn strange_files_are_refused_and_never_waited_for() {
    let envd = Envd::start();
    let fifo = path(&envd, "fifo");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(envd.get(&url(&envd, "fifo")).status, 400);
    assert_eq!(
        envd.http("POST", &url(&envd, "fifo"), &[OCTETS], b"x")
            .status,
        400
    );
    assert_eq!(envd.get("/files?path=/dev/zero").status, 400);
    assert_eq!(
        envd.http("POST", "/files?path=/dev/null", &[OCTETS], b"x")
            .status,
        400
    );
    let directory = envd.get(&url(&envd, ""));
    assert_eq!(directory.status, 400);
    assert!(directory.text().contains("is a directory"));
    assert_eq!(
        envd.http("POST", &url(&envd, ""), &[OCTETS], b"x").status,
        400
    );
    let missing = envd.get(&url(&envd, "missing"));
    assert_eq!(missing.status, 404);
    assert_eq!(
        missing.json(),
        json!({ "code": 404, "message": format!("path '{}' does not exist", path(&envd, "missing")) })
    );
    assert_eq!(envd.get("/files?path=x&username=nobody-here").status, 401);
    assert_eq!(envd.get("/files?path=~other/x").status, 400);
    assert_eq!(
        envd.http(
            "POST",
            &url(&envd, "f"),
            &[("Content-Type", "text/plain")],
            b""
        )
        .status,
        400
    );
}

#[test]
fn a_full_disk_is_told_apart() {
    let envd = Envd::start();
    let written = envd.http("POST", "/files?path=/dev/full", &[OCTETS], b"x");
    assert_eq!(
        written.status, 400,
        "a device is refused before it can be full"
    );
}

#[test]
fn metadata_is_replaced_with_every_upload() {
    let envd = Envd::start();
    let headers = [OCTETS, ("X-Metadata-Author", "me"), ("X-Metadata-n", "1")];
    let written = envd.http("POST", &url(&envd, "m"), &headers, b"x").json();
    if written[0].get("metadata").is_none() {
        return; // the temporary directory has no extended attributes
    }
    assert_eq!(written[0]["metadata"], json!({ "author": "me", "n": "1" }));
    let stat = |envd: &Envd| {
        let request = json!({ "path": path(envd, "m") });
        envd.call("filesystem.Filesystem/Stat", &request).1["entry"]["metadata"].clone()
    };
    assert_eq!(stat(&envd), json!({ "author": "me", "n": "1" }));
    envd.http("POST", &url(&envd, "m"), &[OCTETS], b"x");
    assert!(stat(&envd).is_null());
}

#[test]
fn parts_are_composed() {
    let envd = Envd::start();
    for (name, content) in [("p1", "one "), ("p2", "two")] {
        std::fs::write(path(&envd, name), content).unwrap();
    }
    let compose = |sources: &[&str]| {
        let sources: Vec<_> = sources.iter().map(|name| path(&envd, name)).collect();
        let body = json!({ "source_paths": sources, "destination": path(&envd, "d/whole") });
        envd.http("POST", "/files/compose", &[], body.to_string().as_bytes())
    };
    assert_eq!(compose(&["p1", "gone"]).status, 404);
    assert_eq!(compose(&[]).status, 400);
    let whole = path(&envd, "d/whole");
    assert_eq!(
        compose(&["p1", "p2"]).json(),
        json!({ "path": whole, "name": "whole", "type": "file" })
    );
    assert_eq!(std::fs::read_to_string(&whole).unwrap(), "one two");
    assert!(!std::fs::exists(path(&envd, "p1")).unwrap());
}

#[test]
fn a_secured_sandbox_wants_its_token_or_a_signature() {
    let envd = Envd::with_token(Some("0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0"));
    let target = "/files?path=/etc/hostname";
    let get = |path: &str, headers: &[(&str, &str)]| envd.http("GET", path, headers, b"");
    let message = |response: crate::support::Response| response.json()["message"].clone();
    assert_eq!(
        message(get(target, &[])),
        "missing signature query parameter"
    );
    assert_eq!(
        message(get(target, &[("X-Access-Token", "no")])),
        "access token present in header but does not match"
    );
    let token = ("X-Access-Token", "0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0");
    assert_eq!(get(target, &[token]).status, 200);
    assert_eq!(
        message(get(&format!("{target}&signature=v1_x"), &[])),
        "invalid signature"
    );
    let signed = "/files?path=hello.txt&username=user&signature=v1_gUtH%2Fs9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E";
    assert_ne!(
        message(get(signed, &[])),
        "invalid signature",
        "only the user may be unknown here"
    );
    assert_eq!(get("/envs", &[]).status, 401);
    assert_eq!(get("/health", &[]).status, 204);
    assert_eq!(envd.call("process.Process/List", &json!({})).0, 401);
    assert_eq!(
        envd.call_with("process.Process/List", &[token], &json!({}))
            .0,
        200
    );
}

#[test]
fn an_empty_token_opens_nothing() {
    let envd = Envd::with_token(Some(""));
    for headers in [&[][..], &[("X-Access-Token", "")]] {
        assert_eq!(envd.http("GET", "/envs", headers, b"").status, 401);
        let read = envd.http("GET", "/files?path=/etc/hostname", headers, b"");
        assert_eq!(read.status, 401);
    }
}

#[test]
fn directories_are_made_listed_moved_and_removed() {
    let envd = Envd::start();
    let call =
        |method: &str, message| envd.call(&format!("filesystem.Filesystem/{method}"), &message);
    let here = |name: &str| path(&envd, name);
    assert_eq!(call("MakeDir", json!({ "path": here("a/b") })).0, 200);
    assert_eq!(
        call("MakeDir", json!({ "path": here("a/b") })).1["code"],
        "already_exists"
    );
    std::fs::write(here("a/f"), "x").unwrap();
    assert_eq!(
        call("MakeDir", json!({ "path": here("a/f") })).1["code"],
        "invalid_argument"
    );
    assert_eq!(
        call("MakeDir", json!({ "path": here("a/f/g") })).1["code"],
        "internal"
    );
    symlink("/", here("a/root")).unwrap();

    let names = |depth| {
        let (_, list) = call("ListDir", json!({ "path": here("a"), "depth": depth }));
        let entries = list["entries"].as_array().unwrap().clone();
        entries
            .iter()
            .map(|entry| entry["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    std::fs::write(here("a/b/deep"), "x").unwrap();
    assert_eq!(names(0), ["b", "f", "root"]);
    assert_eq!(
        names(9),
        ["b", "deep", "f", "root"],
        "links are not followed"
    );
    assert_eq!(
        call("ListDir", json!({ "path": here("a/f") })).1["code"],
        "invalid_argument"
    );
    assert_eq!(
        call("ListDir", json!({ "path": here("none") })).1["code"],
        "not_found"
    );
    symlink("loop", here("loop")).unwrap();
    assert_eq!(
        call("ListDir", json!({ "path": here("loop") })).1["code"],
        "failed_precondition"
    );

    let moved = call(
        "Move",
        json!({ "source": here("a/f"), "destination": here("new/g") }),
    )
    .1;
    assert_eq!(
        (&moved["entry"]["name"], &moved["entry"]["size"]),
        (&json!("g"), &json!("1"))
    );
    let missing = call(
        "Move",
        json!({ "source": here("a/f"), "destination": here("x") }),
    );
    assert_eq!((missing.0, &missing.1["code"]), (404, &json!("not_found")));

    assert_eq!(
        call("Stat", json!({ "path": here("a/f") })).1["code"],
        "not_found"
    );
    for _ in 0..2 {
        assert_eq!(call("Remove", json!({ "path": here("a") })).0, 200);
    }
    assert!(!std::fs::exists(here("a")).unwrap());
}

#[test]
fn a_tree_deeper_than_any_path_is_listed_watched_and_removed() {
    let envd = Envd::start();
    let (_, made) = envd.start_process(&shell(
        "perl -e 'for (1..3000) { mkdir \"d\"; chdir \"d\" or die } print \"made\\n\"'",
    ));
    assert_eq!(made.finish().stdout(), "made\n");
    let call =
        |method: &str, message| envd.call(&format!("filesystem.Filesystem/{method}"), &message);
    let listed = |depth| {
        let (status, list) = call(
            "ListDir",
            json!({ "path": path(&envd, ""), "depth": depth }),
        );
        assert_eq!(status, 200, "{list}");
        list["entries"].as_array().unwrap().len()
    };
    assert_eq!(listed(1_000), 1_001, "with the configuration file");
    assert!(listed(1_000_000) > 1_900);

    let watcher = json!({ "path": path(&envd, ""), "recursive": true });
    assert_eq!(call("CreateWatcher", watcher).0, 200);
    assert_eq!(call("Remove", json!({ "path": path(&envd, "d") })).0, 200);
    assert!(!std::fs::exists(path(&envd, "d")).unwrap());
}

#[test]
fn relative_paths_are_cleaned_and_absolute_ones_taken_as_written() {
    let envd = Envd::start();
    let call = |method: &str, message| {
        envd.call(&format!("filesystem.Filesystem/{method}"), &message)
            .1
    };
    let found = |path: &str| call("Stat", json!({ "path": path }))["entry"]["path"].clone();
    // The home of root, whose content these tests leave alone.
    for path in [".", "./", "a/..", "~", "~/", "~/.", "~/x/../"] {
        assert_eq!(found(path), "/root", "{path}");
    }
    let listed =
        |path: &str| call("ListDir", json!({ "path": path }))["entries"][0]["path"].clone();
    let home = envd.home.path().to_str().unwrap();
    assert_eq!(
        listed(&format!("..{home}/./")),
        format!("{home}/.config.json")
    );
    assert_eq!(
        listed(&format!("{home}/./")),
        format!("{home}/./.config.json")
    );
}

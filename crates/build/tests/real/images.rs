//! Builds from root file systems that are not the host's.

use std::path::Path;

use soulbox_build::{Base, BuildRequest};

use crate::support::{Machine, archive, run, run_as, user};

/// The smallest distribution: one static program with many names. `None` where it is not installed.
fn busybox(release: bool) -> Option<Vec<u8>> {
    let program = ["/bin/busybox", "/usr/bin/busybox"]
        .into_iter()
        .find(|path| Path::new(path).exists());
    let Some(program) = program else {
        println!("skipped: install busybox-static");
        return None;
    };
    let content = fs_err::read(program).unwrap();
    let names = std::process::Command::new(program).arg("--list").output();
    let names = String::from_utf8(names.unwrap().stdout).unwrap();
    let mut tar = tar::Builder::new(Vec::new());
    let mut file = |name: &str, content: &[u8], mode| {
        let mut header = tar::Header::new_gnu();
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(content.len() as u64);
        header.set_mode(mode);
        tar.append_data(&mut header, name, content).unwrap();
    };
    file("bin/busybox", &content, 0o755);
    file(
        "etc/passwd",
        b"root:x:0:0:root:/root:/bin/sh\nada:x:1000:1000::/:/bin/sh",
        0o644,
    );
    file(
        "etc/group",
        b"root:x:0:\nwheel:x:10:ada\nada:x:1000:\n",
        0o644,
    );
    file("etc/profile", b"export PATH=/bin\n", 0o644);
    if release {
        file("etc/os-release", b"ID=tiny\n", 0o644);
    }
    for name in names.lines().filter(|name| *name != "busybox") {
        let mut header = tar::Header::new_gnu();
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        header.set_mode(0o777);
        tar.append_link(&mut header, format!("bin/{name}"), "busybox")
            .unwrap();
    }
    Some(tar.into_inner().unwrap())
}

async fn from_archive(machine: &Machine, archive: &[u8]) -> BuildRequest {
    let mut request = machine.request(Vec::new());
    request.stages[0].base = Base::Archive {
        hash: machine.upload(archive).await,
    };
    request
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_with_nothing_but_a_shell_becomes_a_template() {
    let (Some(machine), Some(root)) = (Machine::new().await, busybox(true)) else {
        return;
    };
    let mut request = from_archive(&machine, &root).await;
    request.stages[0].steps = vec![
        run("id -un; pwd; sudo id -un"),
        run_as("echo $PATH", "root"),
        user("4711"),
        user("builder"),
        run("echo here > ~/file"),
    ];
    let (built, log) = machine.build(request).await;
    let template = built.unwrap();
    assert!(log.has("[base] FROM an uploaded archive"), "{log:?}");
    assert!(log.has("[builder 1/5] [stdout]: user"), "{log:?}");
    assert!(log.has("[builder 1/5] [stdout]: /home/user"), "{log:?}");
    assert!(log.has("[builder 1/5] [stdout]: root"), "{log:?}");
    assert!(
        log.has("[stdout]: /usr/local/sbin:/usr/local/bin"),
        "{log:?}"
    );
    assert!(log.has("the image has no bash"), "{log:?}");
    let said = machine
        .say_with(
            &template,
            "/bin/sh",
            "cat /home/builder/file /etc/passwd /etc/group; id; stat -c %a /code /tmp /usr/local",
        )
        .await;
    for line in [
        "here",
        "ada:x:1000:1000::/:/bin/sh",
        "user:x:1001:1001::/home/user:/bin/sh",
        "user4711:x:4711:4711::/home/user4711:/bin/sh",
        "builder:x:1002:1002::/home/builder:/bin/sh",
        "wheel:x:10:ada,user",
        "uid=1002(builder) gid=1002(builder) groups=1002(builder)",
        "777\n1777\n777",
    ] {
        assert!(said.contains(line), "{line} in {said}");
    }

    let mut again = from_archive(&machine, &root).await;
    again.stages[0].steps = vec![run("id -un; pwd; sudo id -un")];
    let (built, log) = machine.build(again).await;
    built.unwrap();
    assert!(log.has("CACHED [base] FROM an uploaded archive"), "{log:?}");
    assert!(log.has("CACHED [builder 1/1] RUN"), "{log:?}");
    machine.is_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_distribution_is_refused_with_the_reason() {
    let (Some(machine), Some(no_release)) = (Machine::new().await, busybox(false)) else {
        return;
    };
    let no_shell = archive(&[
        ("etc/os-release", "ID=none\n"),
        ("etc/passwd", "root:x:0:0::/:/bin/sh\n"),
    ]);
    for (root, reason) in [
        (no_release, "no /etc/os-release"),
        (no_shell, "sandboxes need a shell"),
        (b"not a tar".to_vec(), "unpack the archive"),
    ] {
        let request = from_archive(&machine, &root).await;
        let failure = machine.build(request).await.0.unwrap_err();
        assert_eq!(failure.step, "base");
        assert!(failure.message.contains(reason), "{failure:?}");
    }
    let mut request = machine.request(Vec::new());
    request.stages[0].base = Base::Archive {
        hash: "0".repeat(64),
    };
    let failure = machine.build(request).await.0.unwrap_err();
    assert!(failure.message.contains("was not uploaded"), "{failure:?}");
    machine.is_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs mmdebstrap, a Debian mirror and a minute"]
async fn debian_is_made_from_the_machines_own_sources() {
    let Some(machine) = Machine::new().await else {
        return;
    };
    let mut request = machine.request(vec![run("cat /etc/os-release; which python3 bash curl ss")]);
    request.stages[0].base = Base::Debian {
        packages: vec!["python3-minimal".to_owned()],
    };
    let (built, log) = machine.build(request).await;
    let template = built.unwrap_or_else(|failure| panic!("{failure:?} {log:?}"));
    println!("{log:?}");
    let said = machine
        .say(&template, "sudo id -un; curl --version | head -1")
        .await;
    assert!(said.starts_with("root\ncurl "), "{said}");
    machine.is_clean().await;
}

//! An image that umoci made and skopeo pushed, seen through overlayfs: exactly what umoci itself
//! unpacks.

use std::{
    path::Path,
    process::{Command, Output, Stdio},
};

use crate::{real_registry::Registry, store::TestStore};

fn run(program: &str, arguments: &[&str], folder: &Path) -> Output {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {error}");
    output
}

fn shell(script: &str, folder: &Path) -> String {
    let output = run("sh", &["-ec", script], folder);
    String::from_utf8(output.stdout).unwrap()
}

fn is_installed(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok()
}

/// Type, mode, owner and target of everything, time, size and links of files, and their content.
const LIST: &str = "find . -printf '%P|%y|%m|%U|%G|%l|' \
     \\( -type f -printf '%s|%n|%T@\\n' -o -printf '\\n' \\) | sort; \
     find . -type f -exec sha256sum {} + | sort";

const FIRST: &str = "cd a/rootfs
    mkdir -p etc usr/bin usr/share/doc/old var/lib/gone tmp home/app kind
    chmod 1777 tmp; chown 1000:1000 home/app; chmod 2750 home/app; echo x > home/app/log
    echo 'ID=test' > etc/os-release; echo bye > etc/motd
    echo program > usr/bin/su; chmod 4755 usr/bin/su; ln usr/bin/su usr/bin/su2
    ln -s /usr/bin bin; ln -s ../../../../etc/os-release usr/share/release
    mkfifo -m 622 usr/pipe; echo doc > usr/share/doc/old/text
    echo lost > var/lib/gone/file; echo file > kind/turns; mkdir kind/folder; echo x > kind/folder/x
    touch -d '2001-02-03 04:05:06' etc/os-release usr";
const SECOND: &str = "cd b/rootfs
    rm etc/motd; rm -r var/lib/gone
    rm -r usr/share/doc; mkdir -p usr/share/doc/new; echo new > usr/share/doc/new/text
    rm kind/turns; mkdir kind/turns; echo y > kind/turns/y
    rm -r kind/folder; echo now > kind/folder
    echo changed >> etc/os-release; echo long > 'etc/with space and ü'
    echo more >> home/app/log";

#[tokio::test]
async fn an_image_of_umoci_looks_through_overlayfs_as_umoci_unpacks_it() {
    for program in ["umoci", "skopeo", "unshare"] {
        if !is_installed(program) {
            println!("skipped: {program} is not installed (apt install {program})");
            return;
        }
    }
    let Some(registry) = Registry::start(false) else {
        return;
    };
    let work = tempfile::tempdir().unwrap();
    let folder = work.path();
    shell("umoci init --layout oci; umoci new --image oci:app", folder);
    shell(
        "umoci config --image oci:app --config.user 1000 --config.env A=b",
        folder,
    );
    for (bundle, change) in [("a", FIRST), ("b", SECOND)] {
        run("umoci", &["unpack", "--image", "oci:app", bundle], folder);
        shell(change, folder);
        run("umoci", &["repack", "--image", "oci:app", bundle], folder);
    }
    run("umoci", &["unpack", "--image", "oci:app", "wanted"], folder);
    let reference = registry.reference("made/by-umoci");
    let target = format!("docker://{reference}:latest");
    let copy = ["copy", "--insecure-policy", "--dest-tls-verify=false"];
    run(
        "skopeo",
        &[&copy[..], &["oci:oci:app", &target]].concat(),
        folder,
    );

    let test = TestStore::trusting(&[registry.address.to_string()]);
    let image = test.store.pull(&reference, None, false, &()).await.unwrap();
    // The second layer passes through home/app without describing it.
    assert_eq!((image.user.as_str(), image.layers.len()), ("1000", 3));
    let stack: Vec<_> = image
        .layers
        .iter()
        .rev()
        .map(|layer| layer.display().to_string())
        .collect();
    let mount = format!(
        "mkdir seen; mount -t overlay overlay -o lowerdir={} seen; cd seen; {LIST}",
        stack.join(":")
    );
    // In a mount namespace of its own, which takes the mount with it.
    let seen = run("unshare", &["-m", "sh", "-ec", &mount], folder);
    let seen = String::from_utf8(seen.stdout).unwrap();
    let wanted = shell(LIST, &folder.join("wanted/rootfs"));
    assert!(wanted.contains("su2") && !wanted.contains("etc/motd"));
    for (seen, wanted) in seen.lines().zip(wanted.lines()) {
        assert_eq!(seen, wanted);
    }
    assert_eq!(seen.lines().count(), wanted.lines().count());
}

//! The template of this very machine, assembled and entered (without the jail). Needs root.
#![expect(clippy::unwrap_used, reason = "a test fails where it stands")]

use std::{
    path::Path,
    process::{Command, Output},
    time::{Duration, Instant},
};

use soulbox_host_template::{HostOptions, prepare_host};
use soulbox_template::Template;

/// Mounts the overlays in a private mount namespace, which takes them along when it ends, and
/// runs a script in them. Arguments: scratch directory, script, then target and lower per overlay.
const ENTER: &str = r#"
set -e
scratch=$1 script=$2; shift 2
mount -t tmpfs none "$scratch"
number=0
while [ $# -gt 0 ]; do
  mkdir -p "$scratch/$number/upper" "$scratch/$number/work" "$scratch/root"
  mount -t overlay overlay -o "lowerdir=$2,upperdir=$scratch/$number/upper,workdir=$scratch/$number/work" "$scratch/root$1"
  number=$((number + 1)); shift 2
done
mount -t proc proc "$scratch/root/proc"
mount -t tmpfs none "$scratch/root/dev"
for device in null zero urandom; do
  touch "$scratch/root/dev/$device"; mount --bind "/dev/$device" "$scratch/root/dev/$device"
done
exec timeout 60 chroot --userspec=1000:1000 --groups= "$scratch/root" /usr/bin/env -i HOME=/home/user USER=user PATH=/marker:/usr/local/bin:/usr/sbin:/usr/bin /bin/bash -c "$script"
"#;

fn prepare(dir: &Path) -> Option<Template> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: not root");
        return None;
    }
    // Stands in for the helper, which another crate builds.
    let sudo = dir.join("sudo");
    fs_err::copy("/bin/true", &sudo).unwrap();
    let options = HostOptions {
        include_opt: false,
        sudo,
        extra_ca: Vec::new(),
    };
    let start = Instant::now();
    let template = prepare_host(&dir.join("templates/base"), &options).unwrap();
    eprintln!("made in {} ms", start.elapsed().as_millis());
    let start = Instant::now();
    assert_eq!(
        prepare_host(&dir.join("templates/base"), &options).unwrap(),
        template
    );
    let again = start.elapsed();
    eprintln!("found again in {} ms", again.as_millis());
    assert!(again < Duration::from_secs(2), "{again:?}");
    Some(template)
}

fn enter(dir: &Path, template: &Template, script: &str) -> Output {
    let scratch = dir.join("scratch");
    fs_err::create_dir_all(&scratch).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "bash", "-c", ENTER, "enter"]);
    command.arg(&scratch).arg(script);
    for overlay in &template.overlays {
        let lower: Vec<_> = overlay.lower.iter().map(|p| p.to_str().unwrap()).collect();
        command.arg(&overlay.target).arg(lower.join(":"));
    }
    command.output().unwrap()
}

#[test]
fn the_machines_own_programs_run_inside() {
    let dir = tempfile::tempdir().unwrap();
    let Some(template) = prepare(dir.path()) else {
        return;
    };
    let script = r#"
        set -e
        whoami; id -gn; cat /etc/hostname; ls -d /home/user
        bash -lc 'echo $PATH'
        for program in python3 python node git curl; do
          if [ -x /usr/bin/$program ] || [ -x /usr/local/bin/$program ]; then
            $program --version > /dev/null && echo "$program runs"
          fi
        done
        touch ~/file /tmp/file
        [ ! -w /etc/passwd ] && [ ! -r /etc/shadow ] && echo closed
        ! ls /usr/lib/modules 2> /dev/null
        echo done
    "#;
    let output = enter(dir.path(), &template, script);
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    assert!(
        text.starts_with("user\nuser\ne2b.local\n/home/user\n/marker:"),
        "{text}{errors}"
    );
    assert!(
        text.contains("closed\n") && text.ends_with("done\n"),
        "{text}{errors}"
    );
    for program in ["python3", "node", "git", "curl"] {
        if Path::new("/usr/bin").join(program).exists() {
            assert!(
                text.contains(&format!("{program} runs\n")),
                "{text}{errors}"
            );
        }
    }
}

#[test]
fn nothing_inside_is_private_to_the_hosts_root() {
    let dir = tempfile::tempdir().unwrap();
    let Some(template) = prepare(dir.path()) else {
        return;
    };
    // As an ordinary user all of /usr can be read; what cannot, root inside could.
    let script = "find /usr -xdev ! -type l ! -readable 2>&1; find /usr -xdev -type d ! -executable; \
                  grep -c . /etc/passwd > /dev/null; ls /etc/ssl/private 2>/dev/null";
    let output = enter(dir.path(), &template, script);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text, "", "{}", String::from_utf8_lossy(&output.stderr));
}

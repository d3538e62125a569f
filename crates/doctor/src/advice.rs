//! What to do when a sandbox does not start, by the step at which it failed.
//!
//! The steps are those of `soulbox-init` (docs/jail.md) and of the server around it. For each, what
//! it needs, and where that is known to be missing.

use crate::environment::Environment;

const PRIVILEGED: &str =
    "run the server on the machine itself, or in a container with --privileged";

/// Steps by how their names begin, and what they need.
const NEEDS: [(&str, &str); 18] = [
    (
        "join cgroup",
        "control groups that may be written to (no ProtectControlGroups= in a unit; in a container, --privileged)",
    ),
    (
        "could not use cgroups",
        "control groups with cpu, memory and pids: mount cgroup2 on /sys/fs/cgroup",
    ),
    (
        "could not make the cgroup",
        "control groups that may be written to (no ProtectControlGroups= in a unit; in a container, --privileged)",
    ),
    (
        "could not set up the network",
        "the kernel modules nf_tables, nft_ct, nft_masq, nft_redir, nft_reject, veth and bridge (modprobe says what is wrong), the program nft, and CAP_NET_ADMIN",
    ),
    (
        "addresses for",
        "a private range of addresses that nothing on this machine uses, as the message says",
    ),
    (
        "network",
        "the kernel modules veth and nf_tables, and CAP_NET_ADMIN",
    ),
    (
        "open network namespace",
        "network namespaces (CONFIG_NET_NS) and CAP_SYS_ADMIN",
    ),
    (
        "enter network namespace",
        "network namespaces (CONFIG_NET_NS) and CAP_SYS_ADMIN",
    ),
    ("resource limits", "the hard limits that the message names"),
    ("user namespace", "user namespaces with ids of their own"),
    ("enter user namespace", "user namespaces"),
    (
        "shift ids",
        "idmapped mounts: Linux 5.19 or newer, and /usr and the data folder on ext4, xfs, btrfs or f2fs (not on nfs, 9p, overlay, or zfs before 2.2); --data-dir chooses another folder",
    ),
    (
        "overlay",
        "overlayfs over idmapped layers: Linux 5.19 or newer, and modprobe overlay",
    ),
    (
        "could not start soulbox-init",
        "programs that may be executed from the data folder",
    ),
    (
        "open envd",
        "the data folder's bin/: restart the server, which writes it again",
    ),
    (
        "execute envd",
        "programs that may be executed from the data folder",
    ),
    (
        "could not reserve host ids",
        "a /run that may be written to",
    ),
    (
        "seccomp",
        "a kernel with CONFIG_SECCOMP_FILTER, and in a container --security-opt seccomp=unconfined",
    ),
];
const DISK: (&[&str], &str) = (
    &[
        "open disk",
        "attach disk",
        "mount disk",
        "could not make the sandbox's",
    ],
    "loop devices and ext4: modprobe loop ext4, /dev/loop-control and free /dev/loop*, e2fsprogs, and room in the data folder",
);
const MOUNTS: (&[&str], &str) = (
    &[
        "mount namespace",
        "private mounts",
        "staging",
        "attach",
        "pivot_root",
        "/dev",
        "/sys",
        "/run",
        "/proc",
        "devices",
        "show read-only",
        "boot id",
    ],
    "mounts, which containers and security profiles often refuse",
);
const PROCESSES: (&[&str], &str) = (
    &[
        "clone the first process",
        "first process",
        "soulbox-init",
        "session",
        "host name",
        "pipe",
        "descriptors",
        "ids",
        "capabilities",
        "envd configuration",
        "wait for the report",
        "read the",
        "parse the",
    ],
    "root with its capabilities, and free memory and process ids (the kernel's log says what it killed)",
);

/// What the step needs, and what around here is known to be in the way.
pub fn advice(step: &str, message: &str, environment: &Environment) -> String {
    // Nothing is known to be missing.
    if message.contains("took longer than") || step.contains("took longer than") {
        return "this machine may only have been busy: start it again; if it stays so, the kernel's \
                log (dmesg) may say what hangs"
            .to_owned();
    }
    let mut parts = vec![needs(step)];
    parts.extend(in_the_way(step, message, environment));
    parts.join("; ")
}

fn needs(step: &str) -> String {
    let begins = |names: &&[&str]| names.iter().any(|name| step.starts_with(name));
    let single = NEEDS.iter().find(|(name, _)| step.starts_with(name));
    let needs = single.map(|(_, needs)| *needs).or_else(|| {
        let groups = [DISK, MOUNTS, PROCESSES];
        groups
            .iter()
            .find(|(names, _)| begins(names))
            .map(|(_, needs)| *needs)
    });
    needs.map_or_else(
        || "look into the kernel's log (dmesg)".to_owned(),
        |needs| format!("this needs {needs}"),
    )
}

fn in_the_way(step: &str, message: &str, environment: &Environment) -> Vec<String> {
    let mut found = Vec::new();
    let mut say = |text: String| found.push(text);
    let about_users = step.contains("user namespace") || step == "namespaces";
    if about_users {
        if environment.max_user_namespaces == Some(0) {
            say("user.max_user_namespaces is 0: sysctl -w user.max_user_namespaces=65536".into());
        }
        if environment.apparmor_restricts {
            say("AppArmor restricts user namespaces here (Ubuntu): \
                 sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
                .into());
        }
        if let Some(ids) = environment.mapped_ids {
            say(format!(
                "this server itself is in a user namespace with only {ids} ids (a rootless or \
                 unprivileged container), and sandboxes need the ids from 1879048192 on"
            ));
        }
    }
    let executes = ["could not start soulbox-init", "execute envd"].contains(&step);
    if executes && environment.is_mounted("noexec") {
        say(format!(
            "the data folder is mounted with noexec: `{}`, or choose another one with --data-dir",
            environment.remount("exec")
        ));
    }
    if environment.is_mounted("ro") {
        say(format!(
            "the data folder is mounted read-only: `{}`, or choose another one with --data-dir",
            environment.remount("rw")
        ));
    }
    if message.contains("No space left") && !about_users {
        say("free some space on the data folder's disk".into());
    }
    // A cause that is certain makes guesses needless.
    if !found.is_empty() {
        return found;
    }
    let mut say = |text: String| found.push(text);
    if step.starts_with("shift ids") && !environment.file_system.is_empty() {
        say(format!("the data folder is on {}", environment.file_system));
    }
    if environment.selinux_enforces {
        say("SELinux is enforcing: `ausearch -m avc -ts recent` shows what it refused".into());
    }
    match environment.container.as_deref() {
        Some("wsl") => say(
            "this is WSL2, whose kernel lacks some modules: `wsl --update`, and cgroup v2 with \
             kernelCommandLine=cgroup_no_v1=all in .wslconfig"
                .into(),
        ),
        Some("lxc") => say(
            "this is an LXC container: it needs security.privileged=true, security.nesting=true \
             and loop devices; or run the server on the machine itself"
                .into(),
        ),
        Some(kind) => say(format!("this is a {kind} container: {PRIVILEGED}")),
        None => {}
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain() -> Environment {
        Environment {
            file_system: "ext4".into(),
            ..Environment::default()
        }
    }

    /// The steps that a start can fail at, as they stand in the program itself.
    fn steps_of_init() -> Vec<String> {
        let sources = [
            include_str!("../../init/src/disk.rs"),
            include_str!("../../init/src/drop.rs"),
            include_str!("../../init/src/first_process.rs"),
            include_str!("../../init/src/inside.rs"),
            include_str!("../../init/src/limits.rs"),
            include_str!("../../init/src/main.rs"),
            include_str!("../../init/src/host_mounts.rs"),
            include_str!("../../init/src/root.rs"),
            include_str!("../../init/src/user_namespace.rs"),
        ];
        let marks = [".at(\"", ".at_with(\"", "let step = \"", "STEP: &str = \""];
        let mut steps = Vec::new();
        for source in sources {
            for mark in marks {
                let each = source.split(mark).skip(1);
                steps.extend(each.filter_map(|rest| Some(rest.split('"').next()?.to_owned())));
            }
        }
        steps
    }

    #[test]
    fn every_step_of_a_start_says_what_it_needs() {
        let steps = steps_of_init();
        assert!(steps.len() > 40, "{steps:?}");
        // Of snapshots and volumes, whose sandboxes exist already.
        let later = ["snapshot", "volume"];
        for step in steps {
            if !later.iter().any(|word| step.contains(word)) {
                let said = needs(&step);
                assert!(said.starts_with("this needs"), "{step}: {said}");
            }
        }
    }

    #[test]
    fn what_is_around_us_is_named_with_the_command_that_helps() {
        let off = Environment {
            max_user_namespaces: Some(0),
            ..plain()
        };
        let said = advice("user namespace", "No space left on device", &off);
        assert!(
            said.contains("sysctl -w user.max_user_namespaces"),
            "{said}"
        );
        assert!(!said.contains("free some space"), "{said}");

        let noexec = Environment {
            mount_options: vec!["rw".into(), "noexec".into()],
            ..plain()
        };
        let said = advice("could not start soulbox-init", "Permission denied", &noexec);
        assert!(said.contains("noexec"), "{said}");

        let ubuntu = Environment {
            apparmor_restricts: true,
            ..plain()
        };
        assert!(advice("user namespace", "", &ubuntu).contains("AppArmor"));
        assert!(!advice("overlay", "", &ubuntu).contains("AppArmor"));

        let docker = Environment {
            container: Some("docker".into()),
            selinux_enforces: true,
            ..plain()
        };
        let said = advice("pivot_root", "Operation not permitted", &docker);
        assert!(
            said.contains("--privileged") && said.contains("SELinux"),
            "{said}"
        );
    }

    #[test]
    fn what_took_too_long_is_not_called_missing() {
        let said = advice(
            "could not set up the network",
            "a firewall command took longer than 60 s",
            &plain(),
        );
        assert!(
            said.contains("busy") && !said.contains("nf_tables"),
            "{said}"
        );
    }

    #[test]
    fn an_unknown_step_leads_to_the_kernels_log() {
        assert!(advice("something new", "", &plain()).contains("dmesg"));
    }
}

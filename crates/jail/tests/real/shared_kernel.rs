//! What sandboxes share is the kernel: what one of them must not see, hold up or use up there.

use std::os::unix::fs::MetadataExt;

use super::*;

/// Two sandboxes side by side.
async fn two(fixture: &Fixture, jail: &Opened) -> [SandboxSpec; 2] {
    let specs = [fixture.spec(), fixture.spec()];
    for spec in &specs {
        create(jail, spec).await;
    }
    specs
}

const SOCKETS: &str = r#"
cat > /root/sockets.py <<'PYTHON'
import errno, socket
for name, family, kind, protocol in [
    ("tcp", 2, 1, 0), ("named tcp", 2, 1, 6), ("flags", 2, 1 | 0x80000 | 0x800, 6), ("udp", 2, 2, 17),
    ("ping", 2, 2, 1), ("tcp6", 10, 1, 0), ("udp6", 10, 2, 17), ("ping6", 10, 2, 58),
    ("unix", 1, 1, 0), ("unix packets", 1, 5, 0), ("routes", 16, 3, 0),
    ("mptcp", 2, 1, 262), ("mptcp flags", 2, 1 | 0x80000, 262), ("mptcp6", 10, 1, 262),
    ("udplite", 2, 2, 136), ("udplite6", 10, 2, 136), ("sctp", 2, 1, 132), ("sctp packets", 2, 5, 132),
    ("dccp", 2, 6, 33), ("l2tp", 2, 2, 115), ("ping6 over 4", 2, 2, 58), ("no type", 2, 0, 0),
    ("rdm", 10, 4, 0), ("packet", 2, 10, 0),
]:
    try:
        socket.socket(family, kind, protocol).close()
        print(f"{name}: made")
    except OSError as error:
        print(f"{name}: {errno.errorcode[error.errno]}")
for name, family in [("pair", 1), ("pair4", 2), ("tipc pair", 30)]:
    try:
        socket.socketpair(family, 1)
        print(f"{name}: made")
    except OSError as error:
        print(f"{name}: {errno.errorcode[error.errno]}")
PYTHON
python3 /root/sockets.py
"#;

#[tokio::test(flavor = "multi_thread")]
async fn sockets_are_of_the_protocols_that_are_meant() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    let spec = fixture.spec();
    create(&jail, &spec).await;
    let said = run(&jail, &spec, SOCKETS).await;
    let unsupported = "EPROTONOSUPPORT";
    for (name, answer) in [
        ("tcp", "made"),
        ("named tcp", "made"),
        ("flags", "made"),
        ("udp", "made"),
        ("ping", "made"),
        ("unix", "made"),
        ("unix packets", "made"),
        ("routes", "made"),
        ("pair", "made"),
        ("mptcp", unsupported),
        ("mptcp flags", unsupported),
        ("mptcp6", unsupported),
        ("udplite", unsupported),
        ("udplite6", unsupported),
        ("sctp", unsupported),
        ("sctp packets", unsupported),
        ("dccp", unsupported),
        ("l2tp", unsupported),
        ("ping6 over 4", unsupported),
        ("no type", unsupported),
        ("rdm", unsupported),
        ("packet", unsupported),
        ("pair4", "EPERM"),
        ("tipc pair", "EPERM"),
    ] {
        let line = format!("{name}: {answer}");
        assert!(said.lines().any(|l| l == line), "no '{line}' in:\n{said}");
    }
    // IPv6 may be switched off on the host; then it is not the filter that refuses.
    for name in ["tcp6", "udp6", "ping6"] {
        let refused = [format!("{name}: {unsupported}"), format!("{name}: EPERM")];
        assert!(
            !said.lines().any(|l| refused.iter().any(|r| r == l)),
            "{said}"
        );
    }
    jail.destroy(&spec.id, None).await.unwrap();
    jail.close().await;
}

const RESIDENCY: &str = r#"
cat > /root/residency.py <<'PYTHON'
import ctypes, errno, mmap, os
libc = ctypes.CDLL(None, use_errno=True)
def say(name, result):
    print(f"{name}: {errno.errorcode[ctypes.get_errno()] if result < 0 else 'answered'}")
file = open("/usr/bin/python3", "rb")
mapped = mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE | 2)
memory = mmap.mmap(-1, 4096)
address = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
say("mincore", libc.mincore(address, ctypes.c_size_t(4096), ctypes.create_string_buffer(8)))
span, found = (ctypes.c_uint64 * 2)(0, 0), (ctypes.c_uint64 * 5)()
say("cachestat", libc.syscall(451, file.fileno(), span, found, 0))
try:
    os.preadv(file.fileno(), [bytearray(4096)], 0, os.RWF_NOWAIT)
    print("nowait: answered")
except OSError as error:
    print(f"nowait: {errno.errorcode[error.errno]}")
PYTHON
python3 /root/residency.py
"#;

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_told_what_neighbours_have_read() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    let spec = fixture.spec();
    create(&jail, &spec).await;
    let said = run(&jail, &spec, RESIDENCY).await;
    for line in ["mincore: ENOSYS", "cachestat: ENOSYS", "nowait: ENOTSUP"] {
        assert!(said.contains(line), "no '{line}' in:\n{said}");
    }
    jail.destroy(&spec.id, None).await.unwrap();
    jail.close().await;
}

/// A small disk of the host with something on it that is not written yet.
struct Dirty {
    mounted: PathBuf,
    device: String,
}

impl Dirty {
    fn make(folder: &Path) -> Self {
        let (image, mounted) = (folder.join("dirty.img"), folder.join("dirty"));
        fs::create_dir(&mounted).unwrap();
        let file = fs::File::create(&image).unwrap();
        file.set_len(16 << 20).unwrap();
        let succeeds = |program: &str, arguments: &[&str]| {
            let done = std::process::Command::new(program).args(arguments).status();
            assert!(done.unwrap().success(), "{program}");
        };
        let (image, place) = (image.to_str().unwrap(), mounted.to_str().unwrap());
        succeeds("mkfs.ext4", &["-qF", image]);
        succeeds("mount", &["-o", "loop", image, place]);
        fs::write(mounted.join("file"), vec![7; 1 << 20]).unwrap();
        let device = fs::metadata(&mounted).unwrap().dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        Self {
            mounted,
            device: format!("/sys/dev/block/{major}:{minor}/stat"),
        }
    }

    fn written(&self) -> u64 {
        sectors_written(&self.device)
    }
}

/// Of a disk, by its file with counts.
fn sectors_written(stat: &str) -> u64 {
    let stat = fs::read_to_string(stat).unwrap();
    stat.split_whitespace().nth(6).unwrap().parse().unwrap()
}

/// The same of a sandbox's disk.
fn loop_device_of(image: &Path) -> String {
    let devices = fs::read_dir("/sys/block").unwrap();
    let mut found = devices.filter_map(|device| {
        let device = device.unwrap().path();
        let backing = fs::read_to_string(device.join("loop/backing_file")).ok()?;
        (Path::new(backing.trim_end()) == image).then(|| device.join("stat"))
    });
    found.next().unwrap().to_str().unwrap().to_owned()
}

impl Drop for Dirty {
    fn drop(&mut self) {
        let mut umount = std::process::Command::new("umount");
        assert!(umount.arg(&self.mounted).status().unwrap().success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sync_inside_writes_nothing_of_others_and_fsync_is_real() {
    const MEGABYTE: u64 = 2048;
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    let spec = fixture.spec();
    create(&jail, &spec).await;
    let disk = Dirty::make(fixture.path());
    let before = disk.written();
    run(&jail, &spec, "sync; python3 -c 'import os; os.sync()'").await;
    // The kernel itself writes it after half a minute.
    assert!(
        disk.written() < before + MEGABYTE,
        "somebody else's megabyte was written"
    );
    let folder = fixture.path().join("sandboxes").join(spec.id.as_str());
    let own = loop_device_of(&folder.join("disk.img"));
    run(&jail, &spec, "head -c 8388608 /dev/urandom > /root/big").await;
    run(&jail, &spec, "sync /root/big").await;
    assert!(sectors_written(&own) >= 8 * MEGABYTE, "fsync wrote nothing");
    rustix::fs::syncfs(fs::File::open(&disk.mounted).unwrap()).unwrap();
    assert!(disk.written() >= MEGABYTE, "it was dirty all the time");
    jail.destroy(&spec.id, None).await.unwrap();
    jail.close().await;
}

/// Files that every sandbox has, and that are no files of its template.
const COMMON: [&str; 8] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/proc/interrupts",
    "/sys/devices/system/cpu/online",
];

#[tokio::test(flavor = "multi_thread")]
async fn no_two_sandboxes_have_a_file_in_common() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    let [first, second] = two(&fixture, &jail).await;
    // What has locks and watchers is the file, whatever its name.
    let script = format!("stat -L -c '%n %d:%i' {}", COMMON.join(" "));
    let of_first = run(&jail, &first, &script).await;
    let of_second = run(&jail, &second, &script).await;
    for path in COMMON {
        let find = |said: &str| {
            let line = said.lines().find(|line| line.starts_with(path));
            line.unwrap_or_else(|| panic!("{path} is not in {said}"))
                .to_owned()
        };
        let ours = fs::metadata(path).unwrap();
        let ours = format!("{path} {}:{}", ours.dev(), ours.ino());
        let (first, second) = (find(&of_first), find(&of_second));
        assert_ne!(first, second, "two sandboxes share it");
        assert_ne!(first, ours, "the host shares it");
    }
    let lock = fs::File::open("/dev/null").unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let script = "python3 -c 'import fcntl; fcntl.flock(open(\"/dev/null\"), fcntl.LOCK_EX | \
                  fcntl.LOCK_NB); print(\"locked\")'";
    assert_eq!(run(&jail, &first, script).await.trim(), "locked");
    for spec in [&first, &second] {
        jail.destroy(&spec.id, None).await.unwrap();
    }
    jail.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_work_for_everybody_inside_and_cannot_be_taken_away() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    let spec = fixture.spec();
    create(&jail, &spec).await;
    let script = r#"
        python3 - <<'PYTHON'
import os
os.setgid(1000); os.setuid(1000)
assert open("/dev/zero", "rb").read(3) == b"\0\0\0"
assert open("/dev/null", "rb").read() == b""
assert len(open("/dev/urandom", "rb").read(8)) == 8 and len(open("/dev/random", "rb").read(8)) == 8
open("/dev/null", "w").write("gone")
try:
    os.write(os.open("/dev/full", os.O_WRONLY), b"x")
    raise SystemExit("full takes more")
except OSError as error:
    assert error.errno == 28, error
PYTHON
        stat -c '%n %A' /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty
        if rm -f /dev/null 2>/root/why; then echo removed; fi
        if mv /root/why /dev/zero 2>/dev/null; then echo replaced; fi
        cat /proc/interrupts; cat /sys/devices/system/cpu/online
    "#;
    let said = run(&jail, &spec, script).await;
    let open = said.lines().filter(|line| line.ends_with(" crw-rw-rw-"));
    assert_eq!(open.count(), 6, "{said}");
    assert!(
        !said.contains("removed") && !said.contains("replaced"),
        "{said}"
    );
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    assert!(said.ends_with(&online), "{said}");
    jail.destroy(&spec.id, None).await.unwrap();
    jail.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn there_are_terminals_for_all_sandboxes_together() {
    const SANDBOXES: u64 = 100;
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail_for(u32::try_from(SANDBOXES).unwrap()).await;
    let refused = jail.machine.raise_shared_limits().await;
    assert!(refused.is_empty(), "{refused:?}");
    let [first, second] = two(&fixture, &jail).await;
    let script = r"
        cat > /root/terminals.py <<'PYTHON'
import os
held = []
try:
    while len(held) < 1000:
        held.append(os.openpty())
except OSError:
    pass
print(len(held), flush=True)
PYTHON
        ulimit -n 4096
        python3 /root/terminals.py
    ";
    let counts = [
        run(&jail, &first, script).await,
        run(&jail, &second, script).await,
    ];
    let each: u64 = counts[0].trim().parse().unwrap();
    assert!((32..=64).contains(&each), "{each}");
    assert_eq!(counts[0], counts[1]);
    let setting = |name: &str| -> u64 {
        let text = fs::read_to_string(format!("/proc/sys/kernel/pty/{name}")).unwrap();
        text.trim().parse().unwrap()
    };
    let for_sandboxes = setting("max") - setting("reserve");
    assert!(for_sandboxes >= SANDBOXES * each, "{for_sandboxes}");
    for spec in [&first, &second] {
        jail.destroy(&spec.id, None).await.unwrap();
    }
    jail.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn open_files_are_bounded_by_the_sandboxs_memory_and_by_no_number_of_the_machine() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let jail = fixture.jail().await;
    assert_eq!(
        jail.machine.raise_shared_limits().await,
        Vec::<String>::new()
    );
    let spec = fixture.spec();
    let memory = spec.limits.memory_bytes();
    create(&jail, &spec).await;
    let script = r#"
        python3 - <<'PYTHON'
import os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
paths = ["/sys/fs/cgroup/memory/memory.usage_in_bytes", "/sys/fs/cgroup/memory.current"]
usage = open(next(path for path in paths if os.path.exists(path)))
def used():
    usage.seek(0)
    return int(usage.read())
before, held = used(), []
try:
    while len(held) < 50_000:
        held.append(os.eventfd(0))
except OSError:
    pass
print(len(held), used() - before)
PYTHON
    "#;
    let said = run(&jail, &spec, script).await;
    let numbers: Vec<u64> = said
        .split_whitespace()
        .map(|n| n.parse().unwrap())
        .collect();
    let [held, bytes] = numbers[..] else {
        panic!("{said}")
    };
    assert!(held >= 1000, "{said}");
    // The list of them in Python is a part of it.
    let each = bytes / held;
    assert!(each >= 128, "a file costs {each} bytes of memory");
    let text = fs::read_to_string("/proc/sys/fs/file-max").unwrap();
    let most: u64 = text.trim().parse().unwrap();
    assert!(memory / 128 < most / 100, "{most}");
    jail.destroy(&spec.id, None).await.unwrap();
    jail.close().await;
}

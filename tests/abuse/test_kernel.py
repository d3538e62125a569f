"""System calls and files that would lead out.

Values are chosen so that an attempt that succeeds does little harm to the host; the fixture
`host_is_unharmed` finds and undoes what can be undone.
"""

import os
import subprocess

import pytest

from support.waiting import eventually

pytestmark = pytest.mark.timeout(120)

ATTACKS = {
    "mount": """
buf = lambda text: ctypes.c_char_p(text)
os.makedirs("/tmp/m", exist_ok=True)
refused("tmpfs", syscall(165, buf(b"none"), buf(b"/tmp/m"), buf(b"tmpfs"), 0, None))
refused("proc", syscall(165, buf(b"proc"), buf(b"/tmp/m"), buf(b"proc"), 0, None))
refused("bind", syscall(165, buf(b"/"), buf(b"/tmp/m"), None, 4096, None))
refused("remount", syscall(165, buf(b"none"), buf(b"/"), None, 32, None))
refused("umount", syscall(166, buf(b"/proc"), 2))
refused("pivot_root", syscall(155, buf(b"/tmp"), buf(b"/tmp")))
refused("fsopen", syscall(430, buf(b"tmpfs"), 0))
refused("open_tree clone", syscall(428, -100, buf(b"/"), 1))
refused("move_mount", syscall(429, -100, buf(b"/tmp"), -100, buf(b"/tmp/m"), 0))
refused("mount_setattr", syscall(442, -100, buf(b"/"), 0, ctypes.create_string_buffer(32), 32))
""",
    "namespaces": """
for name, flag in {"user": 0x10000000, "mnt": 0x20000, "pid": 0x20000000, "net": 0x40000000,
                   "ipc": 0x8000000, "uts": 0x4000000, "cgroup": 0x2000000, "time": 0x80}.items():
    if os.fork() == 0:
        refused(f"unshare {name}", syscall(272, flag))
        sys.stdout.flush()
        os._exit(0)
    os.wait()
class Args(ctypes.Structure):
    _fields_ = [(n, ctypes.c_uint64) for n in "flags pidfd child_tid parent_tid exit_signal stack stack_size tls".split()]
args = Args(flags=0x10000000, exit_signal=17)
result = syscall(435, ctypes.byref(args), ctypes.sizeof(args))
if result[0] == 0:
    os._exit(0)
refused("clone3 user", result)
result = syscall(56, 0x10000000 | 17, 0, 0, 0, 0)
if result[0] == 0:
    os._exit(0)
refused("clone user", result)
for pid in ("1", "self"):
    for kind in ("mnt", "net", "pid", "user"):
        try:
            fd = os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY)
        except OSError as error:
            print(f"open ns {pid} {kind}: refused {error.errno}")
            continue
        refused(f"setns {pid} {kind}", syscall(308, fd, 0))
refused("setns pidfd", syscall(308, max(syscall(434, 1, 0)[0], 0), 0x20000 | 0x40000000))
""",
    "devices": """
import stat
for name, kind, major, minor in [("sda", stat.S_IFBLK, 8, 0), ("vda", stat.S_IFBLK, 254, 0), ("loop", stat.S_IFBLK, 7, 0),
                                 ("mem", stat.S_IFCHR, 1, 1), ("kmsg", stat.S_IFCHR, 1, 11), ("kvm", stat.S_IFCHR, 10, 232),
                                 ("tun", stat.S_IFCHR, 10, 200), ("fuse", stat.S_IFCHR, 10, 229), ("null", stat.S_IFCHR, 1, 3)]:
    def make(name=name, kind=kind, major=major, minor=minor):
        path = f"/tmp/dev-{name}"
        os.mknod(path, 0o666 | kind, os.makedev(major, minor))
        # Making a node harms nobody as long as it cannot be opened.
        try:
            os.open(path, os.O_RDONLY)
        finally:
            os.unlink(path)
        return "opened"
    attempt(f"mknod {name}", make)
for path in ["/dev/mem", "/dev/kmem", "/dev/kmsg", "/dev/port", "/dev/kvm", "/dev/net/tun", "/dev/fuse", "/dev/loop-control",
             "/dev/loop0", "/dev/vda", "/dev/sda", "/dev/nvme0n1", "/dev/vhost-net", "/dev/vsock", "/dev/dri/card0"]:
    attempt(f"open {path}", lambda: os.open(path, os.O_RDWR))
""",
    "sockets": """
for name, family, kind, protocol in [
    ("raw icmp", socket.AF_INET, socket.SOCK_RAW, 1), ("raw tcp", socket.AF_INET, socket.SOCK_RAW, 6),
    ("raw ip", socket.AF_INET, socket.SOCK_RAW, 255), ("raw ip6", socket.AF_INET6, socket.SOCK_RAW, 58),
    ("packet", 17, socket.SOCK_RAW, 0x0300), ("packet dgram", 17, socket.SOCK_DGRAM, 0x0300),
    ("vsock", 40, socket.SOCK_STREAM, 0), ("alg", 38, socket.SOCK_SEQPACKET, 0), ("xdp", 44, socket.SOCK_RAW, 0),
    ("kcm", 41, socket.SOCK_DGRAM, 0), ("bluetooth", 31, socket.SOCK_RAW, 1), ("can", 29, socket.SOCK_RAW, 1),
    ("tipc", 30, socket.SOCK_RDM, 0), ("nfc", 39, socket.SOCK_SEQPACKET, 0), ("audit", 16, socket.SOCK_RAW, 9),
    ("netfilter", 16, socket.SOCK_RAW, 12), ("xfrm", 16, socket.SOCK_RAW, 6),
    ("mptcp", socket.AF_INET, socket.SOCK_STREAM, 262), ("mptcp6", socket.AF_INET6, socket.SOCK_STREAM, 262),
    ("udplite", socket.AF_INET, socket.SOCK_DGRAM, 136), ("udplite6", socket.AF_INET6, socket.SOCK_DGRAM, 136),
    ("sctp", socket.AF_INET, socket.SOCK_STREAM, 132), ("sctp packets", socket.AF_INET, socket.SOCK_SEQPACKET, 132),
    ("dccp", socket.AF_INET, 6, 33), ("l2tp", socket.AF_INET, socket.SOCK_DGRAM, 115),
]:
    attempt(name, lambda: socket.socket(family, kind, protocol).fileno())
for family in (socket.AF_INET, 30):
    attempt(f"pair of family {family}", lambda: socket.socketpair(family, socket.SOCK_STREAM))
""",
    "kernel interfaces": """
attr = ctypes.create_string_buffer(256)
key = ctypes.c_char_p(b"user"); name = ctypes.c_char_p(b"name"); value = ctypes.c_char_p(b"value")
refused("bpf map", syscall(321, 0, attr, 128))
refused("bpf prog", syscall(321, 5, attr, 128))
refused("io_uring_setup", syscall(425, 8, attr))
refused("userfaultfd", syscall(323, 0))
refused("userfaultfd user-mode", syscall(323, 1))
refused("perf_event_open", syscall(298, attr, 0, -1, -1, 0))
refused("add_key", syscall(248, key, name, value, 5, -2))
refused("request_key", syscall(249, key, name, None, -2))
refused("keyctl join", syscall(250, 1, None))
refused("keyctl describe", syscall(250, 6, -3, attr, 256))
refused("init_module", syscall(175, attr, 256, ctypes.c_char_p(b"")))
refused("finit_module", syscall(313, 0, ctypes.c_char_p(b""), 0))
refused("delete_module", syscall(176, ctypes.c_char_p(b"dummy"), 0))
refused("kexec_load", syscall(246, 0, 0, None, 0))
refused("reboot", syscall(169, 0xfee1dead, 672274793, 0, None))  # only "ignore Ctrl-Alt-Del"
refused("swapon", syscall(167, ctypes.c_char_p(b"/tmp/x"), 0))
refused("acct", syscall(163, ctypes.c_char_p(b"/tmp/x")))
refused("syslog read", syscall(103, 3, attr, 256))
refused("syslog clear", syscall(103, 5, None, 0))
import time
refused("settimeofday", syscall(164, ctypes.create_string_buffer(struct.pack("qq", int(time.time()), 0)), None))
refused("clock_settime", syscall(227, 0, ctypes.create_string_buffer(struct.pack("qq", int(time.time()), 0))))
refused("adjtimex", syscall(159, ctypes.create_string_buffer(bytes([1]) + bytes(255))))
refused("sethostname", syscall(170, ctypes.c_char_p(b"owned"), 5))
refused("setdomainname", syscall(171, ctypes.c_char_p(b"owned"), 5))
refused("iopl", syscall(172, 3))
refused("ioperm", syscall(173, 0, 8, 1))
refused("quotactl", syscall(179, 0, None, 0, None))
refused("open_by_handle_at", syscall(304, -100, attr, 0))
refused("name_to_handle mount fd", syscall(304, 0, attr, 0))
refused("fanotify_init", syscall(300, 0, 0))
refused("lookup_dcookie", syscall(212, 0, attr, 256))
import mmap
page = mmap.mmap(-1, 4096)
refused("mincore", syscall(27, ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(page))), 4096, attr))
program = os.open(sys.executable, os.O_RDONLY)
refused("cachestat", syscall(451, program, ctypes.create_string_buffer(16), attr, 0))
refused("move_pages of pid 1", syscall(279, 1, 1, attr, None, attr, 0))
""",
    "tracing envd": """
refused("ptrace attach", syscall(101, 16, 1, 0, 0))
refused("ptrace seize", syscall(101, 0x4206, 1, 0, 0))
refused("pidfd_getfd", syscall(438, max(syscall(434, 1, 0)[0], 0), 0, 0))
refused("kcmp", syscall(312, 1, 1, 0, 0, 0))
here = ctypes.create_string_buffer(8)
local = ctypes.create_string_buffer(struct.pack("QQ", ctypes.addressof(here), 8))
remote = ctypes.create_string_buffer(struct.pack("QQ", 0x400000, 8))
value, name = syscall(310, 1, local, 1, remote, 1, 0)
print("process_vm_readv:", "DONE" if value >= 0 or name == "EFAULT" else "refused " + name)
for name in ("mem", "environ", "maps", "stack", "syscall"):
    attempt(f"/proc/1/{name}", lambda: open(f"/proc/1/{name}", "rb").read(1))
attempt("write /proc/1/mem", lambda: os.open("/proc/1/mem", os.O_RDWR))
def root_of_envd():
    if os.stat("/proc/1/root/etc").st_ino == os.stat("/etc").st_ino:
        raise PermissionError(1, "only the sandbox's own root")
    return os.listdir("/proc/1/root")
attempt("/proc/1/root", root_of_envd)
""",
    "proc and sys": """
for path, text in [
    ("/proc/sys/kernel/core_pattern", "core.attacked"), ("/proc/sys/kernel/modprobe", "/tmp/x"), ("/proc/sys/vm/overcommit_memory", "1"),
    ("/proc/sys/kernel/hostname", "owned"), ("/proc/sys/net/ipv4/ip_forward", "1"), ("/proc/sys/fs/binfmt_misc/register", ":x:"),
    ("/proc/sysrq-trigger", "h"), ("/proc/sys/kernel/panic", "1"), ("/proc/acpi/wakeup", "x"), ("/proc/irq/0/smp_affinity", "1"),
    ("/proc/sys/user/max_user_namespaces", "0"), ("/proc/self/uid_map", "0 0 4294967295"), ("/proc/1/uid_map", "0 0 1"),
    ("/sys/kernel/uevent_helper", "/tmp/x"), ("/sys/power/state", "mem"), ("/sys/kernel/mm/transparent_hugepage/enabled", "never"),
    ("/sys/module/loop/parameters/max_loop", "1"), ("/sys/class/net/eth0/mtu", "100"), ("/sys/kernel/debug/x", "x"),
    ("/sys/firmware/efi/vars", "x"), ("/sys/fs/cgroup/release_agent", "/tmp/x"),
]:
    attempt(f"write {path}", lambda: os.write(os.open(path, os.O_WRONLY), text.encode()))
def content(path):
    data = open(path, "rb").read(100)
    if not data.strip(b"\\0 \\n"):
        raise PermissionError(1, "masked")
    return data
for path in ["/proc/kcore", "/proc/kmsg", "/proc/kallsyms.x", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/sched_debug",
             "/proc/kpagecount", "/proc/kpageflags", "/proc/vmcore", "/proc/config.x", "/sys/firmware/acpi/tables/DSDT", "/sys/kernel/notes.x",
             "/sys/kernel/security/x", "/sys/kernel/tracing/trace", "/sys/kernel/debug/sched/debug"]:
    attempt(f"read {path}", lambda: content(path))
""",
    "cgroups": """
def walk():
    for top, folders, files in os.walk("/sys/fs/cgroup"):
        for name in files:
            yield f"{top}/{name}"
        if top.count("/") > 8:
            folders.clear()
print("looked: refused")
for path in list(walk())[:2000]:
    if path.endswith(("release_agent", "memory.max", "memory.limit_in_bytes", "pids.max", "cgroup.procs", "tasks",
                      "devices.allow", "cpu.max", "cpu.cfs_quota_us", "notify_on_release", "memory.high", "cgroup.freeze", "freezer.state")):
        attempt(f"write {path}", lambda: os.write(os.open(path, os.O_WRONLY), b"0"))
attempt("mkdir", lambda: os.mkdir("/sys/fs/cgroup/escape"))
""",
    "chroot": """
os.makedirs("/tmp/jail/deep", exist_ok=True)
def escape():
    outside = os.open("/", os.O_RDONLY)
    os.chroot("/tmp/jail/deep")
    os.fchdir(outside)
    for _ in range(64):
        os.chdir("..")
    os.chroot(".")
    # At best the sandbox's own root again.
    if os.path.exists("/tmp/jail/deep") or os.path.exists("/home/user"):
        raise PermissionError(1, "only the sandbox's own root")
    return os.listdir("/")
attempt("chroot", escape)
fd = os.open("/", os.O_RDONLY)
for name in ("..", "../..", "../../../../../../.."):
    attempt(name, lambda: (_ for _ in ()).throw(PermissionError(1, "own root")) if os.stat(name, dir_fd=fd).st_ino == os.stat("/").st_ino else "out")
""",
    "signals": """
import signal
outside = []
for pid in range(2, 70000):
    if os.path.exists(f"/proc/{pid}"):
        continue
    result = syscall(62, pid, 0)
    if result[0] == 0:
        outside.append(pid)
print("signal 0 outside: " + ("DONE" if outside else "refused ESRCH"))
# Root inside may ask its own sandbox to end (SIGTERM); nobody inside can simply take pid 1 away.
for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV, signal.SIGUSR1, signal.SIGABRT):
    syscall(62, 1, int(number))
print("pid 1 lives: " + ("refused" if os.path.exists("/proc/1/stat") else "DONE"))
""",
}


HARM_TO_ENVD = """
attempt("oom_score_adj of envd", lambda: open("/proc/1/oom_score_adj", "w").write("1000"))
refused("prlimit of envd", syscall(302, 1, 7, ctypes.create_string_buffer(16), None))
refused("SIGKILL to envd", syscall(62, 1, 9))
"""


def test_the_user_cannot_harm_envd(attacker, refused):
    if attacker.user == "root":
        pytest.skip("root inside may harm its own sandbox; nothing else, as the other tests show")
    refused(attacker.python(HARM_TO_ENVD))
    attacker.survives()


@pytest.mark.parametrize("name", ATTACKS)
def test_every_attempt_is_refused(attacker, refused, name):
    refused(attacker.python(ATTACKS[name]))
    attacker.survives()


def test_nothing_of_the_hosts_processes_is_seen(attacker):
    marker = f"soulbox-host-marker-{os.getpid()}"
    host = subprocess.Popen(["sleep", "300"], env={"MARKER": marker})
    try:
        inside = attacker.run("ps -eo args=; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'").stdout
        assert marker not in inside
        assert "soulbox serve" not in inside
        count = int(attacker.run("ls -d /proc/[0-9]* | wc -l").stdout)
        assert count < 30
    finally:
        host.kill()
        host.wait(10)


def test_nothing_private_of_the_host_is_seen(attacker, server, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("host secret")
    secret.chmod(0o644)
    for path in (secret, server.data / "env", server.data / "seed", server.data, server.log):
        assert attacker.run(f"sudo cat {path} 2>/dev/null || sudo ls {path}").exit_code != 0, path
    host_shadow = open("/etc/shadow").read()
    inside = attacker.run("sudo cat /etc/shadow 2>/dev/null || true").stdout
    for line in host_shadow.splitlines():
        fields = line.split(":")
        if len(fields) > 1 and len(fields[1]) > 8:
            assert fields[1] not in inside
    for path in ("/root/.ssh", "/root/.bash_history", "/var/lib/docker", "/boot", "/run/docker.sock", "/var/run/docker.sock"):
        assert attacker.run(f"sudo ls -A {path} 2>/dev/null").stdout.strip() == "", path
    mounts = attacker.run("cat /proc/self/mountinfo").stdout
    assert str(server.data) not in mounts


def test_the_hosts_usr_cannot_be_written_through(attacker):
    attacker.run("sudo sh -c 'echo owned > /usr/bin/soulbox-owned; echo owned >> /usr/bin/env.x; rm -f /usr/bin/true'")
    assert not os.path.exists("/usr/bin/soulbox-owned")
    assert not os.path.exists("/usr/bin/env.x")
    assert os.path.exists("/usr/bin/true")


def test_a_setuid_file_made_inside_is_powerless_outside(attacker, server):
    attacker.run("cp /bin/sh /home/user/suid; sudo chown root /home/user/suid; sudo chmod 4755 /home/user/suid")
    for top, _, files in os.walk(server.data / "sandboxes"):
        assert "suid" not in files, top


def test_no_lock_is_shared_with_a_neighbour(attacker, neighbour):
    lock = "import fcntl, sys; fcntl.flock(open(sys.argv[1]), fcntl.LOCK_EX | fcntl.LOCK_NB); print('locked', flush=True)"
    for path in ("/dev/null", "/dev/zero", "/dev/urandom", "/proc/interrupts", "/sys/devices/system/cpu/online"):
        attacker.run("rm -f /tmp/held")
        holding = f"{lock}; open('/tmp/held', 'w').close(); sys.stdin.read()"
        held = attacker.sandbox.commands.run(
            f'python3 -c "{holding}" {path}', background=True, stdin=True, user=attacker.user, timeout=60
        )
        try:
            eventually(
                lambda: attacker.run("ls /tmp/held 2> /dev/null | wc -l").stdout == "1\n", within=20, what="the lock is held"
            )
            other = neighbour.sandbox.commands.run(f'python3 -c "{lock}" {path}', timeout=20)
            assert other.stdout == "locked\n", path
        finally:
            held.kill()


def test_capabilities_are_bounded(attacker):
    status = attacker.run("grep -i capbnd /proc/self/status").stdout.split()[1]
    bounding = int(status, 16)
    forbidden = {"SYS_ADMIN": 21, "SYS_MODULE": 16, "SYS_RAWIO": 17, "SYS_BOOT": 22, "SYS_TIME": 25, "NET_RAW": 13,
                 "NET_ADMIN": 12, "MKNOD": 27, "AUDIT_CONTROL": 30, "MAC_ADMIN": 33, "SYSLOG": 34, "BPF": 39, "PERFMON": 38}  # fmt: skip
    assert [name for name, bit in forbidden.items() if bounding >> bit & 1] == []
    assert "Seccomp:\t2" in attacker.run("cat /proc/self/status").stdout


def test_the_outside_uid_is_not_a_users(attacker, server):
    attacker.starts("exec sleep 7777")
    uids = eventually(lambda: owners_of("sleep\x007777\x00"))
    assert all(uid >= 65536 for uid in uids), uids


def owners_of(command_line):
    uids = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline") as file:
                if file.read() == command_line:
                    uids.add(os.stat(f"/proc/{pid}").st_uid)
        except OSError:
            pass
    return uids

#!/usr/bin/env python3
"""What bounds the number of sandboxes on this host: what each kernel resource costs, and its limit.

    python3 bench/host_limits.py                       # costs and limits, about five minutes
    python3 bench/host_limits.py --limits              # only the limits, at once
    python3 bench/host_limits.py --only netns,veth     # only some costs
    python3 bench/host_limits.py --limits --server PID # with the limits of that soulbox server

Needs root, and from Debian: iproute2, nftables, e2fsprogs. Changes no setting of the host.

Method. For each resource a process of its own makes N of it and holds them. Before and after that,
/proc/meminfo and /proc/slabinfo are read: the differences of MemAvailable, Slab, Percpu and of the
bytes of live slab objects, divided by N, are what one costs; the time is that of making, divided by
N. The median of several rounds is printed, and first of all a row in which nothing is made: the
noise of this machine, which other rows must exceed to mean something. At small N they mostly do
not; the cost to use is that of the largest N. Slab counts pages, and the kernel keeps those of an
earlier round; the objects in them are the steadier figure.

Nothing is left behind: namespaces, links, mounts, loop devices' files, sets, connections and
watches live in private namespaces of the process that makes them and go when it is killed, which
happens after a fixed time in any case; cgroups and added loop devices are removed by name. The
kernel's bookkeeping per memory cgroup stays as large as it was at its largest (docs/scale.md).
"""

import argparse
import contextlib
import ctypes
import errno
import fcntl
import json
import os
import resource
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

COUNTS = (10, 100, 1_000)
# Of what costs less than a page, a thousand cannot be told from noise.
SMALL_COUNTS = (10, 100, 1_000, 50_000)
WORKER_SECONDS = 180
SETTLE_SECONDS = 3
ENOUGH_MIB = 4_096
MEMORY = ("MemAvailable", "Slab", "Objects", "Percpu")

CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x02000000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_PRIVATE_RECURSIVE = (1 << 18) | (1 << 14)
PR_SET_PDEATHSIG = 1
LOOP_CTL_GET_FREE, LOOP_CTL_REMOVE = 0x4C82, 0x4C81
LOOP_CONFIGURE = 0x4C0A
LOOP_AUTOCLEAR = 4
IN_CREATE = 0x100

libc = ctypes.CDLL(None, use_errno=True)


# --- system calls that Python lacks --------------------------------------------------------------


def checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def unshare(flags: int) -> None:
    checked(libc.unshare(flags))


def mount(kind: str, target: Path, source: str = "none", options: str = "", flags: int = 0) -> None:
    encoded = [each.encode() for each in (source, str(target), kind)]
    checked(libc.mount(*encoded, ctypes.c_ulong(flags), options.encode()))


def no_inherited_mounts() -> None:
    """From here on, mounts of this process are seen by nobody else and die with it."""
    unshare(CLONE_NEWNS)
    mount("none", Path("/"), flags=MS_PRIVATE_RECURSIVE)


def loop_device(image: Path) -> str:
    """Attaches an image as the product does: direct use of the file, freed with its last user."""
    with open("/dev/loop-control", "rb+", buffering=0) as control, open(image, "rb+") as backing:
        for _ in range(100):
            name = f"/dev/loop{fcntl.ioctl(control, LOOP_CTL_GET_FREE)}"
            device = os.open(name, os.O_RDWR | os.O_CLOEXEC)
            # struct loop_config: fd, block size, loop_info64 (flags at its byte 52), reserved.
            config = bytearray(304)
            struct.pack_into("=II", config, 0, backing.fileno(), 4096)
            struct.pack_into("=I", config, 8 + 52, LOOP_AUTOCLEAR)
            try:
                fcntl.ioctl(device, LOOP_CONFIGURE, bytes(config))
            except OSError as error:
                os.close(device)
                if error.errno != errno.EBUSY:
                    raise
                continue  # Somebody was faster.
            held.append(device)
            return name
    raise OSError(errno.EBUSY, "no loop device after 100 attempts")


held: list[int] = []


# --- the resources: each function makes `count` of it, and says so after each ----------------------


def a_network_namespace(count, made, scratch):
    for _ in range(count):
        unshare(CLONE_NEWNET)
        held.append(os.open("/proc/thread-self/ns/net", os.O_RDONLY))
        made()


def a_veth_pair(count, made, scratch):
    unshare(CLONE_NEWNET)
    lines = "".join(f"link add a{n} up type veth peer name b{n}\n" for n in range(count))
    run(["ip", "-batch", "-"], lines)
    made(count)


def a_mount_namespace(count, made, scratch):
    no_inherited_mounts()
    for _ in range(count):
        unshare(CLONE_NEWNS)
        held.append(os.open("/proc/thread-self/ns/mnt", os.O_RDONLY))
        made()


def ipc_uts_and_cgroup_namespaces(count, made, scratch):
    for _ in range(count):
        unshare(CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP)
        held.extend(os.open(f"/proc/thread-self/ns/{each}", os.O_RDONLY) for each in ("ipc", "uts", "cgroup"))
        made()


def a_user_namespace(count, made, scratch):
    """It needs a process to be born in, which is killed as soon as the namespace is held."""
    for _ in range(count):
        ready, told = os.pipe()
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                unshare(CLONE_NEWUSER)
                os.write(told, b".")
                signal.pause()
            os._exit(1)
        os.close(told)
        if os.read(ready, 1) != b".":
            raise OSError(errno.ENOSPC, "unshare(CLONE_NEWUSER) failed: see user.max_user_namespaces")
        os.close(ready)
        held.append(os.open(f"/proc/{child}/ns/user", os.O_RDONLY))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        made()


def a_process(count, made, scratch):
    """`sleep`, which is about the smallest that a distribution has."""
    for _ in range(count):
        os.posix_spawn("/bin/sleep", ["sleep", str(WORKER_SECONDS)], {})
        made()


def a_process_with_own_pids_and_proc(count, made, scratch):
    no_inherited_mounts()
    mount("tmpfs", scratch)
    own = os.open("/proc/self/ns/pid", os.O_RDONLY)
    for number in range(count):
        place = scratch / str(number)
        place.mkdir()
        checked(libc.setns(own, CLONE_NEWPID))
        unshare(CLONE_NEWPID)
        ready, told = os.pipe2(os.O_CLOEXEC)
        if os.fork() == 0:
            with contextlib.suppress(BaseException):
                mount("proc", place)
                # Close-on-exec tells the parent that all went well; an error is written.
                os.execv("/bin/sleep", ["sleep", str(WORKER_SECONDS)])
            os.write(told, b"!")
            os._exit(1)
        os.close(told)
        if os.read(ready, 1):
            raise OSError(errno.EIO, "no fresh /proc")
        os.close(ready)
        made()


def a_tmpfs(count, made, scratch):
    no_inherited_mounts()
    mount("tmpfs", scratch)
    for number in range(count):
        place = scratch / str(number)
        place.mkdir()
        mount("tmpfs", place, options="size=1m")
        made()


def an_overlay(count, made, scratch):
    no_inherited_mounts()
    mount("tmpfs", scratch)
    places = []
    for number in range(count):
        base = scratch / str(number)
        for name in ("upper", "work", "on"):
            (base / name).mkdir(parents=True)
        places.append(base)
    made.start()
    for base in places:
        mount("overlay", base / "on", options=f"lowerdir=/usr,upperdir={base}/upper,workdir={base}/work")
        made()


def blank_disk(scratch: Path) -> Path:
    """Formatted as `crates/jail` does, 10 GiB large, with holes where there is nothing."""
    raw, blank = scratch / "raw", scratch / "blank"
    with open(raw, "wb") as file:
        file.truncate(10 << 30)
    run(["mkfs.ext4", "-q", "-F", "-b", "4096", "-m", "0", "-i", "32768", "-J", "size=4",
         "-O", "^resize_inode,sparse_super2",
         "-E", "packed_meta_blocks=1,nodiscard,lazy_itable_init=1,root_owner=0:0", str(raw)])  # fmt: skip
    run(["cp", "--sparse=always", str(raw), str(blank)])
    raw.unlink()
    return blank


def a_disk_image(count, made, scratch):
    blank = blank_disk(scratch)
    made.start()
    for number in range(count):
        run(["cp", "--sparse=always", str(blank), str(scratch / f"{number}.img")])
        made()


def a_loop_device(count, made, scratch):
    """Every device has a file of 64 MiB without content."""
    for number in range(count):
        image = scratch / f"{number}.img"
        with open(image, "wb") as file:
            file.truncate(64 << 20)
        loop_device(image)
        made()


def a_mounted_disk(count, made, scratch):
    """Loop device and ext4 together; the images are made before."""
    no_inherited_mounts()
    blank = blank_disk(scratch)
    for number in range(count):
        run(["cp", "--sparse=always", str(blank), str(scratch / f"{number}.img")])
        (scratch / str(number)).mkdir()
    os.sync()
    made.start()
    for number in range(count):
        device = loop_device(scratch / f"{number}.img")
        mount("ext4", scratch / str(number), device, "nobarrier,discard,noinit_itable")
        os.close(held.pop())
        made()


def cgroup_in(hierarchy: Path):
    def make(count, made, scratch):
        parent = hierarchy / scratch.name
        parent.mkdir()
        for number in range(count):
            (parent / str(number)).mkdir()
            made()

    return make


def an_nftables_element(count, made, scratch):
    """Two addresses, as in the sets with rules of single sandboxes; all in one transaction."""
    unshare(CLONE_NEWNET)
    run(["nft", "add table inet t; add set inet t s { type ipv4_addr . ipv4_addr; flags interval; }"])
    made.start()
    elements = ",".join(f"10.1.{n >> 8 & 255}.{n & 255} . 1.{n >> 16}.1.1" for n in range(count))
    run(["nft", "-f", "-"], f"add element inet t s {{ {elements} }}\n")
    made(count)


def a_tracked_connection(count, made, scratch):
    """One datagram each over the loopback of a namespace, in which a rule asks for states."""
    unshare(CLONE_NEWNET)
    run(["ip", "link", "set", "lo", "up"])
    run(["nft", "add table inet t; add chain inet t c { type filter hook output priority 0; };"
         " add rule inet t c ct state new accept"])  # fmt: skip
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.start()
    for number in range(count):
        sender.sendto(b".", (f"127.0.{number >> 14 & 255}.1", 1024 + (number & 16383)))
        made()
    tracked = int(read("/proc/sys/net/netfilter/nf_conntrack_count"))
    if tracked < count * 0.99:
        raise OSError(errno.ENOBUFS, f"{tracked} of {count} are tracked: see net.netfilter.nf_conntrack_max")


def an_inotify_instance(count, made, scratch):
    for _ in range(count):
        held.append(checked(libc.inotify_init1(0o2000000)))
        made()


def an_inotify_watch(count, made, scratch):
    no_inherited_mounts()
    mount("tmpfs", scratch, options="nr_inodes=0")
    instance = checked(libc.inotify_init1(0o2000000))
    for number in range(count):
        os.mkdir(scratch / str(number))
    made.start()
    for number in range(count):
        checked(libc.inotify_add_watch(instance, str(scratch / str(number)).encode(), IN_CREATE))
        made()


def nothing(count, made, scratch):
    time.sleep(2)
    made(count)


def resources() -> dict:
    table = {
        "nothing": ("nothing, for two seconds (the noise)", nothing, COUNTS[-1:]),
        "netns": ("network namespace", a_network_namespace, COUNTS),
        "veth": ("veth pair", a_veth_pair, COUNTS),
        "mntns": ("mount namespace (a copy of the host's mounts)", a_mount_namespace, COUNTS),
        "ipcns": ("ipc + uts + cgroup namespace", ipc_uts_and_cgroup_namespaces, COUNTS),
        "userns": ("user namespace", a_user_namespace, COUNTS),
        "process": ("process (`sleep`)", a_process, COUNTS),
        "proc": ("the same with own pid namespace and `/proc`", a_process_with_own_pids_and_proc, COUNTS),
        "tmpfs": ("tmpfs, empty", a_tmpfs, COUNTS),
        "overlay": ("overlay over `/usr`", an_overlay, COUNTS),
        "image": ("disk image, copied", a_disk_image, COUNTS),
        "loop": ("loop device", a_loop_device, COUNTS),
        "disk": ("loop device with mounted ext4", a_mounted_disk, COUNTS),
    }
    for name, hierarchy in hierarchies().items():
        table[f"cgroup-{name}"] = (f"cgroup: {name}", cgroup_in(hierarchy), COUNTS)
    return table | {
        "element": ("nftables set element", an_nftables_element, SMALL_COUNTS),
        "conntrack": ("tracked connection", a_tracked_connection, SMALL_COUNTS),
        "inotify": ("inotify instance", an_inotify_instance, COUNTS),
        "watch": ("inotify watch", an_inotify_watch, SMALL_COUNTS),
    }


def hierarchies() -> dict[str, Path]:
    """The hierarchies that sandboxes have groups in."""
    if (controllers := Path("/sys/fs/cgroup/cgroup.controllers")).exists():
        return {f"v2 ({controllers.read_text().strip()})": Path("/sys/fs/cgroup")}
    found = {}
    for line in read("/proc/mounts").splitlines():
        _, place, kind, options, *_ = line.split()
        used = {"cpu", "cpuacct", "memory", "pids", "freezer", "blkio"} & set(options.split(","))
        if kind == "cgroup" and used:
            found["+".join(sorted(used))] = Path(place)
    return found


# --- measuring -------------------------------------------------------------------------------------


def read(path: str) -> str:
    return Path(path).read_text()


def run(command: list[str], text: str = "") -> str:
    done = subprocess.run(command, input=text, text=True, capture_output=True, timeout=WORKER_SECONDS, check=False)
    if done.returncode:
        raise OSError(errno.EIO, f"{command[0]}: {done.stderr.strip()[:300]}")
    return done.stdout


def memory() -> dict[str, int]:
    """KiB."""
    values = {}
    for line in read("/proc/meminfo").splitlines():
        name, number, *_ = line.split()
        values[name.rstrip(":")] = int(number)
    values["Objects"] = sum(
        int(active) * int(size) >> 10
        for _, active, _, size, *_ in (line.split() for line in read("/proc/slabinfo").splitlines()[2:])
    )
    return values


class Made:
    """Counts what is made and for how long; what comes before `start` is preparation."""

    def __init__(self) -> None:
        self.count = 0
        self.start()

    def start(self) -> None:
        self.before = memory()
        self.began = time.perf_counter()

    def __call__(self, more: int = 1) -> None:
        self.count += more


def worker(name: str, count: int, scratch: Path, answer: int) -> None:
    """Makes, tells, and waits to be killed."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    checked(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL))
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    signal.alarm(WORKER_SECONDS)
    made, why = Made(), None
    try:
        resources()[name][1](count, made, scratch)
    except OSError as error:
        why = f"{errno.errorcode.get(error.errno or 0, '?')}: {error.strerror}"
    took = time.perf_counter() - made.began
    after = memory()
    kib = {key: after[key] - made.before[key] for key in MEMORY}
    told = {"made": made.count, "seconds": took, "kib": kib, "why": why}
    os.write(answer, json.dumps(told).encode())
    os.close(answer)
    while True:
        signal.pause()


def measure(name: str, count: int) -> dict:
    scratch = Path(tempfile.mkdtemp(prefix="host-limits-"))
    answer, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(answer)
        os.setpgid(0, 0)
        try:
            worker(name, count, scratch, told)
        finally:
            os._exit(1)
    os.close(told)
    try:
        with os.fdopen(answer, "rb") as pipe:
            text = pipe.read()
        return json.loads(text) if text else {"made": 0, "why": f"no answer in {WORKER_SECONDS} s"}
    finally:
        end(child)
        for hierarchy in hierarchies().values():
            parent = hierarchy / scratch.name
            if parent.exists():
                for group in [each for each in parent.iterdir() if each.is_dir()]:
                    group.rmdir()
                parent.rmdir()
        shutil.rmtree(scratch, ignore_errors=True)
        settle()


def end(child: int) -> None:
    """The worker and what it started: they share a process group, unless it was too early for one."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError):
            kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def settle() -> None:
    """The kernel takes namespaces down after their last user; wait until memory stands still."""
    last, still, stop = -1, 0, time.monotonic() + SETTLE_SECONDS
    while still < 3 and time.monotonic() < stop:
        time.sleep(0.2)
        now = memory()["Percpu"]
        still = still + 1 if now == last else 0
        last = now


def loops() -> set[int]:
    return {int(each.name[4:]) for each in Path("/sys/block").glob("loop*")}


def remove_loops(before: set[int]) -> str | None:
    """Safe beside others: the kernel hands out the lowest free number, so nobody is about to get these."""
    added = sorted(loops() - before)
    if not added:
        return None
    used = [number for number in loops() if Path(f"/sys/block/loop{number}/loop").exists()]
    if 2 * len(used) > added[0]:
        return f"{len(added)} loop devices were added and stay, free: others are using many now"
    with open("/dev/loop-control", "rb+", buffering=0) as control:
        for number in reversed(added):
            # One that is used after all is refused.
            with contextlib.suppress(OSError):
                fcntl.ioctl(control, LOOP_CTL_REMOVE, number)
    return None


def costs(names: list[str], rounds: int) -> list[dict]:
    print("| one … | N | time | MemAvailable | Slab | objects in it | Percpu |\n|---|---|---|---|---|---|---|")
    rows, before, table = [], loops(), resources()
    for name in names:
        title, _, counts = table[name]
        for count in counts:
            if memory()["MemAvailable"] < ENOUGH_MIB << 10:
                print(f"stopped: less than {ENOUGH_MIB} MiB available", file=sys.stderr)
                return rows
            # The first makes the slabs that all later ones find.
            found = [measure(name, count) for _ in range(rounds)]
            whole = [each for each in found if each["made"]]
            row = {"name": name, "title": title, "count": count, "rounds": found}
            rows.append(row)
            if not whole:
                print(f"| {title} | {count:,} | {found[0]['why']} ||||", flush=True)
                continue
            each = statistics.median(one["seconds"] / one["made"] for one in whole)
            middle = {
                key: statistics.median(one["kib"][key] / one["made"] for one in whole)
                for key in MEMORY
            }
            made = min(one["made"] for one in whole)
            stopped = next((one["why"] for one in whole if one["why"]), None)
            note = f" (only {made:,}: {stopped})" if stopped else ""
            print(
                f"| {title} | {count:,}{note} | {duration(each)} | {kib(-middle['MemAvailable'])} "
                f"| {kib(middle['Slab'])} | {kib(middle['Objects'])} | {kib(middle['Percpu'])} |",
                flush=True,
            )
    if left := remove_loops(before):
        print(f"\n{left}")
    return rows


def duration(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-4 else f"{seconds * 1e6:.1f} µs"


def kib(value: float) -> str:
    return f"{value:,.0f} KiB" if abs(value) >= 10 else f"{value:.2f} KiB"


# --- limits ----------------------------------------------------------------------------------------


def number(path: str, field: int = 0) -> int | None:
    try:
        return int(read(path).split()[field])
    except (OSError, ValueError, IndexError):
        return None


def open_files_of(pid: int | None) -> tuple[int, int]:
    """The limit, and what is used."""
    if pid is None:
        return resource.getrlimit(resource.RLIMIT_NOFILE)[1], 0
    line = next(each for each in read(f"/proc/{pid}/limits").splitlines() if each.startswith("Max open files"))
    # Hard: the server raises its own to that.
    return int(line.split()[4]), len(os.listdir(f"/proc/{pid}/fd"))


# What one sandbox of the `base` template uses, idle, counted on a server with many
# (`bench/many_sandboxes.py` prints it anew).
FDS_OF_SERVER = 2
TASKS = 4
FILES = 10
DEVICELESS = 16


def limits(server: int | None) -> list[tuple]:
    """(what, setting, value, in use, by one sandbox, why or what it means)"""
    sysctl = lambda name, field=0: number(f"/proc/sys/{name.replace('.', '/')}", field)  # noqa: E731
    running = int(read("/proc/loadavg").split()[3].split("/")[1])
    most_files, used_files = open_files_of(server)
    low, high = sysctl("net.ipv4.ip_local_port_range"), sysctl("net.ipv4.ip_local_port_range", 1)
    ports = None if low is None or high is None else high - low + 1
    owned = "one each, on the account of the host's root"
    rows = [
        ("network slots", "crates/net", 4096, 0, 1, "per server; `--max-sandboxes` (1000) if smaller"),
        ("descriptors of the server", "RLIMIT_NOFILE (hard)", most_files, used_files, FDS_OF_SERVER, "the network namespace and the pidfd of each"),
        ("pids", "kernel.pid_max", sysctl("kernel.pid_max"), running, TASKS, "idle: two threads of envd, two of the kernel for ext4; every command adds one or more"),
        ("threads", "kernel.threads-max", sysctl("kernel.threads-max"), running, TASKS, "idle"),
        ("open files", "fs.file-max", sysctl("fs.file-max"), sysctl("fs.file-nr"), FILES, "all processes"),
        ("files of one process", "fs.nr_open", sysctl("fs.nr_open"), None, None, "the most that RLIMIT_NOFILE may be raised to"),
        ("mounts", "fs.mount-max", sysctl("fs.mount-max"), None, None, "per mount namespace, and each sandbox has its own"),
        ("loop devices", "minor numbers", 1 << 20, len(list(Path("/sys/block").glob("loop*/loop"))), 1, f"`max_loop={number('/sys/module/loop/parameters/max_loop')}` is only how many are made at boot"),
        ("file systems without a device", "minor numbers", 1 << 20, None, DEVICELESS, "overlay, tmpfs, proc, devpts, mqueue"),
        ("memory cgroups", "ids of the kernel", 65_535, cgroups("memory"), 1, "groups that are gone count while pages of theirs are cached"),
    ]  # fmt: skip
    for each in ("net", "mnt", "pid", "ipc", "uts", "cgroup"):
        setting = f"user.max_{each}_namespaces"
        rows.append((f"{each} namespaces", setting, sysctl(setting), None, 1, owned))
    rows += [
        ("user namespaces", "user.max_user_namespaces", sysctl("user.max_user_namespaces"), None, None, "each on the account of the sandbox's own id; 0 forbids sandboxes"),
        ("inotify instances", "fs.inotify.max_user_instances", sysctl("fs.inotify.max_user_instances"), None, None, "per sandbox, for the same reason"),
        ("inotify watches", "fs.inotify.max_user_watches", sysctl("fs.inotify.max_user_watches"), None, None, "per sandbox"),
        ("tracked connections", "net.netfilter.nf_conntrack_max", sysctl("net.netfilter.nf_conntrack_max"), sysctl("net.netfilter.nf_conntrack_count"), 0, "idle none; the table lets one sandbox have 4096"),
        ("neighbours", "net.ipv4.neigh.default.gc_thresh3", sysctl("net.ipv4.neigh.default.gc_thresh3"), None, 0, "permanent entries do not count"),
        ("terminals", "kernel.pty.max", sysctl("kernel.pty.max"), sysctl("kernel.pty.nr"), 0, f"one per open PTY on the whole host, less kernel.pty.reserve ({sysctl('kernel.pty.reserve')})"),
        ("keys", "kernel.keys.maxkeys", sysctl("kernel.keys.maxkeys"), None, 0, "per user; sandboxes cannot make keys"),
        ("local ports", "net.ipv4.ip_local_port_range", ports, None, 0, "per network namespace and destination: each sandbox has its own"),
        ("asynchronous requests", "fs.aio-max-nr", sysctl("fs.aio-max-nr"), sysctl("fs.aio-nr"), 0, "loop devices here do not use direct I/O"),
    ]  # fmt: skip
    return rows


def cgroups(controller: str) -> int | None:
    for line in read("/proc/cgroups").splitlines():
        name, _, count, *_ = line.split()
        if name == controller:
            return int(count)
    return None


def print_limits(server: int | None) -> None:
    print("| what | setting | limit here | in use | one sandbox | room for | |\n|---|---|---|---|---|---|---|")
    shown = lambda value: "–" if value is None else f"{value:,}"  # noqa: E731
    for what, setting, value, used, one, note in limits(server):
        allowed = f"{(value - (used or 0)) // one:,}" if value and one else "any"
        print(f"| {what} | `{setting}` | {shown(value)} | {shown(used)} | {shown(one)} | {allowed} | {note} |")


def machine() -> str:
    facts = os.uname()
    return f"{os.cpu_count()} cpus, {memory()['MemTotal'] >> 10:,} MiB memory, Linux {facts.release}, {facts.machine}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--limits", action="store_true", help="only the limits")
    parser.add_argument("--only", help="names of resources, with commas between")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--server", type=int, metavar="PID")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("needs root: namespaces, mounts and loop devices are made")
    known = list(resources())
    names = options.only.split(",") if options.only else known
    if unknown := set(names) - set(known):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are: {', '.join(known)}")
    # Ended politely, it still removes what it made.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended before it was done"))
    print(f"{machine()}\n")
    print_limits(options.server)
    if options.limits:
        return
    print(f"\nMedian of {options.rounds} rounds, for one of N:\n")
    rows = costs(names, options.rounds)
    if options.json:
        options.json.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()

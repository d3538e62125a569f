"""Using everything up: processes, memory, disk, output, time."""

import os
import threading

import pytest
from e2b import NotEnoughSpaceException, SandboxException, TimeoutException

from support.sdk import Sdk
from support.waiting import eventually

pytestmark = pytest.mark.timeout(240)


@pytest.mark.alone
def test_a_fork_bomb_stays_inside(attacker):
    attacker.starts("bomb() { bomb | bomb & }; bomb")
    eventually(lambda: pids_inside(attacker) > 100, within=30, what="the bomb has gone off")
    attacker.sandbox.files.write("still", "works")
    assert len([each for each in os.listdir("/proc") if each.isdigit()]) < 20_000
    stop(attacker)


# What a server takes when nobody says otherwise.
MAX_SANDBOXES = 1000

FILES = """
import os, resource, sys, time
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
for _ in range(7):
    if os.fork() == 0:
        break
held = []
try:
    while len(held) < 100_000:
        held.append(os.eventfd(0))
except OSError:
    pass
time.sleep(300)
"""


@pytest.mark.alone
def test_descriptors_of_one_sandbox_are_few_of_the_machines(attacker):
    """Each costs memory of the sandbox, so that is what ends; the machine's number is no limit."""
    attacker.sandbox.files.write("/tmp/files.py", FILES, user=attacker.user)
    before = open_files()
    attacker.starts("python3 /tmp/files.py")
    looks = []

    def have_what_they_can_get():
        looks.append(open_files()[0] - before[0])
        return looks[-1] > 100_000 and len(looks) >= 5 and max(looks[-5:]) - min(looks[-5:]) < 100

    eventually(have_what_they_can_get, within=120, every=0.5, what="no more files are opened")
    used, most = open_files()[0] - before[0], open_files()[1]
    assert used > 100_000, "the attack did not work"
    assert used < most // 100, f"one sandbox has {used} of the machine's {most} open files"
    stop(attacker)


def open_files():
    """How many files are open on this machine, and how many may be."""
    with open("/proc/sys/fs/file-nr") as file:
        used, _, most = map(int, file.read().split())
    return used, most


def test_there_is_a_terminal_for_everybody(attacker):
    """One sandbox may have 64, and the machine has them for all sandboxes."""
    opened = attacker.python(
        """
import pty
count = 0
try:
    while count < 1000:
        pty.openpty()
        count += 1
except OSError:
    pass
print(count)
"""
    )
    assert int(opened.stdout) <= 64
    settings = {name: int(open(f"/proc/sys/kernel/pty/{name}").read()) for name in ("max", "reserve")}
    assert settings["max"] - settings["reserve"] >= 64 * MAX_SANDBOXES, settings


@pytest.mark.alone
def test_a_fork_bomb_of_python_that_never_gives_up_stays_inside(attacker):
    attacker.starts(
        """python3 -c '
import os, time
while True:
    try:
        os.fork()
    except OSError:
        time.sleep(0.001)
'"""
    )
    # The kernel refuses at the limit, and envd still works beside it.
    eventually(lambda: pids_inside(attacker) > 100, within=30, what="the bomb has gone off")
    attacker.sandbox.files.write("still", "works")
    stop(attacker)


def pids_inside(attacker):
    return int(attacker.sandbox.files.read("/proc/loadavg").split()[3].split("/")[1])


def stop(attacker):
    """Killing the sandbox must always work."""
    assert attacker.sandbox.kill() is True


@pytest.mark.alone
@pytest.mark.parametrize(
    "program",
    [
        "x = []\nwhile True: x.append(bytearray(50_000_000))",
        "import mmap\nk = []\nwhile True:\n m = mmap.mmap(-1, 1 << 28); k.append(m)\n for i in range(0, 1 << 28, 4096): m[i] = 1",
        "import os\n[os.fork() for _ in range(4)]\nx = []\nwhile True: x.append(bytearray(20_000_000))",
    ],
    ids=["one process", "shared mappings", "many processes"],
)
def test_a_memory_bomb_dies_inside_and_envd_survives(attacker, program):
    before = available()
    result = attacker.python(program, timeout=100)
    assert result.exit_code != 0
    attacker.survives()
    eventually(lambda: available() > before - 700_000, within=30, what="the host has its memory back")


@pytest.mark.alone
def test_filling_what_is_in_memory_is_bounded_and_takes_nothing_else_away(attacker):
    """/dev/shm and /run share one file system and one limit: half of the sandbox's memory."""
    memory = attacker.sandbox.get_info().memory_mb * 2**20
    attacker.run("dd if=/dev/zero of=/dev/shm/fill bs=1M count=100000 2>&1 | tail -1", timeout=100)
    attacker.survives()
    size = int(attacker.run("stat -c %s /dev/shm/fill 2>/dev/null || echo 0").stdout)
    assert 0 < size <= memory / 2
    full = attacker.run("sudo sh -c 'head -c 1048576 /dev/zero > /run/more'; true")
    assert "No space left on device" in full.stderr
    attacker.run("rm -f /dev/shm/fill")
    again = attacker.run("sudo sh -c 'head -c 1048576 /dev/zero > /run/more && stat -c %s /run/more'")
    assert again.stdout == "1048576\n"


def available():
    with open("/proc/meminfo") as info:
        return next(int(line.split()[1]) for line in info if line.startswith("MemAvailable"))


def test_a_full_disk_is_enospc_inside_and_nothing_outside(attacker, server):
    result = attacker.python(
        """
try:
    with open("fill", "wb") as out:
        while True:
            out.write(bytes(1 << 20))
except OSError as error:
    print(errno.errorcode[error.errno])
""",
        timeout=200,
    )
    assert result.stdout.strip() == "ENOSPC", result
    with pytest.raises(NotEnoughSpaceException):
        attacker.sandbox.files.write("more", b"x" * 50_000_000)
    assert host_can_write(server.data)
    attacker.run("rm -f fill more")
    attacker.sandbox.files.write("again", "fits")
    attacker.survives()


def host_can_write(folder):
    probe = folder / "probe"
    probe.write_bytes(bytes(1 << 20))
    probe.unlink()
    return True


def test_using_up_inodes_is_enospc_inside(attacker):
    result = attacker.python(
        """
os.mkdir("many")
try:
    for number in range(3_000_000):
        os.close(os.open(f"many/{number}", os.O_CREAT | os.O_WRONLY))
    print("all made")
except OSError as error:
    print(errno.errorcode[error.errno])
""",
        timeout=200,
    )
    assert result.stdout.strip() in ("ENOSPC", "all made"), result
    attacker.survives()


@pytest.mark.alone
def test_endless_output_that_nobody_reads_holds_nobody_up(attacker, server):
    before = memory_of(server.pid)
    for command in ("yes", "cat /dev/zero", "while :; do echo err >&2; done"):
        attacker.sandbox.commands.run(command, background=True, user=attacker.user, timeout=0)
    for _ in range(10):
        attacker.survives()
    assert memory_of(server.pid) - before < 100_000, "the server buffers the output"
    stop(attacker)


@pytest.mark.alone
def test_endless_output_that_is_read_can_be_stopped(attacker):
    with pytest.raises((TimeoutException, SandboxException)):
        attacker.sandbox.commands.run("yes", user=attacker.user, timeout=2, on_stdout=lambda _: None)
    attacker.survives()


def memory_of(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


@pytest.mark.alone
def test_endless_loops_on_every_cpu_leave_room_for_others(attacker):
    attacker.starts(f"for i in $(seq {4 * os.cpu_count()}); do (while :; do :; done) & done; wait")
    for _ in range(20):
        attacker.survives()
    stop(attacker)


@pytest.mark.alone
def test_a_zombie_storm_is_reaped(attacker):
    attacker.python(
        """
for _ in range(2000):
    if os.fork() == 0:
        # Orphans the grandchild, which then ends under pid 1.
        if os.fork() == 0:
            os._exit(0)
        os._exit(0)
    os.wait()
""",
        timeout=60,
    )
    eventually(
        lambda: attacker.run("ps -eo stat= | grep -c '^Z' || true").stdout.strip() == "0",
        within=15,
        what="no zombies are left",
    )


@pytest.mark.alone
def test_zombies_that_are_never_waited_for_hit_the_limit_inside_only(attacker):
    attacker.python(
        """
import time
made = 0
try:
    for _ in range(100_000):
        if os.fork() == 0:
            os._exit(0)
        made += 1
except OSError as error:
    print(errno.errorcode[error.errno], made)
""",
        timeout=60,
    )
    attacker.survives()


@pytest.mark.alone
def test_many_open_files_and_sockets_are_bounded_inside(attacker):
    result = attacker.python(
        """
kept = []
try:
    for _ in range(3_000_000):
        kept.append(os.open("/dev/null", os.O_RDONLY))
    print("all open")
except OSError as error:
    print(errno.errorcode[error.errno])
""",
        timeout=100,
    )
    assert result.stdout.strip() in ("EMFILE", "ENFILE", "ENOMEM") or result.exit_code != 0, result
    attacker.survives()


@pytest.mark.alone
def test_many_connections_to_envd_from_inside_do_not_shut_others_out(attacker):
    attacker.starts(
        "exec python3 -c 'import socket,time\nk=[]\n"
        "for _ in range(5000):\n try: k.append(socket.create_connection((\"127.0.0.1\",49983),1))\n except OSError: pass\n"
        "time.sleep(300)'"
    )
    eventually(lambda: int(attacker.sandbox.files.read("/proc/net/sockstat").split("inuse ")[1].split()[0]) > 500, within=60)
    attacker.survives()
    stop(attacker)


@pytest.mark.alone
def test_creating_during_an_attack_still_works(attacker, server):
    attacker.starts("while :; do dd if=/dev/zero of=f bs=1M count=200 2>/dev/null; done & while :; do :; done")
    sdk = Sdk("sync", server.sdk, None)
    done = []
    worker = threading.Thread(target=lambda: done.append(sdk.create(timeout=30)))
    worker.start()
    worker.join(20)
    assert done, "create took longer than 20 s beside a busy sandbox"
    sdk.finish()
    stop(attacker)

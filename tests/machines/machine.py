"""A machine that is really booted: QEMU, reached with ssh. Every wait has a bound."""

import ctypes
import os
import shlex
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from machines.acceleration import acceleration
from machines.image import Image
from support.server import free_ports
from support.waiting import eventually

GUEST = Path(__file__).parent / "guest"
# Another name is enough: checks replace and remove the program, and never write to it.
INSTALL = "ln -f /opt/checks/soulbox /usr/local/bin/soulbox"
BOOT_WITHIN = 300.0
STOP_WITHIN = 60.0
COMMAND_WITHIN = 300.0
PR_SET_PDEATHSIG = 1
FOLDER = "soulbox-machine-"  # and the process it belongs to
# With which ssh ends when it has lost the machine.
UNREACHABLE = 255


class Unreachable(AssertionError):
    pass


@dataclass(frozen=True)
class Done:
    command: str
    code: int
    out: str
    err: str
    seconds: float

    @property
    def text(self) -> str:
        return self.out + self.err

    def __str__(self) -> str:
        return f"`{self.command}` ended with {self.code} after {self.seconds:.1f} s\n{self.out}\n{self.err}".rstrip()


class Machine:
    """`with Machine(image, binary) as machine`, or `boot` and `stop`. Its disks go with it."""

    def __init__(self, image: Image, binary: Path, memory: int = 3072, cpus: int = 2) -> None:
        self.image, self.binary, self.memory, self.cpus = image, binary, memory, cpus
        self.folder = Path(tempfile.mkdtemp(prefix=f"{FOLDER}{os.getpid()}-"))
        self.serial = self.folder / "serial.log"
        self.process: subprocess.Popen | None = None
        self.boot_took = 0.0
        self.port = 0

    def __enter__(self) -> "Machine":
        try:
            return self.boot()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *_) -> None:
        self.stop()

    def boot(self) -> "Machine":
        """The first time on fresh disks, after a `power_off` on the same."""
        began = time.monotonic()
        if not (self.folder / "root.qcow2").exists():
            self._make_disks()
        self.port = free_ports(1)[0]
        with open(self.folder / "qemu.log", "ab") as log:
            self.process = subprocess.Popen(
                self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=_die_with_parent
            )
        self._wait_for_ssh()
        self.boot_took = time.monotonic() - began
        self.run("mkdir -p /opt/checks && tar -C /opt/checks -xf /dev/disk/by-id/virtio-payload")
        self.run(f"chmod 755 /opt/checks/soulbox && {INSTALL}")
        return self

    def _make_disks(self) -> None:
        create = ["qemu-img", "create", "-q", "-f", "qcow2"]
        # What is written stays apart from the cached image, which never changes.
        _quiet(*create, "-b", str(self.image.disk), "-F", "raw", str(self.folder / "root.qcow2"))
        _quiet(*create, str(self.folder / "spare.qcow2"), "8G")
        with tarfile.open(self.folder / "payload.tar", "w") as payload:
            payload.add(self.binary, "soulbox")
            payload.add(GUEST, "guest", filter=lambda each: None if "__pycache__" in each.name else each)

    def _command(self) -> list[str]:
        drives: list[str] = []
        for name, kind in (("root.qcow2", "qcow2"), ("spare.qcow2", "qcow2"), ("payload.tar", "raw")):
            word = name.split(".")[0]
            # Nothing here must outlive a failure of the host, so nothing need be waited for.
            drives += ["-drive", f"file={self.folder / name},format={kind},if=none,id={word},cache=unsafe"]
            drives += ["-device", f"virtio-blk-pci,drive={word},serial={word}"]
        return [
            "qemu-system-x86_64", *acceleration(self.image),
            "-smp", str(self.cpus), "-m", str(self.memory),
            "-nodefaults", "-display", "none", "-monitor", "none", "-serial", f"file:{self.serial}",
            "-kernel", str(self.image.kernel), "-initrd", str(self.image.initrd),
            "-append", "root=/dev/vda rw console=ttyS0 quiet systemd.show_status=0",
            *drives,
            # No way out: only ssh comes in, from this machine.
            "-netdev", f"user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:{self.port}-:22",
            "-device", "virtio-net-pci,netdev=net", "-device", "virtio-rng-pci",
        ]  # fmt: skip

    def _wait_for_ssh(self, other_than: str = "") -> None:
        def answers() -> bool:
            assert self.process is not None
            if self.process.poll() is not None:
                log = (self.folder / "qemu.log").read_text(errors="replace")
                raise Unreachable(f"QEMU ended with {self.process.returncode}: {log[-2000:]}\n{self.serial_tail()}")
            done = self._ssh("cat /proc/sys/kernel/random/boot_id", "root", 20.0)
            return done is not None and done.code == 0 and done.out != other_than

        try:
            eventually(answers, within=BOOT_WITHIN, every=0.5, what="the machine answers ssh")
        except Unreachable:
            raise
        except AssertionError as error:
            raise Unreachable(f"{error}\n{self.serial_tail()}") from None

    def ssh(self, command: str, user: str = "root", within: float = COMMAND_WITHIN) -> Done:
        """Runs a line of shell there, whatever comes of it."""
        done = self._ssh(command, user, within)
        if done is None:
            raise Unreachable(f"not within {within:.0f} s: `{command}`\n{self.serial_tail()}")
        if done.code == UNREACHABLE:
            raise Unreachable(f"{done}\n{self.serial_tail()}")
        return done

    def answers(self) -> bool:
        done = self._ssh("true", "root", 60.0) if self.process is not None and self.process.poll() is None else None
        return done is not None and done.code == 0

    def run(self, command: str, user: str = "root", within: float = COMMAND_WITHIN) -> str:
        """Its output; a failure is one of the check."""
        done = self.ssh(command, user, within)
        assert done.code == 0, str(done)
        return done.out

    def _ssh(self, command: str, user: str, within: float) -> Done | None:
        began = time.monotonic()
        try:
            done = subprocess.run(
                self.ssh_command(command, user),
                stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=within,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return None
        return Done(command, done.returncode, done.stdout, done.stderr, time.monotonic() - began)

    def ssh_command(self, command: str, user: str = "root") -> list[str]:
        options = {
            # One connection for all commands of a user: under emulation each costs seconds.
            "ControlMaster": "auto",
            "ControlPath": f"{self.folder}/ssh-%r",
            "ControlPersist": "yes",
            "StrictHostKeyChecking": "no",
            "UserKnownHostsFile": "/dev/null",
            "ConnectTimeout": "20",
            "ServerAliveInterval": "30",
            "ServerAliveCountMax": "10",
            "BatchMode": "yes",
            "LogLevel": "ERROR",
        }
        words = [f"-o{name}={value}" for name, value in options.items()]
        key = str(self.image.key)
        return ["ssh", "-F", "none", "-i", key, "-p", str(self.port), *words, f"{user}@127.0.0.1", command]

    def write(self, path: str, content: str) -> None:
        self.run(f"mkdir -p {shlex.quote(os.path.dirname(path))} && printf %s {shlex.quote(content)} > {shlex.quote(path)}")

    def send(self, file: Path, path: str) -> None:
        with open(file, "rb") as content:
            done = subprocess.run(
                self.ssh_command(f"cat > {shlex.quote(path)}"), stdin=content, capture_output=True, timeout=COMMAND_WITHIN
            )
        assert done.returncode == 0, done.stderr.decode(errors="replace")

    def reboot(self) -> None:
        """As its owner would; the disks stay as they are."""
        before = self.run("cat /proc/sys/kernel/random/boot_id")
        self._ssh("systemctl reboot", "root", 30.0)
        self._forget_connections()
        self._wait_for_ssh(other_than=before)

    def stop(self) -> None:
        """Ends it at once: nothing of it is wanted again."""
        if self.process is not None and self.process.poll() is None:
            self._forget_connections()
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(STOP_WITHIN)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _forget_connections(self) -> None:
        for path in self.folder.glob("ssh-*"):
            subprocess.run(
                ["ssh", "-F", "none", f"-oControlPath={path}", "-O", "exit", "127.0.0.1"],
                capture_output=True, timeout=20,
            )  # fmt: skip
            path.unlink(missing_ok=True)

    def serial_tail(self, lines: int = 30) -> str:
        if not self.serial.exists():
            return ""
        text = self.serial.read_text(errors="replace").splitlines()[-lines:]
        return "\n".join(["--- end of the machine's serial console:", *text])


def sweep() -> None:
    """Removes the disks of machines whose tests were killed: QEMU has died with them."""
    for left in Path(tempfile.gettempdir()).glob(f"{FOLDER}*-*"):
        if not Path("/proc", left.name.removeprefix(FOLDER).split("-")[0]).exists():
            shutil.rmtree(left, ignore_errors=True)


def _quiet(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise RuntimeError(f"{shlex.join(command)}: {done.stderr.strip()}")


def _die_with_parent() -> None:
    """Whatever ends the tests ends their machine."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

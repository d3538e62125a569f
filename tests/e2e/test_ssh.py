"""SSH into sandboxes without a server inside: OpenSSH's own ssh, scp and sftp."""

import hashlib
import os
import re
import shutil
import signal
import socket
import subprocess
import time

import httpx
import pytest

from support.server import binary, clean_environment
from support.waiting import eventually

pytestmark = pytest.mark.skipif(shutil.which("ssh") is None, reason="needs openssh-client")
LARGE = 20 << 20


class Host:
    """A sandbox as OpenSSH's programs see it."""

    def __init__(self, server, box, folder):
        self.server, self.box, self.folder = server, box, folder
        self.name = f"soulbox-{box.sandbox_id}"
        self.env = clean_environment() | server.env | {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder / "settings")}
        told = self.soulbox("ssh-config", box.sandbox_id)
        assert told.returncode == 0, told.stderr
        self.config = folder / "config"
        self.config.write_bytes(told.stdout)

    def soulbox(self, *words, **options):
        return subprocess.run([str(binary()), *words], capture_output=True, timeout=60, env=self.env, **options)

    def words(self, program, *words):
        return [program, "-F", str(self.config), *words]

    def run(self, program, *words, timeout=120, **options):
        options.setdefault("stdin", subprocess.DEVNULL) if "input" not in options else None
        return subprocess.run(self.words(program, *words), capture_output=True, timeout=timeout, env=self.env, **options)

    def ssh(self, *words, **options):
        return self.run("ssh", self.name, *words, **options)

    def start(self, *words, **options):
        return subprocess.Popen(self.words("ssh", *words), env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)

    def processes(self, pattern):
        return self.box.commands.run(f"pgrep -fc '{pattern}' || true").stdout.strip()


@pytest.fixture
def host(server, box, tmp_path):
    return Host(server, box, tmp_path)


def checksum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_a_command_has_its_output_its_exit_code_its_user_and_its_home(host):
    done = host.ssh("echo out; echo err >&2; id -un; pwd; exit 42")
    assert (done.returncode, done.stdout, done.stderr.splitlines()[-1]) == (42, b"out\nuser\n/home/user\n", b"err")
    assert host.run("ssh", "-l", "root", host.name, "id -un").stdout == b"root\n"
    assert host.ssh("kill -KILL $$").returncode == 255
    unknown = host.run("ssh", "-l", "nobody-here", host.name, "true")
    assert unknown.returncode == 255 and b"nobody-here" in unknown.stderr


def test_input_is_passed_on_unchanged_and_ends(host):
    sent = os.urandom(3_000_000)
    done = host.ssh("sha256sum", input=sent)
    assert done.stdout.split()[0].decode() == checksum(sent)
    assert host.ssh("cat", input=b"").stdout == b""


def test_much_flows_both_ways_at_once(host):
    sent = os.urandom(LARGE)
    done = host.ssh("cat", input=sent)
    assert done.returncode == 0, done.stderr
    assert checksum(done.stdout) == checksum(sent)


def test_soulbox_ssh_needs_no_settings_and_passes_the_code_through(host):
    done = host.soulbox("ssh", host.box.sandbox_id[:12], "cat; exit 7", input=b"typed")
    assert (done.returncode, done.stdout) == (7, b"typed"), done.stderr
    key = host.folder / "settings/soulbox/ssh_host_ed25519_key"
    assert key.stat().st_mode & 0o777 == 0o600


def test_a_terminal_has_its_kind_and_its_size_and_answers(host):
    session = host.start("-tt", host.name, stdin=subprocess.PIPE)
    session.stdin.write(b"stty size; echo kind=$TERM; tty; exit 3\n")
    session.stdin.flush()
    out, _ = session.communicate(timeout=60)
    assert session.returncode == 3
    assert b"/dev/pts/" in out and re.search(rb"kind=\S+", out) and re.search(rb"\d+ \d+", out)


def test_the_environment_reaches_the_command(host):
    with open(host.config, "a") as config:
        config.write("    SetEnv GREETING=hello\n")
    assert host.ssh("echo $GREETING").stdout == b"hello\n"


@pytest.mark.parametrize("program", ["scp", "sftp"])
def test_a_large_file_goes_there_and_back_unchanged(host, program):
    sent, back = host.folder / "sent", host.folder / "back"
    sent.write_bytes(os.urandom(LARGE))
    os.chmod(sent, 0o640)
    os.utime(sent, (1_000_000_000, 1_000_000_000))
    if program == "scp":
        steps = [
            host.run("scp", "-p", str(sent), f"{host.name}:there"),
            host.run("scp", "-p", f"{host.name}:there", str(back)),
        ]
    else:
        batch = f"put -p {sent} there\nls -l there\nget -p there {back}\n".encode()
        steps = [host.run("sftp", "-b", "-", host.name, input=batch)]
    for step in steps:
        assert step.returncode == 0, step.stderr
    assert checksum(back.read_bytes()) == checksum(sent.read_bytes())
    inside = host.ssh("stat -c '%a %Y %s' there && sha256sum there").stdout.decode().split()
    assert inside[:4] == ["640", "1000000000", str(LARGE), checksum(sent.read_bytes())]
    assert (back.stat().st_mode & 0o777, int(back.stat().st_mtime)) == (0o640, 1_000_000_000)


def test_folders_links_and_names_of_any_kind_are_handled_by_sftp(host):
    folder = host.folder / "a tree"
    (folder / "below").mkdir(parents=True)
    (folder / "below" / "füße.txt").write_text("x")
    copied = host.run("scp", "-r", str(folder), f"{host.name}:")
    assert copied.returncode == 0, copied.stderr
    batch = 'cd "a tree"\nrename below moved\nln -s moved/füße.txt link\nchmod 600 moved/füße.txt\nmkdir empty\nrmdir empty\nls\n'
    done = host.run("sftp", "-b", "-", host.name, input=batch.encode())
    assert done.returncode == 0, done.stderr
    listed = host.ssh("cd 'a tree' && cat link && stat -c %a moved/* && ls").stdout.decode()
    assert listed == "x600\nlink\nmoved\n"
    missing = host.run("sftp", "-b", "-", host.name, input=b"get /etc/shadow\n")
    assert missing.returncode != 0


def test_what_the_user_may_not_do_is_refused(host):
    done = host.run("sftp", "-b", "-", host.name, input=b"put /etc/hostname /etc/new\n")
    assert done.returncode != 0 and b"ermission denied" in done.stderr


def test_a_port_is_forwarded(host):
    host.box.files.write("/home/user/site/index.html", "hello")
    host.box.commands.run("cd /home/user/site && python3 -m http.server 8000 --bind 127.0.0.1", background=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    session = host.start("-N", "-L", f"{port}:localhost:8000", "-L", f"{port + 1}:example.com:80", host.name, stdin=subprocess.DEVNULL)
    try:

        def asked():
            try:
                return httpx.get(f"http://127.0.0.1:{port}/").text
            except httpx.HTTPError:
                return None

        assert eventually(asked) == "hello"
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"http://127.0.0.1:{port + 1}/")
    finally:
        session.terminate()
        session.communicate(timeout=20)


@pytest.mark.parametrize("terminal", [False, True])
def test_a_killed_client_leaves_no_process_behind(host, terminal):
    words = ["-tt"] if terminal else []
    session = host.start(*words, host.name, "sleep 4711", stdin=subprocess.PIPE)
    eventually(lambda: host.processes("^sleep 471[1]") == "1")
    session.kill()
    session.wait(timeout=20)
    eventually(lambda: host.processes("^sleep 471[1]") == "0")


def test_a_terminated_proxy_hangs_up_too(host):
    session = host.start(host.name, "sleep 4712", stdin=subprocess.PIPE)
    eventually(lambda: host.processes("^sleep 471[2]") == "1")
    children = subprocess.run(["pgrep", "-P", str(session.pid)], capture_output=True).stdout.split()
    for child in children:
        os.kill(int(child), signal.SIGTERM)
    session.communicate(timeout=20)
    eventually(lambda: host.processes("^sleep 471[2]") == "0")


def test_a_killed_sandbox_ends_the_client_with_an_error(host):
    session = host.start(host.name, "echo begun; sleep 1000", stdin=subprocess.PIPE)
    assert session.stdout.readline() == b"begun\n"
    begun = time.monotonic()
    host.box.kill()
    _, errors = session.communicate(timeout=30)
    assert session.returncode == 255, errors
    assert time.monotonic() - begun < 20


def test_a_paused_sandbox_is_woken_and_lives_while_somebody_is_there(host):
    with host.server.api() as api:
        path = f"/sandboxes/{host.box.sandbox_id}"
        assert api.post(f"{path}/pause", json={}).status_code == 204
        assert host.ssh("echo awake").stdout == b"awake\n"
        assert api.get(path).json()["state"] == "running"


def test_who_has_no_key_is_not_let_in(host):
    host.env["E2B_API_KEY"] = host.env["SOULBOX_API_KEY"] = "e2b_" + "0" * 40
    done = host.ssh("true")
    assert done.returncode == 255
    assert b"401" in done.stderr or b"not valid" in done.stderr


def test_the_settings_for_all_sandboxes_are_one_block(host):
    told = host.soulbox("ssh-config").stdout.decode()
    assert told.startswith("Host soulbox-*\n    User user\n    ProxyCommand ")
    assert told.count("Host ") == 1

"""Games with paths against the files API, which acts with more rights than the caller."""

import pytest
from e2b import FileNotFoundException, InvalidArgumentException, NotFoundException, SandboxException

pytestmark = pytest.mark.timeout(120)


def test_symlinks_lead_only_inside(attacker, server, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("host secret")
    attacker.run(f"ln -s {secret} out; ln -s / root; ln -s /proc/1/root proc-root; ln -s {server.data} data")
    for path in ("out", f"root/{secret}", f"proc-root/{secret}", "data/env", f"root/{server.data}/env", "root/../../../../../.." + str(secret)):
        with pytest.raises((NotFoundException, SandboxException)):
            attacker.sandbox.files.read(path, user=attacker.user)


def test_writes_through_symlinks_stay_inside(attacker, tmp_path):
    target = tmp_path / "made-by-sandbox"
    attacker.run(f"mkdir -p d; ln -s {tmp_path} d/out")
    try:
        attacker.sandbox.files.write("d/out/made-by-sandbox", "x", user=attacker.user)
    except SandboxException:
        pass
    assert not target.exists()


@pytest.mark.parametrize("path", ["../" * 40 + "etc/hostname", "/..//../etc/hostname", "/proc/self/root/etc/hostname", "/proc/1/cwd/etc/hostname"])
def test_dots_and_proc_links_end_at_the_sandboxs_root(attacker, path):
    attacker.run("echo only-inside | sudo tee /etc/marker > /dev/null")
    path = path.replace("hostname", "marker")
    try:
        assert attacker.sandbox.files.read(path, user=attacker.user) == "only-inside\n"
    except (NotFoundException, SandboxException):
        pass


def test_a_loop_of_symlinks_is_an_error_and_no_hang(attacker):
    attacker.run("ln -s b a; ln -s a b; mkdir -p x && ln -s ../x x/again")
    for action in (
        lambda: attacker.sandbox.files.read("a", user=attacker.user),
        lambda: attacker.sandbox.files.write("a", "x", user=attacker.user),
        lambda: attacker.sandbox.files.list("a", user=attacker.user),
        lambda: attacker.sandbox.files.make_dir("a/b/c", user=attacker.user),
    ):
        with pytest.raises(SandboxException):
            action()
    listed = attacker.sandbox.files.list("x", depth=50, user=attacker.user)
    assert len(listed) == 1


def test_pipes_devices_and_sockets_do_not_hang_a_read(attacker):
    attacker.run("mkfifo pipe; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'")
    for path in ("pipe", "sock", "/dev/tty", "/dev/ptmx"):
        with pytest.raises((SandboxException, FileNotFoundException)):
            attacker.sandbox.files.read(path, user=attacker.user, request_timeout=10)
    with pytest.raises(SandboxException):
        attacker.sandbox.files.write("pipe", "x", user=attacker.user, request_timeout=10)
    attacker.survives()


def test_an_endless_file_can_be_broken_off(attacker):
    try:
        stream = attacker.sandbox.files.read("/dev/zero", format="stream")
        next(iter(stream))
        stream.close()
    except SandboxException:
        pass  # refused at once: better still
    attacker.survives()


def test_a_path_swapped_during_the_upload_stays_inside(attacker, tmp_path):
    """A race of rename against write: whatever wins, the host is untouched."""
    target = tmp_path / "raced"
    handle = attacker.starts(f"mkdir -p r; while :; do rm -rf r/d; mkdir r/d; rm -rf r/d; ln -s {tmp_path} r/d; done")
    for _ in range(50):
        try:
            attacker.sandbox.files.write("r/d/raced", "x", user=attacker.user)
        except SandboxException:
            pass
    handle.kill()
    assert not target.exists()


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000, "/".join(["d"] * 3000), "\n", " "])
def test_impossible_paths_are_errors(attacker, path):
    for action in (
        lambda: attacker.sandbox.files.read(path),
        lambda: attacker.sandbox.files.get_info(path),
    ):
        with pytest.raises((SandboxException, ValueError)):
            action()
    attacker.survives()


def test_a_deep_tree_is_listed_and_removed(attacker):
    attacker.python("os.chdir('/tmp')\nfor _ in range(3000):\n    os.mkdir('d')\n    os.chdir('d')\nprint('ok')")
    for depth in (1, 1000, 1_000_000):
        try:
            attacker.sandbox.files.list("/tmp", depth=depth)
        except SandboxException:
            pass
        attacker.survives()
    attacker.sandbox.files.watch_dir("/tmp", recursive=True).stop()
    attacker.sandbox.files.remove("/tmp/d")
    attacker.survives()
    assert not attacker.sandbox.files.exists("/tmp/d")


def test_a_broken_etc_passwd_does_not_break_envd(attacker):
    attacker.run("sudo sh -c 'echo garbage:::: > /etc/passwd; head -c 1000000 /dev/urandom >> /etc/passwd'")
    assert attacker.sandbox.is_running()
    try:
        attacker.sandbox.commands.run("true")
    except Exception as error:
        assert "user" in str(error).lower()
    assert attacker.sandbox.kill()

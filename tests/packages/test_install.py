"""`soulbox install` and `uninstall` in a fresh root file system, where no systemd runs.

With systemd: tests/machines/test_install.py.
"""

import filecmp
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from packages.serving import LiveSandbox, Serving, left_on_the_machine

PROGRAM = "usr/local/bin/soulbox"
PREVIOUS = "usr/local/lib/soulbox/soulbox.previous"
UNIT = "etc/systemd/system/soulbox.service"


@pytest.fixture
def builds(root, stripped, scratch):
    """Two programs to install from, as if they had just been built or unpacked."""
    older, newer = root.folder / "root/older", root.folder / "root/newer"
    shutil.copy(stripped, older)
    shutil.copy(stripped, newer)
    with open(newer, "ab") as end:
        end.write(b"another build")  # harms no program
    return older, newer


def same(left, right) -> bool:
    return filecmp.cmp(left, right, shallow=False)


def test_what_is_installed_serves_is_upgraded_rolled_back_and_uninstalled_without_a_trace(root, builds, scratch):
    older, newer = builds
    before = root.files()
    said = root.run("/root/older", "install", "--dry-run")
    assert "would install /usr/local/bin/soulbox" in said and root.files() == before

    said = root.run("/root/older", "install")
    command = said.strip().splitlines()[-1].partition("does not run here: ")[2]
    assert command == "/usr/local/bin/soulbox serve", said
    assert same(root.folder / PROGRAM, older)
    assert (root.folder / "usr/local/share/man/man1/soulbox-install.1").is_file()
    assert "ExecStart=/usr/local/bin/soulbox serve\n" in (root.folder / UNIT).read_text()

    log = scratch / "install.log"

    def start(settings):
        words = [f"{name}={value}" for name, value in settings.items()]
        return root.start(log, "env", *words, *command.split())

    serving = Serving(root.folder / "var/lib/soulbox", start, log)
    try:
        serving.start()
        live = LiveSandbox(serving)

        assert "replace /usr/local/bin/soulbox" in root.run("/root/newer", "install")
        assert same(root.folder / PROGRAM, newer) and same(root.folder / PREVIOUS, older)
        serving.stop()
        serving.start()
        live.goes_on()

        root.run("soulbox", "install", "--rollback")
        assert same(root.folder / PROGRAM, older) and same(root.folder / PREVIOUS, newer)
        serving.stop()
        serving.start()
        live.goes_on()

        # A server that runs, and sandboxes that nobody would end.
        with pytest.raises(AssertionError, match="there are sandboxes"):
            root.run("soulbox", "uninstall")
        with pytest.raises(AssertionError, match="another soulbox server uses"):
            root.run("soulbox", "uninstall", "--purge")
        live.goes_on()
        tag = serving.tag
        serving.stop()
    finally:
        serving.end()
    root.run("soulbox", "uninstall", "--purge")
    assert left_on_the_machine(tag, root.folder) == []
    assert sorted(root.files() ^ before) == []


def test_installing_the_same_again_changes_nothing(root, builds):
    root.run("/root/older", "install", "--data-dir", "/srv/my sandboxes")
    unit = root.folder / UNIT
    assert 'serve --data-dir "/srv/my sandboxes"\n' in unit.read_text()

    def state():
        return {path: os.lstat(root.folder / path).st_mtime_ns for path in root.files() if not path.startswith("root")}

    before = state()
    # Without the option: the unit names the folder.
    said = root.run("/root/older", "install")
    changed = {path for path, at in state().items() if before.get(path) != at} - {"usr/local/lib/soulbox/lock"}
    assert (changed, "is this program" in said) == (set(), True), said
    assert "'/srv/my sandboxes'" in said or "/srv/my sandboxes" in said
    root.run("soulbox", "uninstall")


def test_killed_at_any_moment_it_can_be_run_again(root, builds):
    older, newer = builds
    root.run("/root/older", "install")
    dice = random.Random(11)
    began = time.monotonic()
    root.run("/root/newer", "install")
    whole = time.monotonic() - began
    # What is there serves; the one before it is what to go back to.
    there, other = "newer", "older"
    for _ in range(12):
        process = subprocess.Popen(root.command(f"/root/{other}", "install"), stdout=subprocess.DEVNULL)
        try:
            process.wait(dice.uniform(0, whole))
        except subprocess.TimeoutExpired:
            # nsenter waits for it.
            for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
                os.kill(int(child), signal.SIGKILL)
            process.wait(10)
        assert any(same(root.folder / PROGRAM, each) for each in builds), "never half a program"
        root.run(f"/root/{other}", "install")
        assert same(root.folder / PROGRAM, root.folder / "root" / other)
        assert same(root.folder / PREVIOUS, root.folder / "root" / there)
        there, other = other, there
    leftovers = [path for path in root.files() if path.endswith(".new") or "unfinished" in path]
    assert leftovers == []
    root.run("soulbox", "uninstall")
    assert not (root.folder / PROGRAM).exists()
    assert not (root.folder / PREVIOUS).exists()


def test_a_package_is_left_to_the_package_manager(root, builds, packages):
    deb = root.take_in(packages.deb)
    root.run("dpkg", "-i", deb)
    for words in (("install",), ("uninstall", "--purge")):
        with pytest.raises(AssertionError, match="apt-get"):
            root.run("soulbox", *words)
    assert (root.folder / "usr/bin/soulbox").exists()


def test_another_root_file_system_is_prepared_for_its_first_boot(stripped, tmp_path):
    done = subprocess.run([stripped, "install", "--root", tmp_path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    wanted = tmp_path / "etc/systemd/system/multi-user.target.wants/soulbox.service"
    assert os.readlink(wanted) == "/etc/systemd/system/soulbox.service"
    assert same(tmp_path / PROGRAM, stripped)
    done = subprocess.run([stripped, "uninstall", "--root", tmp_path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert [each for each in tmp_path.rglob("*") if not each.is_dir()] == []

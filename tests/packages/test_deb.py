"""The .deb in a fresh root file system: installed, served, used, upgraded, removed."""

import re
import shutil
import subprocess

import pytest
from e2b import Sandbox

from packages.serving import LiveSandbox, Serving, left_on_the_machine
from support.server import PROJECT

# As the unit starts it.
AS_THE_UNIT = "set -a; . /etc/default/soulbox; set +a; exec soulbox serve"


@pytest.fixture
def serving(root, scratch):
    log = scratch / "deb.log"

    def start(settings):
        lines = "".join(f"{name}={value}\n" for name, value in settings.items())
        (root.folder / "etc/default/soulbox").write_text(lines)
        return root.start(log, "sh", "-c", AS_THE_UNIT)

    serving = Serving(root.folder / "var/lib/soulbox", start, log)
    yield serving
    serving.end()


def test_it_is_installed_served_used_upgraded_and_purged_and_nothing_is_left(root, serving, packages, newer):
    before = root.files()
    deb, newer_deb = root.take_in(packages.deb), root.take_in(newer.deb)
    root.run("dpkg", "-i", deb)
    serving.start()
    live = LiveSandbox(serving)
    paused = Sandbox.create(timeout=600, **serving.sdk)
    paused.files.write("kept", "before the pause")
    paused.pause()

    # The package manager asks about settings that were changed here only if the package's changed too.
    root.run("dpkg", "-i", newer_deb)
    live.goes_on()
    assert root.run("dpkg-query", "-f", "${Version}", "-W", "soulbox") == "0.9.0"
    serving.stop()
    serving.start()
    live.goes_on()
    assert Sandbox.connect(paused.sandbox_id, **serving.sdk).files.read("kept") == "before the pause"
    # A sandbox of the program that is new.
    with Sandbox.create(timeout=60, **serving.sdk) as after:
        assert after.commands.run("echo after").stdout == "after\n"

    # Removed while sandboxes live: without the program nobody could end them.
    tag = serving.tag
    serving.stop()
    root.run("apt-get", "purge", "-yq", "soulbox")
    assert left_on_the_machine(tag, root.folder) == []
    assert [each for each in root.mounts() if "soulbox" in each] == []
    (root.folder / deb.lstrip("/")).unlink()
    (root.folder / newer_deb.lstrip("/")).unlink()
    assert sorted(root.files() ^ before) == []


def test_removing_it_keeps_what_users_made_and_installing_it_again_finds_it(root, serving, packages):
    deb = root.take_in(packages.deb)
    root.run("dpkg", "-i", deb)
    serving.start()
    sandbox = Sandbox.create(timeout=600, **serving.sdk)
    sandbox.files.write("/home/user/kept", "in a snapshot")
    snapshot = sandbox.create_snapshot()
    key = serving.sdk["api_key"]
    serving.stop()
    root.run("apt-get", "remove", "-yq", "soulbox")
    assert left_on_the_machine(serving.tag, root.folder) == []

    root.run("dpkg", "-i", deb)
    serving.start()
    assert serving.sdk["api_key"] == key
    assert not Sandbox.list(**serving.sdk).next_items(), "it ended with the package"
    with Sandbox.create(snapshot.snapshot_id, timeout=60, **serving.sdk) as again:
        assert again.files.read("/home/user/kept") == "in a snapshot"
    Sandbox.delete_snapshot(snapshot.snapshot_id, **serving.sdk)
    serving.stop()
    root.run("apt-get", "purge", "-yq", "soulbox")


def test_it_says_what_it_needs_and_carries_what_a_package_should(packages, stripped, tmp_path):
    def field(name: str) -> str:
        return subprocess.run(["dpkg-deb", "-f", packages.deb, name], capture_output=True, text=True).stdout.strip()

    symbols = subprocess.run(["objdump", "-T", stripped], capture_output=True, text=True).stdout
    needed = max((int(major), int(minor)) for major, minor in re.findall(r"GLIBC_(\d+)\.(\d+)", symbols))
    assert f"libc6 (>= {needed[0]}.{needed[1]})" in field("Depends")
    subprocess.run(["dpkg-deb", "-x", packages.deb, tmp_path], check=True)
    for path in (
        "usr/bin/soulbox",
        "usr/lib/systemd/system/soulbox.service",
        "usr/share/man/man1/soulbox-serve.1.gz",
        "usr/share/bash-completion/completions/soulbox",
        "usr/share/doc/soulbox/copyright",
    ):
        assert (tmp_path / path).is_file(), path
    unit = (tmp_path / "usr/lib/systemd/system/soulbox.service").read_text()
    assert unit == (PROJECT / "packaging/soulbox.service").read_text()


def test_its_unit_is_one_that_systemd_understands(stripped, tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    text = (PROJECT / "packaging/soulbox.service").read_text()
    unit = tmp_path / "soulbox.service"
    unit.write_text(text.replace("/usr/bin/soulbox", str(stripped)))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, timeout=60)
    complaints = [line for line in done.stderr.splitlines() if "soulbox" in line]
    assert (done.returncode, complaints) == (0, []), done.stderr

"""The wheel in a fresh root file system: `pip install soulbox`, served, used, upgraded, removed."""

import pytest

from packages.serving import LiveSandbox, Serving, left_on_the_machine

PIP = ("/opt/venv/bin/pip", "--disable-pip-version-check", "--no-color")


@pytest.fixture
def serving(root, scratch):
    log = scratch / "wheel.log"

    def start(settings):
        words = [f"{name}={value}" for name, value in settings.items()]
        return root.start(log, "env", *words, "/opt/venv/bin/soulbox", "serve", "--data-dir", "/srv/soulbox")

    serving = Serving(root.folder / "srv/soulbox", start, log)
    yield serving
    serving.end()


def test_it_is_installed_served_used_upgraded_and_uninstalled_and_nothing_is_left(root, serving, packages, newer):
    root.run("python3", "-m", "venv", "/opt/venv")
    before = root.files()
    wheel, newer_wheel = root.take_in(packages.wheel), root.take_in(newer.wheel)
    root.run(*PIP, "install", "--no-index", wheel)
    assert root.run("/opt/venv/bin/soulbox", "version").startswith("soulbox ")
    serving.start()
    live = LiveSandbox(serving)

    root.run(*PIP, "install", "--no-index", "--upgrade", newer_wheel)
    assert "soulbox 0.9.0" in " ".join(root.run(*PIP, "list").split())
    serving.stop()
    serving.start()
    live.goes_on()

    tag = serving.tag
    live.sandbox.kill()
    serving.stop()
    root.run(*PIP, "uninstall", "-y", "soulbox")
    root.run("rm", "-rf", "/srv/soulbox")
    assert left_on_the_machine(tag, root.folder) == []
    for each in (wheel, newer_wheel):
        (root.folder / each.lstrip("/")).unlink()
    left = sorted(path for path in root.files() ^ before if "__pycache__" not in path and not path.startswith("root/.cache"))
    assert left == []

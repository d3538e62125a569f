"""The package for npm: `npx soulbox`."""

import os
import shutil
import signal
import subprocess

import pytest

from packages.serving import LiveSandbox, Serving, left_on_the_machine
from support.server import clean_environment


@pytest.fixture
def project(tmp_path):
    if shutil.which("npm") is None or shutil.which("npx") is None:
        pytest.skip("npm is not installed")
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "package.json").write_text('{"private": true}\n')
    return folder


def run(project, *words: str) -> subprocess.CompletedProcess:
    return subprocess.run(words, cwd=project, capture_output=True, text=True, timeout=120, env=clean_environment())


def npm(project, *words: str) -> None:
    done = run(project, "npm", *words, "--offline", "--no-audit", "--no-fund")
    assert done.returncode == 0, done.stderr


def test_it_is_installed_served_used_upgraded_and_uninstalled_and_nothing_is_left(project, packages, newer, tmp_path):
    npm(project, "install", str(packages.npm))
    done = run(project, "npx", "soulbox", "version")
    assert (done.returncode, done.stdout[:8]) == (0, "soulbox "), done.stderr
    # The program's own exit code, and its own words.
    refused = run(project, "npx", "soulbox", "nonsense")
    assert refused.returncode == 2 and "nonsense" in refused.stderr

    data, log = tmp_path / "data", tmp_path / "npm.log"

    def start(settings):
        with open(log, "ab") as out:
            return subprocess.Popen(
                ["node", "node_modules/.bin/soulbox", "serve", "--data-dir", data],
                cwd=project, env=clean_environment() | settings, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                start_new_session=True,
            )  # fmt: skip

    serving = Serving(data, start, log)
    try:
        serving.start()
        live = LiveSandbox(serving)
        npm(project, "install", str(newer.npm))
        # To the few lines of JavaScript: they pass it on, and end as the server ends.
        os.kill(serving.process.pid, signal.SIGTERM)
        assert serving.process.wait(30) == 0
        serving.start()
        live.goes_on()
        live.sandbox.kill()
        tag = serving.tag
        serving.stop()
    finally:
        serving.end()
    npm(project, "uninstall", "soulbox")
    assert not (project / "node_modules/soulbox").exists() and not (project / "node_modules/.bin/soulbox").exists()
    assert left_on_the_machine(tag, tmp_path) == []

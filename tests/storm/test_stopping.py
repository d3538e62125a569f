"""`./storm` as whoever types it meets it: wrong words, servers that cannot start, and a stop."""

import asyncio
import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import pytest

from storm.judging import AT_ONCE, for_each
from storm.options import duration
from storm.stopping import Stop
from support.server import PROJECT, binary, clean_environment

COMMAND = [sys.executable, "-u", str(PROJECT / "tests" / "storm" / "command.py")]

pytestmark = pytest.mark.timeout(180)


def storm(*words: str, folder: Path) -> subprocess.Popen:
    environment = clean_environment() | {"SOULBOX_BIN": str(binary()), "TMPDIR": str(folder)}
    return subprocess.Popen(
        [*COMMAND, *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize(
    "words, complaint",
    [
        (["--rounds", "0"], "--rounds: '0' is not a number from 1 on"),
        (["--creates", "0"], "--creates: '0' is not a number from 1 on"),
        (["--creates", "5000"], "--creates: 5000 are more than 2000: a server holds 4,096 sandboxes"),
        (["--foo"], "unrecognized arguments: --foo"),
        (["--round", "-1"], "--round"),
        (["--bin", "/no/such/program"], "--bin: /no/such/program is not a program"),
        (["--bin", "/bin/false"], "the server ended with 1 instead of starting"),
        (["--json", "/no/such/folder/x"], "--json: /no/such/folder/x is no place for a file"),
    ],
)
def test_what_cannot_be_a_storm_is_told_in_one_line(words, complaint, tmp_path):
    process = storm(*words, folder=tmp_path)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 2
    assert said.count("\n") == 1 and complaint in said
    assert os.listdir(tmp_path) == []


@pytest.fixture
def bare():
    """The scripts, and a PATH with neither cargo nor sudo: whoever gets as far as to build fails."""
    # Into pytest's own folders others may not look.
    place = Path(tempfile.mkdtemp(prefix="soulbox-scripts-"))
    place.chmod(0o755)
    for each in ("storm", "serve", "test", "tests/support/host.sh", "tests/storm/options.py"):
        (place / each).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PROJECT / each, place / each)
    (place / "bin").mkdir()
    for each in ("bash", "env", "id", "dirname", "sed"):
        (place / "bin" / each).symlink_to(shutil.which(each))
    (place / "bin" / "python3").symlink_to(os.path.realpath(sys.executable))
    yield place
    shutil.rmtree(place)


def called(bare, *words, user=None):
    return subprocess.run(
        [bare / words[0], *words[1:]],
        env={"PATH": str(bare / "bin")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        user=user,
        cwd="/",
    )


@pytest.mark.parametrize("words", [["--foo"], ["--creates", "5000"], ["--b", "/bin/true"]])
def test_wrong_options_are_told_before_anything_is_built_or_installed(bare, words):
    told = called(bare, "storm", *words)
    assert told.returncode == 2 and told.stdout == ""
    assert told.stderr.startswith("storm: ") and told.stderr.count("\n") == 1


@pytest.mark.parametrize("script", ["storm", "serve", "test"])
def test_who_is_not_root_and_has_no_sudo_is_told_at_once(bare, script):
    told = called(bare, script, user="nobody")
    assert (told.returncode, told.stdout) == (2, "")
    assert told.stderr == f"./{script} needs root, and there is no sudo here: run it as root\n"


def test_how_long_a_storm_takes_is_told_before_it():
    assert duration(50, 1000, power_cuts=False) == "33 minutes"
    assert duration(50, 1000, power_cuts=True) == "43 minutes"
    assert duration(1, 1000, power_cuts=False) == "40 s"
    assert duration(1, 24, power_cuts=True) == "10 s"


def test_the_scripts_explain_themselves_from_any_folder(tmp_path):
    told = subprocess.run([PROJECT / "storm", "--help"], cwd=tmp_path, capture_output=True, text=True, timeout=30)
    assert told.returncode == 0 and told.stderr == ""
    for count in ("forgotten", "struck", "failed by plan"):
        assert f"{count} " in told.stdout
    told = subprocess.run([PROJECT / "test", "no-such-part"], cwd=tmp_path, capture_output=True, text=True, timeout=30)
    assert told.returncode == 2 and told.stderr == "" and "./test unit e2e" in told.stdout


def test_a_stop_in_a_crowd_leaves_no_work_that_nobody_awaited():
    begun = []

    async def work(item):
        begun.append(item)
        await asyncio.sleep(60)

    async def stopped():
        crowd = asyncio.create_task(for_each(range(3 * AT_ONCE), work))
        while len(begun) < AT_ONCE:
            await asyncio.sleep(0)
        crowd.cancel()
        with pytest.raises(asyncio.CancelledError):
            await crowd

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        asyncio.run(asyncio.wait_for(stopped(), 30))
        gc.collect()
    assert len(begun) == AT_ONCE and [str(each.message) for each in told] == []


def test_a_stop_after_the_last_round_is_heard_without_harm():
    handlers = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        stop = Stop()

        async def play():
            stop.cancels_this_task()

        asyncio.run(play())
        signal.raise_signal(signal.SIGTERM)
        assert stop.signal is signal.SIGTERM
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)


def test_a_stop_takes_sandboxes_server_and_folder_along(scratch):
    folder = scratch / "stopped"
    folder.mkdir()
    process = storm("--rounds", "1", "--creates", "24", "--seed", "7", folder=folder)
    for line in process.stdout:
        if "the storm begins" in line:
            break
    # Twice, as a terminal and the script that waits for us may both pass it on.
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGTERM)
    said, complaints = process.communicate(timeout=120)
    assert (process.returncode, complaints) == (128 + signal.SIGTERM, "")
    assert said == "storm: SIGTERM, ending the sandboxes and the server\n"
    assert os.listdir(folder) == []
    mounts = Path("/proc/self/mountinfo").read_text()
    assert str(folder) not in mounts

"""`./storm` as whoever types it meets it: wrong words, servers that cannot start, and a stop."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from storm.rounds import AT_ONCE, for_each
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

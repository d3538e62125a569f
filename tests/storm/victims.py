"""Ends processes of sandboxes, of the one server that the storm has started and of no other."""

import json
import os
import random
import signal
from dataclasses import dataclass, field
from pathlib import Path

from storm.traces import SANDBOX_ID, read
from support.census import cgroups
from support.server import Server


@dataclass
class Struck:
    """Whom the storm hit: known before the signal is sent, so that no answer can come earlier."""

    sandboxes: set[str] = field(default_factory=set)
    # Of creates, as their metadata tells them.
    names: set[str] = field(default_factory=set)


def strike_first_process(server: Server, struck: Struck, dice: random.Random) -> bool:
    folders = sorted(each for each in (server.data / "sandboxes").iterdir())
    dice.shuffle(folders)
    for folder in folders:
        try:
            running = json.loads((folder / "running.json").read_text())
            pid = json.loads(running["record"])["pid"]
        except (OSError, ValueError, KeyError):
            continue  # not started yet, or gone
        if strike(server, struck, folder.name, pid):
            return True
    return False


def strike_any_process(server: Server, struck: Struck, dice: random.Random) -> bool:
    """Also one that is being made, or that waits to become a sandbox."""
    # The same sandbox has a cgroup in several hierarchies.
    groups = {os.path.basename(each): each for each in cgroups(tag_of(server))}
    groups = {name: group for name, group in groups.items() if SANDBOX_ID.fullmatch(name)}
    names = sorted(groups)
    dice.shuffle(names)
    for name in names:
        pids = [int(each) for each in read(f"{groups[name]}/cgroup.procs").split()]
        if pids and strike(server, struck, name, dice.choice(pids)):
            return True
    return False


def strike(server: Server, struck: Struck, sandbox: str, pid: int) -> bool:
    try:
        process = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        # Looked at after the descriptor was opened: if it is ours, the descriptor is.
        if f"soulbox-{tag_of(server)}" not in read(f"/proc/{pid}/cgroup"):
            return False
        struck.sandboxes.add(sandbox)
        struck.names.add(name_of(server.data / "sandboxes" / sandbox))
        signal.pidfd_send_signal(process, signal.SIGKILL)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(process)


def name_of(folder: Path) -> str:
    try:
        return json.loads((folder / "spec.json").read_text())["metadata"].get("storm", "")
    except (OSError, ValueError, KeyError):
        return ""


def tag_of(server: Server) -> str:
    return json.loads((server.data / "instance.json").read_text())["tag"]

"""Counts what a server may leak: on the machine, in its data folder and in its own process."""

import json
import os
import re
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from support import descriptors
from support.server import Server
from support.turns import turn
from support.waiting import eventually

# As crates/machine/src/ids.rs gives them out.
SANDBOX_IDS = range(0x7000_0000, 0x7FFE_0000)
# Idle threads belong to the runtime, which reuses them.
SLACK = {"server_threads": 64, "files": 4}
AT_MOST = {f"server's {kind}": most for kind, most in descriptors.AT_MOST.items()}
NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")


@dataclass
class Census:
    processes: int
    zombies: int
    namespaces: dict[str, int]
    mounts: int
    links: int
    loop_devices: int
    cgroups: int
    nft_objects: int
    nft_elements: int
    sandbox_folders: int
    files: int
    descriptors: dict[str, int]
    server_threads: int

    @classmethod
    def take(cls, server: Server | None) -> "Census":
        pids = [each for each in os.listdir("/proc") if each.isdigit()]
        states = [state_of(pid) for pid in pids if is_ours(pid)]
        objects, elements = nft_counts()
        alive = server is not None and server.process is not None and server.process.poll() is None
        return cls(
            processes=len([each for each in states if each not in ("", "Z")]),
            zombies=states.count("Z"),
            namespaces=namespaces(pids),
            mounts=len(Path("/proc/self/mountinfo").read_text().splitlines()),
            links=len(os.listdir("/sys/class/net")),
            loop_devices=len(list(Path("/sys/block").glob("loop*/loop/backing_file"))),
            cgroups=len(cgroups()),
            nft_objects=objects,
            nft_elements=elements,
            sandbox_folders=count_entries(server.data / "sandboxes") if server else 0,
            files=count_files(server.data) if server else 0,
            descriptors=descriptors.kinds(server.pid, server.data) if alive else {},
            server_threads=len(os.listdir(f"/proc/{server.pid}/task")) if alive else 0,
        )

    @classmethod
    def settled(cls, server: Server | None, within: float = 20) -> "Census":
        """When two counts in a row are the same: pools have refilled, helpers have ended."""
        assert turn.is_alone, "others change what is counted here: mark the test as `alone`"
        last: list[Census] = [cls.take(server)]

        def same() -> bool:
            now = cls.take(server)
            still = now == last[0]
            last[0] = now
            return still

        eventually(same, within=within, every=0.5, what="the machine is quiet")
        return last[0]

    @classmethod
    def returns_to(cls, before: "Census", server: Server | None, within: float = 60) -> None:
        """Nothing is more than it was. Threads may have been added up to the runtime's limit."""

        def none_grew() -> bool:
            grown = cls.take(server).grown_since(before)
            assert not grown, f"grown since before: {grown}"
            return True

        eventually(none_grew, within=within, every=0.5)

    def grown_since(self, before: "Census") -> dict[str, str]:
        return grown(flat(before), flat(self))


def flat(census: Any) -> dict[str, int]:
    values = asdict(census)
    for kind, count in values.pop("namespaces", {}).items():
        values[f"{kind} namespaces"] = count
    for kind, count in values.pop("descriptors").items():
        values[f"server's {kind}"] = count
    return values


def grown(was: dict[str, int], now: dict[str, int], slack: dict[str, int] = SLACK) -> dict[str, str]:
    """What is more than it was. Of a kind of descriptors there may have been none."""
    return {
        name: f"{was.get(name, 0)} -> {count}"
        for name, count in now.items()
        if count > max(was.get(name, 0) + slack.get(name, 0), AT_MOST.get(name, 0))
    }


def is_ours(pid: str) -> bool:
    """The server, its helpers, and whatever runs as one of the ids that only sandboxes have. Other
    work on the machine comes and goes; it is not what the product could leak."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    name = re.search(r"^Name:\t(.*)$", status, re.MULTILINE)
    uid = re.search(r"^Uid:\t(\d+)", status, re.MULTILINE)
    return bool(name and name[1].startswith("soulbox")) or bool(uid and int(uid[1]) in SANDBOX_IDS)


def state_of(pid: str) -> str:
    try:
        return re.sub(r".*\) ", "", Path(f"/proc/{pid}/stat").read_text())[0]
    except (OSError, IndexError):
        return ""


def namespaces(pids: list[str], kinds: tuple[str, ...] = NAMESPACES) -> dict[str, int]:
    """How many distinct namespaces some of the processes are in or hold a descriptor of."""
    seen: dict[str, set[str]] = {kind: set() for kind in kinds}
    for pid in pids:
        for kind in kinds:
            try:
                seen[kind].add(os.readlink(f"/proc/{pid}/ns/{kind}"))
            except OSError:
                pass
        try:
            for fd in os.listdir(f"/proc/{pid}/fd"):
                target = os.readlink(f"/proc/{pid}/fd/{fd}")
                kind = target.partition(":[")[0]
                if kind in seen:
                    seen[kind].add(target)
        except OSError:
            pass
    return {kind: len(found) for kind, found in seen.items()}


def cgroups(tag: str = "") -> list[str]:
    """Every cgroup of sandboxes, or those of the server with this tag, in every hierarchy."""
    wanted, found = f"soulbox-{tag}", []
    for top, folders, _ in os.walk("/sys/fs/cgroup"):
        # Those of other servers need not be looked into.
        folders[:] = [each for each in folders if not each.startswith("soulbox-") or each.startswith(wanted)]
        found += [f"{top}/{each}" for each in folders if wanted in f"{top}/{each}"]
    return found


def count_files(data: Path) -> int:
    """Without the logs of ended sandboxes, which stay for a day and are bounded."""
    walked = os.walk(data)
    return sum(len(files) for folder, _, files in walked if Path(folder) != data / "ends" / "logs")


def count_entries(folder: Path) -> int:
    try:
        return len(os.listdir(folder))
    except OSError:
        return 0


def nft_counts(*table: str) -> tuple[int, int]:
    """Objects, and elements in sets and maps: of one table, given as family and name, or of all."""
    which = ["table", *table] if table else ["ruleset"]
    out = subprocess.run(["nft", "-j", "list", *which], capture_output=True, text=True, timeout=60)
    if out.returncode != 0:
        return 0, 0
    listed = json.loads(out.stdout)["nftables"]
    held = [thing for each in listed for kind, thing in each.items() if kind in ("set", "map")]
    return len(listed), sum(len(thing.get("elem", [])) for thing in held)

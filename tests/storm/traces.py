"""What the machine holds for one server, found by its tag: others may work beside it."""

import json
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from support import descriptors
from support.census import SANDBOX_IDS, SLACK, cgroups, count_files, flat, grown, namespaces, nft_counts, state_of
from support.server import Server

# A server that has met a thousand clients keeps a little more than one of a calm test.
STORM_SLACK = SLACK | {"files": 8}
SANDBOX_ID = re.compile(r"i[0-9a-z]{20}")


@dataclass
class Traces:
    processes: int
    zombies: int
    network_namespaces: int
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
    def of(cls, server: Server) -> "Traces":
        instance = json.loads((server.data / "instance.json").read_text())
        tag, pids = instance["tag"], processes(server, instance)
        objects, elements = nft_counts("inet", f"soulbox_{tag}")
        return cls(
            processes=len(pids),
            zombies=zombies(server.pid),
            network_namespaces=namespaces(pids, ("net",))["net"],
            mounts=sum(str(server.data) in line for line in Path("/proc/self/mountinfo").read_text().splitlines()),
            links=sum(name.startswith((f"sb{tag}", f"sbx{tag}")) for name in os.listdir("/sys/class/net")),
            loop_devices=sum(str(server.data) in read(each) for each in Path("/sys/block").glob("loop*/loop/backing_file")),
            cgroups=len(cgroups(tag)),
            nft_objects=objects,
            nft_elements=elements,
            sandbox_folders=len(os.listdir(server.data / "sandboxes")),
            files=count_files(server.data),
            descriptors=descriptors.kinds(server.pid, server.data),
            server_threads=len(os.listdir(f"/proc/{server.pid}/task")),
        )

    @classmethod
    def settled(cls, server: Server, within: float = 20) -> "Traces":
        """When two counts in a row are the same: pools are full, helpers have ended."""
        end, last = time.monotonic() + within, cls.of(server)
        while True:
            time.sleep(0.4)
            now = cls.of(server)
            if now == last or time.monotonic() > end:
                return now
            last = now

    @classmethod
    def grown(cls, before: "Traces", server: Server, within: float) -> dict[str, str]:
        """What is still more than before when the time is over."""
        end = time.monotonic() + within
        while True:
            more = grown(flat(before), flat(cls.of(server)), STORM_SLACK)
            if not more or time.monotonic() > end:
                return more
            time.sleep(0.3)


def orphans(server: Server) -> list[str]:
    """Cgroups and loop devices of sandboxes that the server has no folder of. By name, and so also
    while sandboxes wait for a user, which counting cannot tell from a leak."""
    tag = json.loads((server.data / "instance.json").read_text())["tag"]
    held = {f"cgroup {each}": os.path.basename(each) for each in cgroups(tag) if not is_prepared_slot(server, each)}
    for each in Path("/sys/block").glob("loop*/loop/backing_file"):
        backing = Path(read(each).strip())
        if str(server.data) in str(backing):
            held[f"{each.parts[3]} on {backing}"] = backing.parent.name
    # Looked at last: what ends meanwhile loses its folder last.
    known = set(os.listdir(server.data / "sandboxes"))
    return sorted(what for what, name in held.items() if SANDBOX_ID.fullmatch(name) and name not in known)


def is_prepared_slot(server: Server, cgroup: str) -> bool:
    """A child of the server waits in there for its sandbox. How many of them there are is counted."""
    pids = read(f"{cgroup}/cgroup.procs").split()
    return any(f"PPid:\t{server.pid}\n" in read(f"/proc/{pid}/status") for pid in pids)


def processes(server: Server, instance: dict) -> list[str]:
    """The server, its helpers, and everything that runs as one of its sandboxes. What has a sandbox's
    ids and is in no server's group could be anybody's, and so is counted."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            uid, cgroup = os.stat(f"/proc/{pid}").st_uid, read(f"/proc/{pid}/cgroup")
            if f"soulbox-{instance['tag']}" in cgroup or (uid in SANDBOX_IDS and "soulbox-" not in cgroup):
                found.append(pid)
            elif os.fsencode(server.data) in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
        except OSError:
            pass
    return found


def zombies(server: int) -> int:
    try:
        children = read(f"/proc/{server}/task/{server}/children").split()
    except OSError:
        return 0
    return sum(state_of(each) == "Z" for each in children)


def read(path: str | Path) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""

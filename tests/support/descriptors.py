"""What the descriptors of a process are of, kind by kind: a sum hides a leak of one behind whatever
else came and went."""

import os
import re
from collections import Counter
from pathlib import Path

# Kinds that the server keeps a pool of: more than before is no leak up to this many.
#
# The database has up to 4 connections (crates/store), made when several requests want one at the same
# time and kept for minutes: each has the file and its log open, and all of them the shared memory.
AT_MOST = {"database": 9}

KEPT = "connections that their clients keep"
INODE_COLUMN = {"udp": 9, "udp6": 9, "raw": 9, "raw6": 9, "unix": 6, "netlink": 9, "packet": 8}
ESTABLISHED, LISTENING = "01", "0A"
NAMESPACE = re.compile(r"(\w+):\[\d+\]")
ANONYMOUS = re.compile(r"anon_inode:\[?(\w+)\]?")
SOCKET = re.compile(r"socket:\[(\d+)\]")


def kinds(pid: int, data: Path) -> dict[str, int]:
    """How many of each kind. A connection that its client keeps open is the client's to close: only
    those count whose client has gone."""
    found: Counter[str] = Counter()
    sockets = Sockets(pid)
    for fd in list_of(pid):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{fd}")
        except OSError:
            continue
        kind = sockets.kind(target) or kind_of(target, data)
        if kind != KEPT:
            found[kind] += 1
    return dict(found)


def list_of(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return []


def kind_of(target: str, data: Path) -> str:
    if anonymous := ANONYMOUS.fullmatch(target):
        return anonymous[1]
    if target.startswith("pipe:["):
        return "pipes"
    if namespace := NAMESPACE.fullmatch(target):
        return f"{namespace[1]} namespaces"
    if target.startswith(f"{data}/soulbox.db"):
        return "database"
    for beginning, kind in (
        ("/dev/loop", "loop devices"),
        ("/sys/fs/cgroup/", "control groups"),
        ("/proc/", "files of /proc"),
        ("/memfd:", "memory files"),
        (f"{data}/", "files of the data folder"),
    ):
        if target.startswith(beginning):
            return kind
    return "other files"


class Sockets:
    """Those of the process's network; what it holds in others', in sandboxes, is told as that."""

    def __init__(self, pid: int) -> None:
        # Before the descriptors are looked at: what is made later is of no known kind, and gone or known
        # when they are looked at again.
        self._kinds: dict[str, str] = {}
        self._pid = pid
        for name, column in INODE_COLUMN.items():
            for row in self._rows(name):
                self._kinds[row[column]] = f"{name} sockets"
        self._add_tcp()

    def kind(self, target: str) -> str | None:
        socket = SOCKET.fullmatch(target)
        return self._kinds.get(socket[1], "sockets in other networks") if socket else None

    def _rows(self, name: str) -> list[list[str]]:
        try:
            rows = Path(f"/proc/{self._pid}/net/{name}").read_text().splitlines()[1:]
        except OSError:
            return []
        return [row.split() for row in rows]

    def _add_tcp(self) -> None:
        rows = [row for name in ("tcp", "tcp6") for row in self._rows(name)]
        served = {port(row[1]) for row in rows if row[3] == LISTENING}
        # Both ends are here, and somebody has the other one open.
        open_ends = {(row[1], row[2]) for row in rows if row[3] == ESTABLISHED and row[9] != "0"}
        for row in rows:
            local, remote, state, inode = row[1], row[2], row[3], row[9]
            if state == LISTENING:
                kind = "listeners"
            elif port(local) not in served:
                kind = "connections to others"
            elif state == ESTABLISHED and (remote, local) in open_ends:
                kind = KEPT
            else:
                kind = "connections of clients that have gone"
            self._kinds[inode] = kind


def port(address: str) -> str:
    return address.rpartition(":")[2]

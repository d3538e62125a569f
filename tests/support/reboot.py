"""A reboot of the machine, as far as one sandbox is concerned."""

import os
import signal
from pathlib import Path

from support.waiting import eventually


def lose_memory(sandbox_id: str) -> None:
    """Thaws and kills through the sandbox's cgroups, as only the host can."""
    groups = [Path(top) for top, _, _ in os.walk("/sys/fs/cgroup") if sandbox_id in top]
    assert groups, "the sandbox has no cgroup"

    def members() -> set[int]:
        found = set()
        for group in groups:
            try:
                found |= {int(each) for each in (group / "cgroup.procs").read_text().split()}
            except OSError:
                pass
        return found

    assert members(), "nothing of the paused sandbox runs"

    def gone() -> bool:
        for pid in members():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for group in groups:
            for name, word in (("freezer.state", "THAWED"), ("cgroup.freeze", "0")):
                if (group / name).exists():
                    (group / name).write_text(word)
        return not members()

    eventually(gone, within=20, what="the processes of the sandbox are gone")

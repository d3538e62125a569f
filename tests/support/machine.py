"""Compares what the machine holds before and after the suites: `save FILE`, `compare FILE`.

Only what has to do with SoulBox: others may use the machine meanwhile.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

WITHIN = 30.0


def now() -> dict[str, list[str]]:
    return {
        "processes": sorted(soulbox_processes()),
        "mounts": sorted(line for line in Path("/proc/self/mountinfo").read_text().splitlines() if "soulbox" in line),
        "loop devices": sorted(
            str(each.parents[1].name)
            for each in Path("/sys/block").glob("loop*/loop/backing_file")
            if "soulbox" in each.read_text()
        ),
        "cgroups": sorted(
            f"{top}/{name}" for top, names, _ in os.walk("/sys/fs/cgroup") for name in names if "soulbox" in name
        ),
        "links": sorted(os.listdir("/sys/class/net")),
        "nftables": sorted(
            line for line in output("nft", "list", "tables").splitlines() if "soulbox" in line or "sbx" in line
        ),
        "network namespaces": sorted(output("ip", "netns", "list").split()),
    }


def output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30).stdout
    except OSError:
        return ""


def soulbox_processes() -> list[str]:
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            name = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
            if name.removesuffix(" (deleted)") in ("soulbox", "soulbox-envd", "soulbox-init"):
                found.append(f"{pid} {name}")
        except OSError:
            pass
    return found


def main() -> int:
    action, path = sys.argv[1:]
    if action == "save":
        Path(path).write_text(json.dumps(now()))
        return 0
    before = json.loads(Path(path).read_text())
    end = time.monotonic() + WITHIN
    while True:
        left = {kind: [each for each in found if each not in before[kind]] for kind, found in now().items()}
        left = {kind: found for kind, found in left.items() if found}
        if not left:
            print("nothing was left behind")
            return 0
        if time.monotonic() > end:
            print("left behind:", json.dumps(left, indent=2))
            return 1
        time.sleep(0.5)


sys.exit(main())

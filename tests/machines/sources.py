"""Where packages come from: the place that this machine's own apt has been told of."""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

APT = Path("/etc/apt")
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
SUITES = re.compile(r"^(bullseye|bookworm|trixie|forky|duke|sid|stable|testing|unstable|oldstable)$")


class NoMirror(Exception):
    pass


@dataclass(frozen=True)
class Mirror:
    uri: str
    keyring: str


def mirror() -> Mirror:
    """Of Debian's packages. Another one, or one at all where apt has none: SOULBOX_MACHINES_MIRROR."""
    if chosen := os.environ.get("SOULBOX_MACHINES_MIRROR"):
        return Mirror(chosen, KEYRING)
    for uri, suites, keyring in _configured():
        if any(SUITES.match(each) for each in suites):
            return Mirror(uri, keyring or KEYRING)
    raise NoMirror(
        "apt knows no source of Debian's packages here: name one in SOULBOX_MACHINES_MIRROR, "
        "and install the package debian-archive-keyring"
    )


def _configured():
    """URI, suites and keyring of each source."""
    for file in sorted(APT.glob("sources.list.d/*.sources")):
        for stanza in re.split(r"\n\s*\n", file.read_text()):
            fields = dict(re.findall(r"^([\w-]+):[ \t]*(.*)$", stanza, re.M))
            if "deb" in fields.get("Types", "").split() and fields.get("Enabled", "yes") != "no":
                for uri in fields.get("URIs", "").split():
                    yield uri, fields.get("Suites", "").split(), fields.get("Signed-By")
    for file in [APT / "sources.list", *sorted(APT.glob("sources.list.d/*.list"))]:
        lines = file.read_text().splitlines() if file.exists() else []
        for line in lines:
            found = re.match(r"deb\s+(?:\[(.*?)\]\s+)?(\S+)\s+(\S+)", line)
            if found:
                options, uri, suite = found.groups()
                keyring = re.search(r"signed-by=(\S+)", options or "")
                yield uri, [suite], keyring and keyring.group(1)


def proxies() -> list[str]:
    """What apt has been told of how to get there, as options for another apt."""
    dump = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, timeout=30).stdout
    return [line.rstrip(";") for line in dump.splitlines() if re.match(r"Acquire::https?::Proxy", line)]


if __name__ == "__main__":
    found = mirror()
    print(found.uri, found.keyring)

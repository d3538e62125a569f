"""Programs that the tests of alerts and metrics need besides the server."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def promtool(tmp_path_factory) -> str:
    """Prometheus's own checker: that of the machine, of $PROMTOOL, or out of Debian's package, which is
    unpacked and not installed (its service would start)."""
    known = os.environ.get("PROMTOOL") or shutil.which("promtool")
    if known:
        return known
    folder = tmp_path_factory.mktemp("prometheus")
    if not shutil.which("apt-get"):
        pytest.skip("skipped: no promtool, and no apt-get to fetch it")
    fetched = subprocess.run(["apt-get", "download", "prometheus"], cwd=folder, capture_output=True, timeout=100)
    packages = list(Path(folder).glob("prometheus_*.deb"))
    if fetched.returncode or not packages:
        pytest.skip("skipped: no promtool, and Debian's package prometheus cannot be fetched")
    subprocess.run(["dpkg", "-x", str(packages[0]), str(folder)], check=True, timeout=60)
    return str(folder / "usr/bin/promtool")

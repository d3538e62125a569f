import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from packages import root as roots
from support.server import PROJECT, binary

# Another version of the same program: what is tested is the way from one package to the next. What
# changes between programs is the subject of tests/upgrade/run.
NEWER = "0.9.0"


@dataclass(frozen=True)
class Packages:
    folder: Path

    @property
    def deb(self) -> Path:
        return self._only("*.deb")

    @property
    def wheel(self) -> Path:
        return self._only("*.whl")

    @property
    def npm(self) -> Path:
        return self._only("*.tgz")

    def _only(self, pattern: str) -> Path:
        (found,) = self.folder.glob(pattern)
        return found


@pytest.fixture(autouse=True, scope="session")
def _server_first(server):
    """The clients read SSL_CERT_FILE once, at their first use: it must be there by then."""


@pytest.fixture(scope="session")
def stripped(scratch) -> Path:
    """A debug build has ten times its size in debug information, which nobody installs."""
    if shutil.which("strip") is None or shutil.which("objdump") is None:
        pytest.skip("binutils are not installed")
    path = scratch / "stripped" / "soulbox"
    path.parent.mkdir()
    subprocess.run(["strip", "-o", path, binary()], check=True)
    return path


@pytest.fixture(scope="session")
def packages(scratch, stripped) -> Packages:
    return build(stripped, scratch / "packages")


@pytest.fixture(scope="session")
def newer(scratch, stripped) -> Packages:
    program = scratch / "newer" / "soulbox"
    program.parent.mkdir()
    shutil.copy(stripped, program)
    with open(program, "ab") as end:
        end.write(b"another build")  # harms no program
    return build(program, scratch / "newer-packages", "--version", NEWER)


def build(program: Path, out: Path, *options: str) -> Packages:
    done = subprocess.run(
        [sys.executable, PROJECT / "packaging/build", "--program", program, "--out", out, *options],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return Packages(out)


@pytest.fixture(scope="session")
def fresh(scratch, packages) -> Path:
    """Made once: each test that uses it leaves it as it was, which is what it tests."""
    if reason := roots.why_not():
        pytest.skip(reason)
    cache = Path(os.environ.get("SOULBOX_PACKAGES_CACHE", scratch))
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / "fresh-root"
    if not folder.exists():
        # python3-venv for the wheel alone: the package needs none of it.
        wanted = [*roots.depends(packages.deb), "python3-venv"]
        made = roots.make(cache / "fresh-root.new", wanted, cache / "mmdebstrap.log")
        made.rename(folder)
    return folder


@pytest.fixture(scope="session")
def pristine(fresh) -> set[str]:
    return roots.Root(fresh).files()


@pytest.fixture
def root(fresh, pristine):
    with roots.Root(fresh) as root:
        yield root
        root.run("dpkg", "--purge", "soulbox")
    # What a test brought, or one that failed has left.
    for path in sorted(root.files() - pristine):
        subprocess.run(["rm", "-rf", "--one-file-system", fresh / path], check=True)

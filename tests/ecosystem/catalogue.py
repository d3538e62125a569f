"""What is in the matrix: SDK versions, the code interpreters, the command line, the frameworks."""

import subprocess
import sys
from dataclasses import replace

from ecosystem.entry import Entry
from ecosystem.frameworks import FRAMEWORKS

PYPI_E2B = ("2.4.3", "2.8.1", "2.14.1", "2.20.3", "2.25.1", "2.31.0", "2.44.0", "2.56.0", "2.63.0")
NPM_E2B = ("1.13.2", "2.8.4", "2.14.1", "2.26.0", "2.36.1", "2.51.0")
PYPI_INTERPRETER = ("1.5.2", "2.8.1", "2.11.5")
NPM_INTERPRETER = ("1.5.1", "2.6.1", "2.8.0")
INTERPRETER = ("code-interpreter-v1",)

def python_sdk(version: str) -> Entry:
    return Entry((f"e2b=={version}",), "sdk.py")


def node_sdk(version: str) -> Entry:
    return Entry((f"e2b@{version}",), "sdk.mjs")


def python_interpreter(version: str) -> Entry:
    # It asks for no newest e2b, and does not run with those of today: what a lock file of its time has.
    of_its_time = ("e2b==2.31.0",) if version == "2.8.1" else ()
    return Entry((f"e2b-code-interpreter=={version}", *of_its_time), "interpreter.py", templates=INTERPRETER)


def node_interpreter(version: str) -> Entry:
    return Entry((f"@e2b/code-interpreter@{version}",), "interpreter.mjs", templates=INTERPRETER)


FAMILIES = (
    ("e2b", python_sdk, PYPI_E2B),
    ("e2b", node_sdk, NPM_E2B),
    ("e2b-code-interpreter", python_interpreter, PYPI_INTERPRETER),
    ("@e2b/code-interpreter", node_interpreter, NPM_INTERPRETER),
)
# What `./test` runs: the oldest and the newest of each SDK, and two frameworks.
SHORT = (
    "PyPI e2b 2.4.3",
    "PyPI e2b 2.63.0",
    "npm e2b 1.13.2",
    "npm e2b 2.51.0",
    "PyPI pydantic-ai-harness 0.62.0",
    "PyPI langchain-e2b 0.0.6",
)


def entries(with_newest: bool = False) -> list[Entry]:
    """With `with_newest` also what the registries call the newest, where that is none of the pinned."""
    found = []
    for package, make, versions in FAMILIES:
        newest = newest_version(make(versions[-1]), package) if with_newest else versions[-1]
        made = [make(each) for each in dict.fromkeys((*versions, newest))]
        found += [replace(each, is_newest=with_newest and each.version == newest) for each in made]
    return found + list(FRAMEWORKS)


def newest_version(entry: Entry, package: str) -> str:
    if entry.is_python:
        command = [sys.executable, "-m", "pip", "index", "versions", package]
    else:
        command = ["npm", "view", package, "version"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if answer.returncode != 0:
        raise RuntimeError(f"{entry.registry} does not tell the newest {package}: {answer.stderr.strip()[-300:]}")
    first = answer.stdout.split("\n", 1)[0]  # `e2b (2.63.0)`, or the version alone
    return first.rpartition("(")[2].rstrip(")").strip()

"""The short selection of the matrix: the oldest and the newest of each SDK, and two frameworks.

Each package is installed in an environment of its own, in SOULBOX_ECOSYSTEM_CACHE or a folder that
goes with the session. `tests/ecosystem/run` drives all of them.
"""

import os
from pathlib import Path

import pytest

from ecosystem.catalogue import SHORT, entries
from ecosystem.entry import FEATURES, MODES, Entry
from ecosystem.environments import Environment
from ecosystem.probing import probe
from support.server import PROJECT

CATALOGUE = {each.name: each for each in entries()}
PAGE = PROJECT / "docs" / "ecosystem.md"


@pytest.fixture(scope="session")
def cache(scratch) -> Path:
    return Path(os.environ.get("SOULBOX_ECOSYSTEM_CACHE", scratch / "ecosystem"))


@pytest.mark.registries
@pytest.mark.timeout(600)  # it may be installed first
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", SHORT)
def test_a_published_package_works_or_says_why_not(registries, server, cache, name, mode):
    entry = CATALOGUE[name]
    environment = Environment(cache, entry)
    environment.make()
    outcome = probe(entry, environment, server, mode)
    failed = {feature: cell.reason for feature, cell in outcome.cells.items() if cell.state == "failed"}
    assert not failed, outcome.said
    assert all(cell.reason for cell in outcome.cells.values() if cell.state == "not offered")
    assert outcome.count("ok") or mode == "plain"


def test_the_page_has_a_row_for_every_package_and_mode():
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith(("| PyPI", "| npm"))]
    told = {tuple(cell.strip() for cell in line.split("|")[1:3]) for line in rows}
    for entry in CATALOGUE.values():
        for mode in MODES:
            assert any(title(entry) in name and mode == found for name, found in told), f"{entry.name}, {mode}"
    assert all(line.count("|") == len(FEATURES) + 3 for line in rows)


def title(entry: Entry) -> str:
    return f"{entry.registry} `{entry.package}` {entry.version}"

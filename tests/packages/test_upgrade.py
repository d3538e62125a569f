"""Another program on a data folder with everything that users may have in it.

With SOULBOX_OLD_BIN an older program begins: `tests/upgrade/run` builds one and sets it. Without it the
program begins itself, as a copy: then it is the way of an upgrade that is tested, not what changed.
"""

import os
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from packages.upgrading import Belongings, ProgramServer, migrations
from support.server import binary

OLDER = os.environ.get("SOULBOX_OLD_BIN")


@pytest.fixture
def older(tmp_path) -> Path:
    if OLDER:
        return Path(OLDER)
    copy = tmp_path / "soulbox-older"
    shutil.copy(binary(), copy)
    return copy


@pytest.fixture
def upgraded(scratch, older):
    folder = Path(tempfile.mkdtemp(prefix="upgrade-", dir=scratch))
    upgraded = ProgramServer(folder / "data", program=older)
    yield upgraded
    upgraded.finish()


@pytest.mark.parametrize("how", ["politely", "killed"])
def test_everything_survives_the_upgrade_and_the_way_back(upgraded, older, tmp_path, how):
    upgraded.start()
    belongings = Belongings(upgraded, tmp_path).make()
    belongings.are_there()
    before = shutil.copytree(upgraded.data, tmp_path / "kept", ignore=lambda folder, names: keep_the_database(upgraded, folder, names))

    upgraded.replaced_by(binary(), politely=how == "politely")
    belongings.are_there()

    # Back again. A program that cannot read the newer database says so, and needs the copy from before,
    # which `soulbox install` keeps in the data folder.
    upgraded.terminate()
    upgraded.program = older
    if newer_than(upgraded.data, before):
        process = upgraded.spawn()
        assert process.wait(60) != 0
        assert "newer version of this program" in upgraded.log_tail()
        restore(before, upgraded.data)
    upgraded.start()
    belongings.are_there()

    upgraded.replaced_by(binary())
    belongings.are_there()
    belongings.wake()


def test_an_older_program_refuses_a_newer_database_and_serves_with_the_copy_from_before(upgraded, older, tmp_path):
    """As a later version will leave it: with a migration that this program does not know."""
    upgraded.start()
    belongings = Belongings(upgraded, tmp_path).make()
    upgraded.terminate()
    before = shutil.copytree(upgraded.data, tmp_path / "kept", ignore=lambda folder, names: keep_the_database(upgraded, folder, names))
    with closing(sqlite3.connect(upgraded.data / "soulbox.db")) as database, database:
        database.execute(
            "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)"
            " VALUES (9999, 'of the future', 1, x'00', 0)"
        )
    process = upgraded.spawn()
    assert process.wait(60) != 0
    assert "newer version of this program" in upgraded.log_tail() and "9999" in upgraded.log_tail()
    # Nothing of the sandboxes was touched by the refusal.
    restore(before, upgraded.data)
    upgraded.start()
    belongings.are_there()
    belongings.wake()


def keep_the_database(server: ProgramServer, folder: str, names: list[str]) -> list[str]:
    return [name for name in names if folder != str(server.data) or name not in ("soulbox.db", "soulbox.db-wal")]


def restore(before: Path, data: Path) -> None:
    for name in ("soulbox.db", "soulbox.db-wal", "soulbox.db-shm"):
        (data / name).unlink(missing_ok=True)
    for name in ("soulbox.db", "soulbox.db-wal"):
        if (before / name).exists():
            shutil.copy(before / name, data / name)


def newer_than(data: Path, before: Path) -> bool:
    return migrations(data)[-1] > migrations(before)[-1]

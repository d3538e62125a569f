"""What was found so far, kept beside the environments: a part that is run again replaces its rows only."""

import json
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path

from ecosystem.entry import Entry
from ecosystem.probing import Cell, Outcome


class Results:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows: dict[str, dict] = json.loads(path.read_text()) if path.exists() else {}

    def put(self, entry: Entry, mode: str, outcome: Outcome, sdk: str) -> None:
        self._rows[f"{entry.name} {mode}"] = {
            "cells": {name: asdict(cell) for name, cell in outcome.cells.items()},
            "sdk": sdk,
            "newest": entry.is_newest,
            "seconds": round(outcome.seconds, 1),
            "on": str(datetime.now(timezone.utc).date()),
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps(self._rows, indent=1))

    def cells(self, entry: Entry, mode: str) -> dict[str, Cell] | None:
        row = self._rows.get(f"{entry.name} {mode}")
        return {name: Cell(**cell) for name, cell in row["cells"].items()} if row else None

    def sdk(self, entry: Entry, mode: str) -> str:
        return self._rows[f"{entry.name} {mode}"]["sdk"]

    def is_newest(self, entry: Entry, mode: str) -> bool:
        return self._rows[f"{entry.name} {mode}"].get("newest", False)

    def days(self, entries: list[Entry]) -> set[str]:
        names = {entry.name for entry in entries}
        return {row["on"] for name, row in self._rows.items() if name.rpartition(" ")[0] in names}

"""Python reads this at its start: `*.localhost` is this machine, as `soulbox dns` would tell."""

import sys
from pathlib import Path

_tests = str(Path(__file__).resolve().parents[2])
sys.path.insert(0, _tests)
from support.names import resolve_localhost_names  # noqa: E402

resolve_localhost_names()
sys.path.remove(_tests)

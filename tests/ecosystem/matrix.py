"""Runs the matrix: `tests/ecosystem/run --help`."""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ecosystem import report  # noqa: E402
from ecosystem.catalogue import SHORT, entries  # noqa: E402
from ecosystem.entry import MODES, Entry  # noqa: E402
from ecosystem.environments import CannotInstall, Environment  # noqa: E402
from ecosystem.probing import Outcome, all_cells, probe  # noqa: E402
from ecosystem.results import Results  # noqa: E402
from ecosystem.templates import Templates  # noqa: E402
from support.server import PROJECT, Server  # noqa: E402

BEGIN = time.monotonic()
CACHE = Path(os.environ.get("SOULBOX_ECOSYSTEM_CACHE", "/var/cache/soulbox-ecosystem"))


def say(*words: object) -> None:
    passed = int(time.monotonic() - BEGIN)
    print(f"{passed // 60:3d}:{passed % 60:02d} ", *words, flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests/ecosystem/run", add_help=False)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--mode", choices=MODES, action="append")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--remove", action="store_true")
    parser.add_argument("--page", type=Path, default=PROJECT / "docs" / "ecosystem.md")
    return parser.parse_args()


def tell(mode: str, outcome: Outcome) -> None:
    counts = ", ".join(f"{outcome.count(state)} {state}" for state in ("ok", "not offered", "failed"))
    say(f"    {mode}: {counts} ({outcome.seconds:.1f} s)")
    reasons: dict[str, list[str]] = {}
    for feature, cell in outcome.cells.items():
        if cell.state == "failed":
            reasons.setdefault(cell.reason, []).append(feature)
    for reason, features in reasons.items():
        say(f"      failed: {', '.join(features)}: {reason}")


def run_entry(entry: Entry, modes: list[str], server: Server, templates: Templates, options: argparse.Namespace):
    """Yields each mode's outcome, and the version of the SDK in it."""
    environment = Environment(options.cache, entry)
    try:
        if not environment.is_there:
            say(f"    installing {' '.join(entry.packages)}")
        environment.make()
        missing = templates.missing(entry)
    except CannotInstall as reason:
        missing = f"cannot be installed here: {reason}"
    for mode in modes:
        outcome = all_cells("failed", missing) if missing else probe(entry, environment, server, mode)
        (options.cache / f"{entry.slug}.{mode}.log").write_text(outcome.said)
        yield mode, outcome, environment.sdk_version()
    if options.remove:
        environment.remove()


def main() -> int:
    options = arguments()
    catalogue = entries(with_newest=not (options.short or options.list))
    chosen = [each for each in catalogue if not options.short or each.name in SHORT]
    chosen = [each for each in chosen if not options.names or any(name in each.name for name in options.names)]
    if options.list:
        print("\n".join(each.name for each in chosen))
        return 0
    if not chosen:
        print("nothing has such a name; --list tells the names", file=sys.stderr)
        return 5
    scratch = Path(tempfile.mkdtemp(prefix="soulbox-ecosystem-"))
    options.cache.mkdir(parents=True, exist_ok=True)
    results = Results(options.cache / "results.json")
    server = Server(options.data or scratch / "data")
    failed = 0
    try:
        say("starting the server")
        server.start()
        templates = Templates(server, say)
        for number, entry in enumerate(chosen, 1):
            say(f"[{number}/{len(chosen)}] {entry.name}")
            for mode, outcome, sdk in run_entry(entry, options.mode or list(MODES), server, templates, options):
                results.put(entry, mode, outcome, sdk)
                failed += outcome.count("failed")
                tell(mode, outcome)
    finally:
        server.finish()
        # Tens of thousands of files of templates.
        subprocess.run(["rm", "-rf", str(scratch)])
    counts = report.write(options.page, catalogue, results)
    say(f"{options.page}: " + ", ".join(f"{count} {state}" for state, count in counts.most_common()))
    return 1 if failed else 0


# Whoever ends this ends the server with it.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
sys.exit(main())

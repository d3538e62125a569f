"""Writes the table of methods into docs/conformance.md: `report.py PYTHON.json JS.json [DOCUMENT]`.

Exits with 1 when a method fails or is not covered.
"""

import json
import re
import sys
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path

BEGIN, END = "<!-- methods: begin (tests/conformance/run) -->", "<!-- methods: end -->"
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "conformance.md"
SDKS = {"sync": "Python `Sandbox`", "async": "Python `AsyncSandbox`", "js": "JavaScript"}
# The same thing under another name.
SAME = {"Sandbox.pty.send_input": "Sandbox.pty.send_stdin"}

Verdicts = dict[str, dict[str, tuple[str, str]]]


def snake(name: str) -> str:
    """`Sandbox.files.makeDir` as `Sandbox.files.make_dir`, so that the clients share a row."""
    *parts, last = name.split(".")
    last = re.sub(r"(?<=[a-z0-9])([A-Z]+)", lambda found: "_" + found.group(1).lower(), last)
    plain = ".".join([*parts, last])
    return SAME.get(plain, plain)


def table(rows: Verdicts) -> list[str]:
    lines = ["| Method | " + " | ".join(SDKS.values()) + " | Reason |", "|---|---|---|---|---|"]
    for name in sorted(rows, key=order):
        cells = [rows[name].get(sdk, ("–", ""))[0] for sdk in SDKS]
        if set(cells) == {"local"} | (set(cells) & {"–"}):
            continue
        reasons = {reason for state, reason in rows[name].values() if reason and state != "local"}
        reason = " / ".join(sorted(reasons)).replace("|", "\\|")
        lines.append(f"| `{name}` | " + " | ".join(cells) + f" | {reason} |")
    return lines


def order(name: str) -> tuple[int, str]:
    """A sandbox's own methods first, then its parts, then the rest."""
    group = 0 if re.fullmatch(r"Sandbox\.\w+", name) else 1 if name.startswith("Sandbox.") else 2
    return group, name


def main() -> int:
    reports = [json.loads(Path(each).read_text()) for each in sys.argv[1:3]]
    document = Path(sys.argv[3]) if len(sys.argv) > 3 else DOCUMENT
    rows: Verdicts = {}
    counts: dict[str, Counter] = {}
    for report in reports:
        for sdk, found in report["sdks"].items():
            counts[sdk] = Counter(state for state, _ in found.values())
            for name, verdict in found.items():
                rows.setdefault(snake(name), {})[sdk] = tuple(verdict)
    local = sorted(name for name, cells in rows.items() if all(state == "local" for state, _ in cells.values()))
    versions = ", ".join(f"{each['package']} {each['version']}" for each in reports)
    today = datetime.now(timezone.utc).date()
    lines = [
        BEGIN,
        "",
        f"{versions}; {today}. Found by looking at the classes, each called against a running server by",
        "`tests/conformance/run`, which writes this table. `–`: this client has no such method.",
        "",
        *(f"- {SDKS[sdk]}: " + ", ".join(f"{count} {state}" for state, count in counts[sdk].most_common()) for sdk in counts),
        "",
        *table(rows),
        "",
        "Local, no server is asked: " + ", ".join(f"`{name}`" for name in local) + ".",
        "",
        END,
    ]
    text = document.read_text()
    block = "\n".join(lines)
    if BEGIN in text and END in text:
        before, rest = text.split(BEGIN, 1)
        text = before + block + rest.split(END, 1)[1]
    else:
        text = text.rstrip("\n") + "\n\n## Methods of the clients\n\n" + block + "\n"
    document.write_text(text)
    for sdk, found in counts.items():
        print(f"{SDKS[sdk]}: " + ", ".join(f"{count} {state}" for state, count in found.most_common()))
    bad = [(name, sdk, *cell) for name, cells in rows.items() for sdk, cell in cells.items() if cell[0] in ("fails", "not covered")]
    for name, sdk, state, reason in bad:
        print(f"{state}: {name} ({SDKS[sdk]}) {reason}")
    return 1 if bad else 0


sys.exit(main())

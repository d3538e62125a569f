"""Writes docs/ecosystem.md: one table, version × feature × mode, and the reasons below it."""

from collections import Counter
from pathlib import Path

from ecosystem.entry import FEATURES, MODES, Entry
from ecosystem.results import Results

HEAD = """\
# The E2B ecosystem

Published packages that speak E2B's protocol, each in an environment of its own, driven against one server.
`tests/ecosystem/run` installs them, runs all of it and writes this page; `./test ecosystem` runs a short selection.

- **plain**: the file `env` of the data folder (`E2B_API_URL` and `E2B_SANDBOX_URL`); **domain**: `env.tls` (`E2B_DOMAIN` over
  TLS). `*.localhost` resolves to this machine, as with `soulbox dns`.
- With an old lock file, use the domain mode: it works with every version here. The plain mode wants PyPI `e2b` 2.7, npm `e2b` 2.8,
  and for `run_code` PyPI `e2b-code-interpreter` 2.9 or npm `@e2b/code-interpreter` 2.7.
- PyPI `e2b` means `Sandbox` and `AsyncSandbox`: both must pass.
- **create** with metadata and variables; **commands** with output, errors, variables, in the background; **failing command**:
  exit code and output of one that fails; **files**: write, read, bytes, list, rename, remove, the error for one that is missing;
  **PTY**: input, output, size; **ports**: a server inside, opened from outside by the name that the client gives (over TLS in
  domain mode, plain HTTP in plain mode, unless the package makes a URL of its own); **connect** by id, as another program does;
  **pause**, connect, and what was there still is; **kill**; **run code**: results, logs, errors, state between cells.
- ✓ works. – is not offered by that package, or not in that mode; ✗ fails. The number is the reason below.
"""


def write(document: Path, entries: list[Entry], results: Results) -> Counter:
    """Returns how many cells are in which state."""
    counts: Counter = Counter()
    reasons: dict[str, int] = {}
    rows = []
    for entry in entries:
        for mode in MODES:
            cells = results.cells(entry, mode)
            if cells is None:
                counts["not run"] += len(FEATURES)
                rows.append(f"| {title(entry)} | {mode} |" + " not run |" * len(FEATURES))
                continue
            marks = []
            for feature in FEATURES:
                cell = cells[feature]
                counts[cell.state] += 1
                number = reasons.setdefault(cell.reason, len(reasons) + 1) if cell.reason else 0
                marks.append({"ok": "✓", "not offered": f"– {number}"}.get(cell.state, f"✗ {number}"))
            rows.append(f"| {title(entry, results.sdk(entry, mode), results.is_newest(entry, mode))} | {mode} | " + " | ".join(marks) + " |")
    days = sorted(results.days(entries)) or ["never"]
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    lines = [
        HEAD,
        f"{len(entries)} packages, run on {when}: **{counts['ok']} cells work, {counts['not offered']} are not offered, "
        f"{counts['failed']} fail, {counts['not run']} were not run**.",
        "",
        "| Package | Mode | " + " | ".join(FEATURES) + " |",
        "|---|---|" + "---|" * len(FEATURES),
        *rows,
        "",
        "## Reasons",
        "",
        *(f"{number}. {reason}" for reason, number in reasons.items()),
    ]
    document.write_text("\n".join(lines) + "\n")
    return counts


def title(entry: Entry, sdk: str = "", is_newest: bool = False) -> str:
    with_sdk = f" (e2b {sdk})" if sdk and entry.package != "e2b" else ""
    newest = ", the newest" if is_newest else ""
    return f"{entry.registry} `{entry.package}` {entry.version}{with_sdk}{newest}"

"""The table of options on a page, and the options that `soulbox serve --help` has."""

import re
from pathlib import Path

from pages import PROJECT

# A Rust test compares this file with the program.
HELP = PROJECT / "crates" / "soulbox" / "tests" / "help" / "soulbox-serve.txt"
# What is no setting of a server.
NOT_SETTINGS = {"--help", "--config"}


def of_help(text: str) -> dict[str, str]:
    """Each option and its variable."""
    found, option = {}, None
    for line in text.partition("\nExamples:\n")[0].splitlines():
        if named := re.match(r"^(?: {6}|  -\w, )(--[a-z-]+)", line):
            option = named[1]
            found[option] = ""
        elif option and (variable := re.search(r"\[env: ([A-Z0-9_]+)", line)):
            found[option] = variable[1]
    return {name: variable for name, variable in found.items() if name not in NOT_SETTINGS}


def of_table(text: str) -> dict[str, str]:
    """Each option of the table and its variable; a row may have several, and end with an ellipsis."""
    found = {}
    for line in text.splitlines():
        cells = [each.strip() for each in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) < 4 or not cells[0].startswith("`--"):
            continue
        options = re.findall(r"`(--[a-z-]+)`", cells[0])
        variables = re.findall(r"`(SOULBOX_[A-Z0-9_]+)`", cells[1])
        for number, option in enumerate(options):
            found[option] = variables[number] if number < len(variables) else "…"
    return found


def problems(page: Path, help_text: str) -> list[str]:
    real, written = of_help(help_text), of_table(page.read_text())
    name = page.relative_to(PROJECT) if page.is_relative_to(PROJECT) else page
    found = [f"{name}: {each} has no row" for each in real if each not in written]
    found += [f"{name}: there is no option {each}" for each in written if each not in real]
    found += [
        f"{name}: the variable of {option} is {real[option]}, not {variable}"
        for option, variable in written.items()
        if variable != "…" and option in real and variable != real[option]
    ]
    return found

"""Blocks of code on pages that say which file they are from are that file's lines, still."""

import io
import textwrap
import tokenize
from pathlib import Path

from pages import PROJECT, Block, page


def without_comments(code: str) -> list[str]:
    """Its lines without comments and blank ones: pages in other languages translate comments."""
    lines = code.splitlines(keepends=True)
    try:
        comments = [each for each in tokenize.generate_tokens(io.StringIO(code).readline) if each.type == tokenize.COMMENT]
    except (tokenize.TokenError, IndentationError):  # a part of a program need not be one
        comments = []
    for each in comments:
        row, column = each.start
        lines[row - 1] = lines[row - 1][:column]
    return [each.rstrip() for each in lines if each.strip()]


def normal(code: str, translated: bool) -> list[str]:
    if translated:
        return without_comments(code)
    return [each.rstrip() for each in code.splitlines() if each.strip()]


def is_part(block: str, source: str, translated: bool = False) -> bool:
    """Whether these lines stand in the source one after the other, however far they are indented."""
    wanted = normal(textwrap.dedent(block), translated)
    lines = normal(source, translated)
    for first in range(len(lines) - len(wanted) + 1):
        here = textwrap.dedent("\n".join(lines[first : first + len(wanted)])).split("\n")
        if here == wanted:
            return True
    return False


def from_files(path: Path) -> list[tuple[Block, Path]]:
    """The page's blocks that name a file of the project."""
    named = [(each, PROJECT / each.title) for each in page(path).blocks if each.title]
    return [(block, source) for block, source in named if block.title.startswith("examples/")]


def problems(path: Path) -> list[str]:
    translated = "zh" in path.relative_to(PROJECT).parts
    found = []
    for block, source in from_files(path):
        where = f"{path.relative_to(PROJECT)}:{block.line}"
        if not source.is_file():
            found.append(f"{where}: {block.title} is not there")
        elif not is_part(block.text, source.read_text(), translated):
            found.append(f"{where}: these are not (or no longer) lines of {block.title}")
    return found

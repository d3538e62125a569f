"""The reading order: `docs/README.md` and `docs/zh/README.md` are the table of contents.

GitHub shows them as pages, `docs/build` makes the site's navigation of them, and a test fails while
a page of `docs/` is in neither.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

from pages import PROJECT, all_pages, page

CONTENTS = {"en": PROJECT / "docs" / "README.md", "zh": PROJECT / "docs" / "zh" / "README.md"}
ITEM = re.compile(r"^- \[(?P<title>[^\]]+)\]\((?P<target>[^)#]+)\)")


@dataclass
class Section:
    title: str
    items: list[tuple[str, Path]] = field(default_factory=list)


def sections(contents: Path) -> list[Section]:
    found: list[Section] = []
    for line in contents.read_text().splitlines():
        if line.startswith("## "):
            found.append(Section(line.removeprefix("## ").strip()))
        elif found and (item := ITEM.match(line)):
            found[-1].items.append((item["title"], (contents.parent / item["target"]).resolve()))
    return found


def below(index: Path) -> list[Path]:
    """Pages beside an index of their own, such as the decisions, in the order of their links."""
    linked = [(index.parent / each.target.partition("#")[0]).resolve() for each in page(index).links]
    here = [each for each in linked if each.suffix == ".md" and each.parent == index.parent and each != index]
    return list(dict.fromkeys(here))


def in_order() -> list[Path]:
    """Every page that a reader comes to by the contents."""
    found: list[Path] = []
    for contents in CONTENTS.values():
        found.append(contents)
        for section in sections(contents):
            for _, target in section.items:
                found.append(target)
                if target.name == "README.md" and target.parent.parent == PROJECT / "docs" and target not in CONTENTS.values():
                    found += below(target)
    return list(dict.fromkeys(found))


def forgotten() -> list[Path]:
    """Pages of `docs/` that nobody comes to."""
    reached = set(in_order())
    return [each for each in all_pages() if each.is_relative_to(PROJECT / "docs") and each not in reached]

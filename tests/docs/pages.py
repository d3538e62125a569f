"""The project's pages as their readers see them: links, anchors and blocks of code.

Only the standard library: `./test lint` runs this without installing anything, and `docs/build` uses
it for the site.
"""

import re
import subprocess
import unicodedata
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]

FENCE = re.compile(r"^(?P<indent> *)(?P<marks>`{3,}|~{3,})(?P<info>.*)$")
HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*#*$")
CODE_SPAN = re.compile(r"(?P<marks>`+)(?!`).*?(?<!`)(?P=marks)(?!`)")
# Of a Markdown link or picture: the target. Of HTML: the attribute.
LINK = re.compile(r"\]\((?P<inline><[^>]*>|[^()\s]*(?:\([^()\s]*\)[^()\s]*)*)(?:\s+\"[^\"]*\")?\)")
REFERENCE = re.compile(r"^ {0,3}\[[^\]]+\]:\s+(?P<inline>\S+)")
ATTRIBUTE = re.compile(r"<(?:a|img|source)\b[^>]*?\s(?:href|src|srcset)=\"(?P<inline>[^\"]*)\"")


@dataclass(frozen=True)
class Link:
    target: str
    line: int
    # Where the target is in the text of the page.
    start: int
    end: int


@dataclass(frozen=True)
class Block:
    """A fenced block of code: ```python title="examples/x.py" """

    info: str
    text: str
    line: int

    @property
    def language(self) -> str:
        return self.info.split()[0] if self.info.split() else ""

    @property
    def title(self) -> str | None:
        found = re.search(r'title="([^"]*)"', self.info)
        return found[1] if found else None


@dataclass
class Page:
    text: str
    links: list[Link] = field(default_factory=list)
    anchors: list[str] = field(default_factory=list)
    headings: list[tuple[int, str]] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    text = re.sub(r"<[^>]+>", "", text).replace("`", "").replace("*", "").strip().lower()
    kept = (each for each in text if each in " -_" or unicodedata.category(each)[0] in "LMN")
    return "".join(kept).replace(" ", "-")


def read(text: str) -> Page:
    page = Page(text)
    seen: dict[str, int] = {}
    fence: tuple[str, str, int, int] | None = None  # marks, info, indentation, line
    inside: list[str] = []
    start = 0
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        bare = line.rstrip("\n")
        found = FENCE.match(bare)
        if fence:
            marks, info, indent, begun = fence
            if found and found["marks"].startswith(marks) and not found["info"].strip():
                page.blocks.append(Block(info, "".join(inside), begun))
                fence = None
            else:
                inside.append(line[indent:] if line[:indent].isspace() or not indent else line)
        elif found:
            fence, inside = (found["marks"], found["info"].strip(), len(found["indent"]), number), []
        else:
            if heading := HEADING.match(bare):
                anchor = slug(heading[2])
                count = seen.get(anchor, 0)
                seen[anchor] = count + 1
                page.anchors.append(f"{anchor}-{count}" if count else anchor)
                page.headings.append((len(heading[1]), heading[2]))
            page.anchors += re.findall(r"<a (?:id|name)=\"([^\"]+)\"", bare)
            # Code is no link; blanks of the same length keep the positions.
            visible = CODE_SPAN.sub(lambda each: " " * len(each[0]), bare)
            for pattern in (LINK, REFERENCE, ATTRIBUTE):
                for each in pattern.finditer(visible):
                    begin, end = each.span("inline")
                    page.links.append(Link(bare[begin:end].strip("<>"), number, start + begin, start + end))
        start += len(line)
    if fence:
        raise ValueError(f"the block that begins in line {fence[3]} has no end")
    return page


@cache
def page(path: Path) -> Page:
    try:
        return read(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path.relative_to(PROJECT)}: {error}") from error


@cache
def all_pages() -> list[Path]:
    """Every Markdown file that belongs to the project, whether it is committed yet or not."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", "*.md"],
        cwd=PROJECT, capture_output=True, text=True,
    )  # fmt: skip
    if listed.returncode == 0:
        names = [each for each in listed.stdout.split("\0") if each]
    else:  # a copy without its history
        folders = ("", "docs/**/", "examples/", "templates/**/", "tests/**/", "crates/**/")
        names = [str(each.relative_to(PROJECT)) for folder in folders for each in PROJECT.glob(f"{folder}*.md")]
    return sorted({PROJECT / each for each in names if (PROJECT / each).is_file()})


def is_elsewhere(target: str) -> bool:
    """On the internet, or an address of mail."""
    return bool(re.match(r"[a-z][a-z0-9+.-]*:", target)) or target.startswith("//")


def problems(path: Path, root: Path = PROJECT) -> list[str]:
    """What is wrong with the links of a page, as `page:line: …`."""
    found = []

    def wrong(link: Link, why: str) -> None:
        found.append(f"{path.relative_to(root)}:{link.line}: {link.target}: {why}")

    for link in page(path).links:
        if is_elsewhere(link.target):
            if not link.target.startswith(("https://", "mailto:")):
                wrong(link, "a link to elsewhere begins with https://")
            continue
        name, _, anchor = link.target.partition("#")
        if name.startswith("/"):
            wrong(link, "begins with a slash: it leads nowhere in a folder or on a site")
            continue
        target = (path.parent / name).resolve() if name else path
        if not target.is_relative_to(root):
            wrong(link, "leads out of the project")
        elif not target.exists():
            wrong(link, "is not there")
        elif anchor and target.suffix == ".md" and anchor not in page(target).anchors:
            wrong(link, f"{target.relative_to(root)} has no such heading")
        elif anchor and target.suffix != ".md":
            wrong(link, "only pages have anchors")
    return found

"""Lists as the site's generator reads them.

GitHub takes what is below an item's text as a part of the item. MkDocs wants four spaces, whatever the
width of the item's mark, and a blank line between a paragraph and the item after it.
"""

import re

ITEM = re.compile(r"^(?P<mark>[-*+] +|\d+[.)] +)")
FENCE = re.compile(r"^ *(`{3,}|~{3,})")


def widened(text: str) -> str:
    """The same page with the parts of items, and of items in them, four spaces further in."""
    return "\n".join(_widened(text.split("\n")))


def begins_a_list(mark: str, in_list: bool) -> bool:
    """In a paragraph only these do: another number is a word that came to stand at a line's beginning."""
    return in_list or not mark[0].isdigit() or mark[:-1].strip() in ("1.", "1)")


def _widened(lines: list[str]) -> list[str]:
    result: list[str] = []
    fence = None
    in_list = loose = False  # whether the line before is of an item, and one of several paragraphs
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        if found := FENCE.match(line):
            if fence is None:
                fence = found[1]
            elif found[1].startswith(fence):
                fence = None
        item = None if fence else ITEM.match(line)
        if item and result and result[-1].strip() and (loose or not in_list) and begins_a_list(item["mark"], in_list):
            result.append("")
        result.append(line)
        if line.strip() and not item:
            in_list = False
        if not item:
            continue
        # What belongs to it: lines that begin below its text, and blank ones between them.
        width = len(item["mark"])
        inside: list[str] = []
        while number < len(lines) and (not lines[number].strip() or lines[number].startswith(" " * width)):
            inside.append(lines[number][width:])
            number += 1
        after = 0
        while inside and not inside[-1].strip():
            inside.pop()
            after += 1
        in_list, loose = True, any(not each.strip() for each in inside)
        result += [f"    {each}" if each.strip() else "" for each in _widened(inside)]
        result += [""] * after
    return result

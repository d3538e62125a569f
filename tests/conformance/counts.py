"""Prints the counts per file of a vitest (JSON) or pytest (JUnit) report, then every failure."""

import json
import os
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict

Counts = dict[str, list[int]]  # file -> [passed, failed, skipped]


def vitest(path: str, root: str) -> tuple[Counts, list[tuple[str, str, str]]]:
    counts: Counts = defaultdict(lambda: [0, 0, 0])
    failures = []
    for each in json.load(open(path))["testResults"]:
        name = os.path.relpath(each["name"], root)
        if not each["assertionResults"] and each.get("message"):
            counts[name][1] += 1
            failures.append((name, "(the whole file)", each["message"]))
        for case in each["assertionResults"]:
            if case["status"] == "passed":
                counts[name][0] += 1
            elif case["status"] == "failed":
                counts[name][1] += 1
                failures.append((name, case["fullName"].strip(), "\n".join(case.get("failureMessages") or [])))
            else:
                counts[name][2] += 1
    return counts, failures


def junit(path: str) -> tuple[Counts, list[tuple[str, str, str]]]:
    counts: Counts = defaultdict(lambda: [0, 0, 0])
    failures = []
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name = case.get("classname", "").removeprefix("tests.").replace(".", "/") + ".py"
        problem = case.find("failure") if case.find("failure") is not None else case.find("error")
        if problem is not None:
            counts[name][1] += 1
            failures.append((name, case.get("name", ""), problem.get("message") or problem.text or ""))
        elif case.find("skipped") is not None:
            counts[name][2] += 1
        else:
            counts[name][0] += 1
    return counts, failures


def main() -> None:
    kind, *arguments = sys.argv[1:]
    counts, failures = vitest(*arguments) if kind == "vitest" else junit(*arguments)
    print(f"| {kind} file | passed | failed | skipped |\n|---|---|---|---|")
    for name, (passed, failed, skipped) in sorted(counts.items()):
        print(f"| {name} | {passed} | {failed} | {skipped} |")
    totals = [sum(column) for column in zip(*counts.values())] or [0, 0, 0]
    print("| **all** | " + " | ".join(f"**{each}**" for each in totals) + " |\n")
    for name, test, message in failures:
        first = next((line for line in message.splitlines() if line.strip()), "")
        plain = re.sub(r"\x1b\[[0-9;]*m", "", first)
        print(f"- {name} › {test}: {plain[:300]}")


main()

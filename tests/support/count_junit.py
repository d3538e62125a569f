"""Prints `passed failed skipped` of a JUnit file."""

import sys
import xml.etree.ElementTree as ElementTree

cases = list(ElementTree.parse(sys.argv[1]).getroot().iter("testcase"))
failed = sum(1 for case in cases if case.find("failure") is not None or case.find("error") is not None)
skipped = sum(1 for case in cases if case.find("skipped") is not None)
if not cases:
    sys.exit("no test ran")
print(len(cases) - failed - skipped, failed, skipped)

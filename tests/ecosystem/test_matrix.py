"""How the matrix reads its probes and writes its page, without a server."""

from ecosystem import report
from ecosystem.catalogue import SHORT, entries
from ecosystem.entry import FEATURES, MODES, Entry, Limit
from ecosystem.environments import PROBES
from ecosystem.probing import Cell, Outcome, all_cells, read
from ecosystem.results import Results

LINE = '{"feature": "create", "state": "ok", "reason": "", "seconds": 0.1}'


def test_every_row_has_a_name_of_its_own_and_a_probe():
    names = [each.name for each in entries()]
    assert len(set(names)) == len(names) and set(SHORT) <= set(names)
    assert all((PROBES / each.probe).is_file() for each in entries())


def test_a_name_is_that_of_the_first_package():
    assert Entry(("harbor[e2b]==0.24.0",), "a.py").name == "PyPI harbor 0.24.0"
    assert Entry(("@e2b/cli@2.19.0", "other@1"), "a.mjs").name == "npm @e2b/cli 2.19.0"


def test_what_a_probe_does_not_tell_has_failed():
    outcome = read(f"a library's own words\n{LINE}\nTraceback", "the probe ended with 1")
    assert outcome.cells["create"] == Cell("ok")
    assert outcome.cells["kill"] == Cell("failed", "the probe ended with 1: Traceback")
    assert set(outcome.cells) == set(FEATURES)


def test_a_limit_explains_its_own_failure_only():
    entry = Entry(("e2b==1",), "sdk.py", limits=(Limit("plain", "files", "no such route", "the client's doing"),))
    assert entry.explain("plain", "files", "404: there is no such route") == "the client's doing"
    assert entry.explain("plain", "files", "500") is None
    assert entry.explain("domain", "files", "there is no such route") is None


def test_the_page_counts_the_cells_and_tells_each_reason_once(tmp_path):
    first, second = Entry(("e2b==1",), "sdk.py"), Entry(("e2b@2",), "sdk.mjs")
    results = Results(tmp_path / "results.json")
    results.put(first, "plain", all_cells("not offered", "too old"), "1")
    mixed = Outcome({feature: Cell("ok") for feature in FEATURES} | {"kill": Cell("failed", "too old")})
    results.put(first, "domain", mixed, "1")
    counts = report.write(tmp_path / "page.md", [first, second], Results(tmp_path / "results.json"))
    many = len(FEATURES)
    assert counts == {"ok": many - 1, "not offered": many, "failed": 1, "not run": many * len(MODES)}
    page = (tmp_path / "page.md").read_text()
    assert page.count("too old") == 1 and "| ✗ 1 |" in page and "| – 1 |" in page and "| not run |" in page

"""The alert rules and the dashboard that are checked in: valid, tested, and of metrics that exist."""

import json
import re
import subprocess

import httpx
import pytest
import yaml
from e2b import Sandbox

from support.server import PROJECT
from support.waiting import eventually

RULES = PROJECT / "deploy/prometheus/alerts.yml"
TESTS = PROJECT / "deploy/prometheus/alerts_test.yml"
DASHBOARD = PROJECT / "deploy/grafana/soulbox.json"
METRIC = re.compile(r"\bsoulbox_[a-z0-9_]+\b")


def rules() -> list[dict]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def panels() -> list[dict]:
    return [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if panel["type"] != "row"]


def expressions() -> list[str]:
    of_panels = [target["expr"] for panel in panels() for target in panel["targets"]]
    return [rule["expr"] for rule in rules()] + of_panels


@pytest.fixture(scope="module")
def exported(own_page) -> set[str]:
    """The names of all samples that a server has on its page once it has done a bit of everything."""
    return {line.split("{")[0].split(" ")[0] for line in own_page.splitlines() if line and line[0] != "#"}


@pytest.fixture(scope="module")
def own_page(server, tmp_path_factory) -> str:
    box = Sandbox.create(timeout=60, **server.sdk)
    box.kill()
    target = tmp_path_factory.mktemp("backups")
    done = server.cli("backup", str(target), "--data-dir", str(server.data))
    assert done.returncode == 0, done.stderr
    page = lambda: httpx.get(f"{server.admin_url}/metrics", timeout=10).text
    eventually(lambda: "soulbox_backup_last_success" in page(), within=45, every=0.5)
    return page()


def test_prometheus_takes_the_rules(promtool):
    checked = subprocess.run([promtool, "check", "rules", RULES], capture_output=True, timeout=60)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_alerts_fire_when_they_should_and_not_before(promtool):
    tested = subprocess.run([promtool, "test", "rules", TESTS], capture_output=True, timeout=100)
    assert tested.returncode == 0, (tested.stdout + tested.stderr).decode()
    names = set(re.findall(r"alertname: (\w+)", TESTS.read_text()))
    assert len(names) >= 4 and names <= {rule["alert"] for rule in rules()}


def test_prometheus_takes_every_expression_of_the_dashboard(promtool, tmp_path):
    """As rules: Grafana's own variables get the values that it would put there."""
    filled = [
        each.replace("$__rate_interval", "5m").replace("$instance", ".*")
        for panel in panels()
        for each in [target["expr"] for target in panel["targets"]]
    ]
    group = {"name": "dashboard", "rules": [{"record": f"panel:{at}", "expr": each} for at, each in enumerate(filled)]}
    path = tmp_path / "dashboard.yml"
    path.write_text(yaml.safe_dump({"groups": [group]}))
    checked = subprocess.run([promtool, "check", "rules", path], capture_output=True, timeout=60)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_metric_of_rules_and_dashboard_is_one_that_a_server_exports(exported):
    named = {name for each in expressions() for name in METRIC.findall(each)}
    assert len(named) > 30
    assert not named - exported, f"not exported: {named - exported}"


def test_every_label_value_of_rules_and_dashboard_is_one_that_a_server_exports(own_page):
    for each in expressions():
        for name, labels in re.findall(r"(soulbox_[a-z0-9_]+)\{([^}]*)\}", each):
            for label, values in re.findall(r'(\w+)=~?"([^"$.]+)"', labels):
                if label in ("instance", "status", "outcome") and name == "soulbox_sandbox_creates_total":
                    continue  # an outcome is there once it happened
                for value in values.split("|"):
                    sample = re.compile(rf'^{name}\{{[^}}]*\b{label}="{value}"', re.MULTILINE)
                    assert sample.search(own_page), f"{name} has no {label}={value}"


def test_every_alert_says_what_it_is_and_what_to_do():
    guide = (PROJECT / "docs/operations.md").read_text()
    headings = {line.lstrip("# ").strip().lower() for line in guide.splitlines() if line.startswith("#")}
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning", "info"), rule["alert"]
        assert {"summary", "description", "runbook"} <= set(rule["annotations"]), rule["alert"]
        page, anchor = rule["annotations"]["runbook"].split("#")
        assert page == "docs/operations.md" and anchor in headings, rule["annotations"]["runbook"]


def test_the_dashboard_is_one_that_grafana_can_load():
    """By its structure: Grafana itself is not among Debian's packages, so it is not asked here."""
    dashboard = json.loads(DASHBOARD.read_text())
    assert dashboard["uid"] and dashboard["title"] and dashboard["schemaVersion"] >= 36
    assert "id" not in dashboard, "an id of another Grafana would be refused"
    variables = {each["name"]: each for each in dashboard["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource" and variables["instance"]["type"] == "query"
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        assert not cells & taken, f"{panel['title']} lies over another panel"
        taken |= cells
    titles = {panel["title"] for panel in dashboard["panels"] if panel["type"] == "row"}
    assert titles >= {"Overview", "Creates", "Disk", "Memory", "Builds", "Egress"}
    for panel in panels():
        assert panel["type"] in ("timeseries", "stat") and panel["title"] and panel["description"]
        assert panel["targets"] and all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"])
        references = [target["refId"] for target in panel["targets"]]
        assert len(references) == len(set(references))

"""The metrics page is what Prometheus expects: every metric is described, and none has a label without
bounds."""

import re
import subprocess
import time

import httpx
import pytest
from e2b import Sandbox, Template
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as text_format

from support.waiting import eventually

OPEN_METRICS = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"}


def page(server, **headers) -> httpx.Response:
    return httpx.get(f"{server.admin_url}/metrics", headers=headers, timeout=10)


def families(server) -> dict:
    return {each.name: each for each in open_metrics(page(server, **OPEN_METRICS).text)}


def value(server, name: str, **labels: str) -> float:
    family = families(server)[name.removesuffix("_total")]
    found = [each.value for each in family.samples if each.name == name and labels.items() <= each.labels.items()]
    assert found, f"{name} {labels} is not on the page"
    return sum(found)


@pytest.fixture(scope="module")
def busy(server):
    """A server that has done a bit of everything."""
    box = Sandbox.create(timeout=60, **server.sdk)
    box.commands.run("true")
    box.kill()
    # What is looked at now and then was looked at.
    eventually(lambda: "soulbox_disk_used_bytes" in page(server).text, within=30)
    return server


def test_every_metric_has_a_type_and_says_what_it_is(busy):
    found = families(busy)
    assert len(found) > 40
    for family in found.values():
        assert family.name.startswith("soulbox_"), family.name
        assert family.type in ("counter", "gauge", "histogram", "info"), family
        assert len(family.documentation) >= 8, f"{family.name} has no HELP"
        assert not family.name.endswith("_total"), family.name


def test_the_older_format_has_the_same_metrics(busy):
    answer = page(busy)
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    # A counter is called by the name of its samples there, and here by that without the suffix.
    older = {each.name: each for each in text_format(answer.text)}
    newer = families(busy)
    names = {f"{each.name}_info" if each.type == "info" else each.name for each in newer.values()}
    assert set(older) == names
    assert all(each.documentation for each in older.values())
    assert page(busy, **OPEN_METRICS).headers["content-type"].startswith("application/openmetrics-text")


def test_prometheus_own_linter_finds_nothing(busy, promtool):
    checked = subprocess.run(
        [promtool, "check", "metrics"], input=page(busy).content, capture_output=True, timeout=60
    )
    complaints = (checked.stdout + checked.stderr).decode()
    assert checked.returncode == 0 and not complaints.strip(), complaints


def test_no_label_grows_with_sandboxes_or_with_what_clients_send(busy):
    known = {"route", "method", "status", "outcome", "state", "resource", "scope", "kind", "reason", "certificate", "version", "le"}
    box = Sandbox.create(timeout=60, **busy.sdk)
    with busy.api() as api:
        for path in ("/sandboxes/ix1", "/no/such/route", f"/{'x' * 300}"):
            api.get(path)
        api.request("BREW", "/sandboxes")
    text = page(busy).text
    box.kill()
    assert box.sandbox_id not in text and "BREW" not in text and "xxx" not in text
    for family in families(busy).values():
        for sample in family.samples:
            assert set(sample.labels) <= known, sample
    assert len(text.splitlines()) < 3000


def test_the_figures_follow_what_happens(busy):
    before = value(busy, "soulbox_sandbox_creates_total", outcome="created")
    running = value(busy, "soulbox_sandboxes", state="running")
    box = Sandbox.create(timeout=120, **busy.sdk)
    assert value(busy, "soulbox_sandbox_creates_total", outcome="created") == before + 1
    assert value(busy, "soulbox_sandboxes", state="running") == running + 1
    paused = value(busy, "soulbox_sandboxes", state="paused")
    box.pause()
    assert value(busy, "soulbox_sandboxes", state="paused") == paused + 1
    box.kill()
    snapshot_before = value(busy, "soulbox_snapshots")
    source = Sandbox.create(timeout=120, **busy.sdk)
    snapshot = source.create_snapshot()
    assert value(busy, "soulbox_snapshots") == snapshot_before + 1
    source.kill()
    Sandbox.delete_snapshot(snapshot.snapshot_id, **busy.sdk)
    assert value(busy, "soulbox_disk_free_bytes") > value(busy, "soulbox_disk_reserve_bytes") > 0
    assert value(busy, "soulbox_disk_size_bytes") > value(busy, "soulbox_disk_free_bytes")
    assert value(busy, "soulbox_memory_limit_bytes") > 0
    assert value(busy, "soulbox_tls_certificate_expiry_timestamp_seconds", certificate="usual") > time.time()


def test_builds_are_counted_by_their_end(busy):
    options = {"api_key": busy.key, "api_url": busy.url}
    ready = value(busy, "soulbox_builds_ended_total", outcome="ready")
    failed = value(busy, "soulbox_builds_ended_total", outcome="failed")
    spent = value(busy, "soulbox_builds_duration_seconds_total")
    Template.build(Template().from_template("base").run_cmd("sleep 0.2"), "counted", skip_cache=True, **options)
    assert value(busy, "soulbox_builds_ended_total", outcome="ready") == ready + 1
    assert value(busy, "soulbox_builds_duration_seconds_total") >= spent + 0.2
    with pytest.raises(Exception, match="exit status 3"):
        Template.build(Template().from_template("base").run_cmd("exit 3"), "fails", **options)
    assert value(busy, "soulbox_builds_ended_total", outcome="failed") == failed + 1
    assert value(busy, "soulbox_builds", state="running") == 0


def test_processes_that_run_out_of_memory_are_counted(busy):
    before = value(busy, "soulbox_oom_kills_total")
    box = Sandbox.create(timeout=120, **busy.sdk)
    eater = "x = []\nwhile True: x.append(bytearray(1 << 24))"
    box.commands.run(f"python3 -c '{eater}' || true", timeout=60)
    eventually(lambda: value(busy, "soulbox_oom_kills_total") > before, within=30, what="a sample sees it")
    box.kill()


def test_what_sandboxes_may_not_reach_is_counted(busy):
    before = value(busy, "soulbox_network_packets_total", kind="refused")
    box = Sandbox.create(timeout=120, **busy.sdk)
    # An address of the host's own networks, which no sandbox may reach.
    box.commands.run("timeout 2 bash -c 'echo > /dev/tcp/10.255.255.1/80' || true")
    box.kill()
    eventually(
        lambda: value(busy, "soulbox_network_packets_total", kind="refused") > before, within=45, every=1,
        what="the firewall's counter is read",
    )  # fmt: skip


def test_old_names_are_gone():
    """Words of our own in place of the usual ones: nothing on the page, in rules or on the dashboard."""
    from support.server import PROJECT

    odd = re.compile(r"\b(places|gave_way|crowded_out|names_asked)\b")
    for path in ("crates/server/src/metrics.rs", "deploy/grafana/soulbox.json", "deploy/prometheus/alerts.yml"):
        assert not odd.search((PROJECT / path).read_text()), path

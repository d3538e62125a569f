"""A template from an image in a registry, with the published clients, from the request to a served port."""

import re
import time
import traceback

import httpx
import pytest
from e2b import BuildException, wait_for_file, wait_for_port, wait_for_process, wait_for_timeout, wait_for_url

from support.waiting import eventually

pytestmark = pytest.mark.timeout(300)

APP = """
import http.server, os

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"{os.environ['GREETING']} from {os.getcwd()} as {os.getuid()}".encode())

http.server.HTTPServer(("0.0.0.0", 8000), Handler).serve_forever()
"""


@pytest.fixture
def context(tmp_path):
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


def test_a_template_with_all_kinds_of_steps_serves_its_port_at_once(templates, made, server, context):
    template = (
        templates.new(file_context_path=str(context))
        .from_image("python:3.11")
        .set_envs({"GREETING": "hello"})
        .set_workdir("/srv/app")
        .copy("app.py", "app.py")
        .run_cmd("python3 -m py_compile app.py")
        .run_cmd("echo $GREETING > /etc/greeting", user="root")
        .set_user("worker")
        .set_start_cmd("python3 /srv/app/app.py", wait_for_port(8000))
    )
    info, log = templates.build(template, cpu_count=1, memory_mb=256)
    assert info.template_id and info.build_id and info.tags == ["default"]
    assert "FROM python:3.11" in log.text, log.text
    assert "[finalize]" in log.text, log.text

    sandbox = made.create(template=info.name, timeout=120)
    # Not later: a sandbox is handed out when its ready command has passed.
    headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "8000"}
    answer = httpx.get(server.url, headers=headers, timeout=30)
    uid = sandbox.commands.run("id -u").stdout.strip()
    assert (answer.status_code, answer.text) == (200, f"hello from /srv/app as {uid}"), answer.text
    assert sandbox.commands.run("whoami; pwd; cat /etc/greeting").stdout.split() == ["worker", "/srv/app", "hello"]
    told = sandbox.get_info()
    assert (told.template_id, told.cpu_count, told.memory_mb) == (info.template_id, 1, 256)


def test_a_build_in_the_background_is_building_at_once_and_ends(templates):
    template = templates.new().from_image("ubuntu:22.04").run_cmd("sleep 2; echo done-now")
    info = templates.start(template, cpu_count=1, memory_mb=1024)
    assert templates.status(info).status == "building"
    ended = templates.finished(info)
    assert ended.status == "ready", ended.reason
    assert "done-now" in templates.log(info).text


def test_the_log_only_grows_and_an_entry_keeps_its_place(sync_templates, server):
    template = sync_templates.new().from_image("ubuntu:22.04").run_cmd("seq 1 250").run_cmd("sleep 1; seq 1 20")
    info = sync_templates.start(template)
    path = f"/templates/{info.template_id}/builds/{info.build_id}/status"
    seen: list[dict] = []
    with server.api() as api:

        def drained():
            page = api.get(path, params={"logsOffset": len(seen)}).json()
            assert len(page["logEntries"]) <= 100
            seen.extend(page["logEntries"])
            return page["status"] in ("ready", "error") and not page["logEntries"] and page

        last = eventually(drained, within=120, every=0.1)
        assert last["status"] == "ready", last
        again: list[dict] = []
        while page := api.get(path, params={"logsOffset": len(again)}).json()["logEntries"]:
            again.extend(page)
    assert again == seen
    numbers = [each["message"].rsplit(" ", 1)[-1] for each in seen if "[stdout]" in each["message"]]
    assert [each for each in numbers if each.isdigit()] == [str(n) for n in [*range(1, 251), *range(1, 21)]]
    assert all(each["timestamp"] and each["level"] in ("debug", "info", "warn", "error") for each in seen)


def failing_line(error: BaseException) -> list[str]:
    """The lines of this file in the error's traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    return [each.line or "" for each in frames if each.filename == __file__]


def test_a_failed_command_is_told_at_its_line(templates):
    template = (
        templates.new()
        .from_image("ubuntu:22.04")
        .run_cmd("echo first")
        .run_cmd("echo out; echo err >&2; exit 7")
        .run_cmd("echo never")
    )
    with pytest.raises(BuildException, match=r"failed to run command '.*exit 7': exit status 7") as raised:
        templates.build(template)
    assert any("exit 7" in line for line in failing_line(raised.value)), failing_line(raised.value)


def test_what_a_failed_command_said_is_in_the_log(sync_templates):
    from support.templates import Log

    log = Log()
    template = sync_templates.new().from_image("ubuntu:22.04").run_cmd("echo to-out; echo to-err >&2; exit 1")
    with pytest.raises(BuildException):
        sync_templates.build(template, log=log)
    assert "to-out" in log.text and "to-err" in log.text
    assert any(each.level == "error" for each in log.entries)


def test_an_image_that_is_not_there_fails_at_the_base(templates):
    template = templates.new().from_image("ubuntu:no-such-tag").run_cmd("echo never")
    with pytest.raises(BuildException, match="ubuntu:no-such-tag") as raised:
        templates.build(template)
    assert any("no-such-tag" in line for line in failing_line(raised.value))


def test_a_template_that_is_not_there_is_refused_by_name(templates):
    with pytest.raises(BuildException, match="no-such-template"):
        templates.build(templates.new().from_template("no-such-template").run_cmd("echo never"))


@pytest.mark.parametrize("kind", ["missing", "unreadable name"])
def test_a_user_that_cannot_be_fails_the_step(sync_templates, kind):
    base = sync_templates.new().from_image("ubuntu:22.04")
    if kind == "missing":
        template = base.run_cmd("whoami", user="root123")
        message = "failed to run command 'whoami': command failed: unauthenticated: invalid username: 'root123'"
    else:
        template = base.set_user("; exit 1")
        message = ".*"
    with pytest.raises(BuildException, match=message):
        sync_templates.build(template)


READY = {
    "port": ("perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new(Listen=>1,LocalPort=>8000) or die; sleep'", wait_for_port(8000)),
    "process": ("cp /bin/sleep /tmp/my-daemon && exec /tmp/my-daemon 300", wait_for_process("my-daemon")),
    "file": ("sleep 1; touch /tmp/ready; sleep 300", wait_for_file("/tmp/ready")),
    "time": ("echo started; sleep 300", wait_for_timeout(2000)),
    "own words": ("sleep 1; mkdir /tmp/own; sleep 300", "test -d /tmp/own"),
}  # fmt: skip


@pytest.mark.parametrize("helper", READY)
def test_the_ready_helpers_work_on_an_image_with_next_to_nothing(sync_templates, made, helper):
    start, ready = READY[helper]
    template = sync_templates.new().from_image("ubuntu:22.04").set_start_cmd(start, ready)
    info, _ = sync_templates.build(template)
    sandbox = made.create(template=info.name, timeout=60)
    check = ready if isinstance(ready, str) else ready.get_cmd()
    assert sandbox.commands.run(check).exit_code == 0


def test_a_url_is_waited_for(sync_templates, made, context):
    template = (
        sync_templates.new(file_context_path=str(context))
        .from_image("python:3.11")
        .copy("app.py", "/srv/app.py")
        .set_envs({"GREETING": "hi"})
        .set_start_cmd("sleep 1; exec python3 /srv/app.py", wait_for_url("http://localhost:8000/"))
    )
    info, _ = sync_templates.build(template)
    sandbox = made.create(template=info.name, timeout=60)
    assert "hi from" in sandbox.commands.run("curl -s localhost:8000").stdout


def test_a_start_command_that_ends_well_does_not_end_the_wait(sync_templates, run_in):
    template = sync_templates.new().from_image("ubuntu:22.04")
    info, _ = sync_templates.build(template.set_start_cmd("touch /tmp/was-here", wait_for_file("/tmp/was-here")))
    assert run_in(info.name, "ls /tmp/was-here").strip() == "/tmp/was-here"


def test_a_start_command_that_fails_ends_the_build_at_once(templates):
    template = templates.new().from_image("ubuntu:22.04").set_start_cmd("exit 3", wait_for_timeout(100_000))
    begun = time.monotonic()
    with pytest.raises(BuildException, match=r"start command failed.*exit status 3"):
        templates.build(template)
    assert time.monotonic() - begun < 60


def test_sizes_that_cannot_be_are_refused_with_the_reason(server):
    with server.api() as api:
        for asked, word in (({"cpuCount": 3}, "(?i)cpu"), ({"memoryMB": 127}, "(?i)memory"), ({"cpuCount": 0}, "(?i)cpu")):
            answer = api.post("/v3/templates", json={"name": "sizes"} | asked)
            assert answer.status_code == 400, answer.text
            assert re.search(word, answer.json()["message"]), answer.text


def test_a_build_can_be_cancelled(sync_templates, server):
    info = sync_templates.start(sync_templates.new().from_image("ubuntu:22.04").run_cmd("sleep 300"))
    eventually(lambda: "sleep 300" in sync_templates.log(info).text, within=60)
    with server.api() as api:
        answer = api.delete(f"/templates/{info.template_id}/builds/{info.build_id}")
        assert answer.is_success, answer.text
    ended = sync_templates.finished(info, within=30)
    assert ended.status == "error" and "cancelled" in ended.reason.message, ended.reason

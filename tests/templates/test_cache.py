"""What was built is not built again, and what changed is."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.templates import Templates

pytestmark = pytest.mark.timeout(300)

STAMP = "cat /proc/sys/kernel/random/uuid > /srv/{}"


def stamps(run_in, info) -> list[str]:
    return run_in(info.name, "cat /srv/one /srv/two /srv/three").split()


def three_steps(templates, context, name: str):
    return (
        templates.new(file_context_path=str(context))
        .from_image("ubuntu:22.04")
        .set_envs({"NAME": name})
        .run_cmd(STAMP.format("one"), user="root")
        .copy("file", "/srv/file")
        .run_cmd(STAMP.format("two"), user="root")
        .run_cmd(STAMP.format("three"), user="root")
    )


@pytest.fixture
def context(tmp_path):
    (tmp_path / "file").write_text("1")
    return tmp_path


def test_a_second_build_runs_nothing_and_is_quick(templates, run_in, context, request):
    mark = request.node.name

    def template():
        return three_steps(templates, context, mark).run_cmd("sleep 5", user="root")

    begun = time.monotonic()
    first, log = templates.build(template())
    took = time.monotonic() - begun
    assert log.cached == [] or all("FROM" in each for each in log.cached), log.text
    begun = time.monotonic()
    second, log = templates.build(template())
    again = time.monotonic() - begun
    assert stamps(run_in, second) == stamps(run_in, first)
    assert log.ran == [] and len(log.cached) >= 5, log.text
    # The last step alone is five seconds of the first build: whatever the machine is doing, a
    # build that ran nothing is far below that, and one that ran it cannot be.
    assert again < took / 2, (took, again)


def test_one_changed_file_runs_only_what_follows(templates, run_in, context, request):
    mark = request.node.name
    before = stamps(run_in, templates.build(three_steps(templates, context, mark))[0])
    (context / "file").write_text("2")
    info, log = templates.build(three_steps(templates, context, mark))
    after = stamps(run_in, info)
    assert (before[0] == after[0], before[1] == after[1], before[2] == after[2]) == (True, False, False), log.text
    assert run_in(info.name, "cat /srv/file") == "2"


def test_a_changed_variable_runs_what_follows_it(sync_templates, run_in, context, request):
    mark = request.node.name
    before = stamps(run_in, sync_templates.build(three_steps(sync_templates, context, mark))[0])
    after = stamps(run_in, sync_templates.build(three_steps(sync_templates, context, mark + "2"))[0])
    assert not set(before) & set(after)


def test_skipping_the_cache_from_a_step_on(templates, run_in, context, request):
    def template():
        return (
            templates.new()
            .from_image("ubuntu:22.04")
            .set_envs({"NAME": request.node.name})
            .run_cmd(STAMP.format("one"), user="root")
            .skip_cache()
            .run_cmd(STAMP.format("two"), user="root")
            .run_cmd(STAMP.format("three"), user="root")
        )

    before = stamps(run_in, templates.build(template())[0])
    after = stamps(run_in, templates.build(template())[0])
    assert (before[0] == after[0], before[1] == after[1], before[2] == after[2]) == (True, False, False)


def test_skipping_the_cache_for_all(templates, run_in, context, request):
    mark = request.node.name
    before = stamps(run_in, templates.build(three_steps(templates, context, mark))[0])
    info, log = templates.build(three_steps(templates, context, mark), skip_cache=True)
    assert not set(before) & set(stamps(run_in, info)) and log.cached == [], log.text


def test_a_failed_build_leaves_the_steps_before_it_in_the_cache(sync_templates, run_in, context, request):
    def template(last: str):
        return (
            sync_templates.new()
            .from_image("ubuntu:22.04")
            .set_envs({"NAME": request.node.name})
            .run_cmd(STAMP.format("one"), user="root")
            .run_cmd(last, user="root")
        )

    with pytest.raises(Exception, match="exit status 5"):
        sync_templates.build(template("cp /srv/one /srv/two; exit 5"))
    info, log = sync_templates.build(template("cp /srv/one /srv/two; cp /srv/one /srv/three"))
    assert len(set(stamps(run_in, info))) == 1
    assert any("RUN" in each and "/srv/one" in each for each in log.cached), log.text


def test_files_uploaded_before_are_not_uploaded_again(sync_templates, context, request):
    mark = request.node.name
    sync_templates.build(three_steps(sync_templates, context, mark))
    _, log = sync_templates.build(three_steps(sync_templates, context, mark))
    assert "Skipping upload of 'file'" in log.text


def test_templates_on_templates_inherit_and_override(templates, run_in, made):
    first, _ = templates.build(
        templates.new()
        .from_image("ubuntu:22.04")
        .set_envs({"A": "a", "B": "b"})
        .set_user("worker")
        .set_workdir("/home/worker/app")
        .set_start_cmd("touch /tmp/first-started; sleep 300", "test -f /tmp/first-started")
    )
    second, _ = templates.build(templates.new().from_template(first.name).set_envs({"B": "changed"}).run_cmd("id -un > who"))
    sandbox = made.create(template=second.name, timeout=60)
    out = sandbox.commands.run("echo $A $B; whoami; pwd; cat who; ls /tmp/first-started").stdout
    assert out.split() == ["a", "changed", "worker", "/home/worker/app", "worker", "/tmp/first-started"]
    third, _ = templates.build(
        templates.new().from_template(second.name).set_start_cmd("touch /tmp/other", "test -f /tmp/other")
    )
    assert run_in(third.name, "ls /tmp/other; ls /tmp/first-started 2>/dev/null || true").split() == ["/tmp/other"]


def test_a_template_on_base_has_the_machines_tools(templates, run_in):
    info, _ = templates.build(templates.new().from_template("base").run_cmd("echo made > ~/made").run_cmd("sudo touch /usr/local/mine"))
    assert run_in(info.name, "cat ~/made; ls /usr/local/mine; python3 -c 'print(1+1)'").split() == [
        "made", "/usr/local/mine", "2",
    ]  # fmt: skip


def test_a_dockerfile_read_by_the_client_builds(server, loop, run_in, context):
    """For a CMD the client asks to wait for 20 s, in the build and in each sandbox: hence both
    clients at once."""
    (context / "Dockerfile").write_text(
        "FROM python:3.11\nARG WHO=world\nENV GREETING=hello\nWORKDIR /app\nCOPY file ./\n"
        "RUN echo $GREETING $WHO > greeting && id -un >> greeting\nCMD [\"sleep\", \"300\"]\n"
    )
    clients = [Templates(kind, server, loop) for kind in ("sync", "async")]

    def outcome(templates: Templates) -> list[str]:
        template = templates.new(file_context_path=str(context)).from_dockerfile(str(context / "Dockerfile"))
        # Both build their own: neither finds the other's in the cache.
        info, log = templates.build(template, skip_cache=True)
        assert log.cached == [], log.text
        return run_in(info.name, "cat /app/greeting /app/file").split()

    try:
        with ThreadPoolExecutor(2) as pool:
            assert list(pool.map(outcome, clients)) == [["hello", "world", "root", "1"]] * 2
    finally:
        for templates in clients:
            templates.finish()

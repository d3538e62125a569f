"""kill -9 of the server in the middle of builds and a pull."""

import os
import threading
from pathlib import Path

import pytest
from e2b import Sandbox

from support.census import Census
from support.images.debian import READY, debian
from support.images.hostile import Repository
from support.images.layer import file, layer
from support.images.registry import Image
from support.templates import Templates
from support.waiting import eventually

pytestmark = pytest.mark.timeout(600)


def unfinished(data: Path) -> list[str]:
    """What has a name for the time of work, below the store and the templates."""
    found = [str(each) for each in (data / "images" / "tmp").glob("*")]
    for top, folders, files in os.walk(data / "templates"):
        found += [f"{top}/{name}" for name in [*folders, *files] if name.endswith((".new", ".tmp", ".part"))]
        # Not into what steps have written: any name may be in there.
        if Path(top).parent.name == "steps" or Path(top).name == "base":
            folders.clear()
    return found


def mounts_of(data: Path) -> list[str]:
    return [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(data) in line]


def loops_of(data: Path) -> list[str]:
    backing = Path("/sys/block").glob("loop*/loop/backing_file")
    return [each.parents[1].name for each in backing if str(data) in each.read_text()]


@pytest.mark.alone
def test_every_build_ends_truly_and_the_store_is_whole(own_server, hostile, registry_options):
    server = own_server(extra=[*registry_options, "--warm", "0", "--parallel-builds", "4"]).start()
    templates = Templates("sync", server, None)
    Sandbox.create(timeout=60, **server.sdk).kill()
    templates.build(templates.new().from_image("ubuntu:22.04").run_cmd("true"))
    before = Census.settled(server)

    def slow(word: str):
        return (
            templates.new()
            .from_image("ubuntu:22.04")
            .run_cmd(f"echo {word} > /srv/{word}", user="root")
            .run_cmd(f"echo under-way-{word}; sleep 6; cat /srv/{word} > /srv/copy", user="root")
            .run_cmd("echo last > /srv/last", user="root")
        )

    held = threading.Event()
    pulled = Image([debian(READY), layer(file("etc/mark", "pulled"))])
    repository = Repository(pulled, held=held)
    reference = hostile.add("crash/pulled", repository)
    builds = {word: templates.start(slow(word)) for word in ("one", "two", "three")}
    builds["pull"] = templates.start(templates.new().from_image(reference).run_cmd("cat /etc/mark"))
    for word in ("one", "two", "three"):
        eventually(lambda: f"under-way-{word}" in templates.log(builds[word]).text, within=90, what=f"{word} is under way")
    eventually(lambda: any("blobs" in each for each in repository.requests), within=60, what="the pull is under way")

    server.kill9()
    held.set()
    server.start()

    ended = {word: templates.finished(info, within=180) for word, info in builds.items()}
    for word, status in ended.items():
        if status.status == "ready":
            sandbox = Sandbox.create(template=builds[word].name, timeout=60, **server.sdk)
            if word == "pull":
                assert sandbox.commands.run("cat /etc/mark").stdout == "pulled"
            else:
                assert sandbox.commands.run("cat /srv/copy /srv/last").stdout == f"{word}\nlast\n"
            sandbox.kill()
        else:
            assert status.reason and status.reason.message, (word, status)
    print("\nafter the crash:", {word: status.status for word, status in ended.items()})

    # The same again, from the start and from what the cache has.
    for options in ({}, {"skip_cache": True}):
        again = {word: templates.start(slow(word), **options) for word in ("one", "two", "three")}
        for word, info in again.items():
            ended = templates.finished(info, within=180)
            assert ended.status == "ready", (word, options, ended.reason)
    for word, info in again.items():
        sandbox = Sandbox.create(template=info.name, timeout=60, **server.sdk)
        assert sandbox.commands.run("cat /srv/copy /srv/last").stdout == f"{word}\nlast\n"
        sandbox.kill()
    templates.build(templates.new().skip_cache().from_image(reference))

    eventually(lambda: unfinished(server.data) == [], within=30, what=f"left: {unfinished(server.data)}")
    assert mounts_of(server.data) == []
    eventually(lambda: loops_of(server.data) == [], within=30)
    templates.finish()
    grown = {"files"}  # Logs, descriptions and cached steps of the builds.

    def quiet() -> bool:
        left = {name: text for name, text in Census.take(server).grown_since(before).items() if name not in grown}
        assert not left, left
        return True

    eventually(quiet, within=60, every=0.5)


@pytest.mark.parametrize("word", ["[base]", "[builder 1/2]", "[builder 2/2]", "[finalize]"])
def test_killed_at_any_stage_it_builds_in_the_end(own_server, registry_options, word):
    """The log says where it is; the server is killed right then."""
    server = own_server(extra=[*registry_options, "--warm", "0"]).start()
    templates = Templates("sync", server, None)
    template = (
        templates.new()
        .from_image("ubuntu:22.04")
        .run_cmd("dd if=/dev/urandom of=/srv/data bs=1M count=30 && sha256sum /srv/data > /srv/sum", user="root")
        .run_cmd("sha256sum -c /srv/sum", user="root")
        .set_start_cmd("sleep 2; touch /tmp/up; sleep 300", "test -f /tmp/up")
    )
    info = templates.start(template)
    eventually(lambda: word in templates.log(info).text, within=60, every=0.01, what=f"{word} is in the log")
    server.kill9()
    server.start()
    ended = templates.finished(info, within=120)
    assert ended.status == "ready" or ended.reason.message, ended
    again, _ = templates.build(template)
    sandbox = Sandbox.create(template=again.name, timeout=60, **server.sdk)
    assert "OK" in sandbox.commands.run("cd / && sha256sum -c /srv/sum && ls /tmp/up").stdout
    sandbox.kill()
    eventually(lambda: unfinished(server.data) == [], within=30)
    eventually(lambda: loops_of(server.data) == [] and mounts_of(server.data) == [], within=30)


def test_templates_outlive_their_server(own_server, registry_options):
    server = own_server(extra=[*registry_options, "--warm", "0"]).start()
    templates = Templates("sync", server, None)
    info, log = templates.build(templates.new().from_image("ubuntu:22.04").run_cmd("echo kept > /srv/kept", user="root"), tags=["v1"])
    server.kill9()
    server.start()
    assert templates.exists(info.name) is True
    assert {each.tag for each in templates.get_tags(info.template_id)} >= {"v1"}
    sandbox = Sandbox.create(template=f"{info.name}:v1", timeout=60, **server.sdk)
    assert sandbox.commands.run("cat /srv/kept").stdout == "kept\n"
    assert templates.status(info).status == "ready"
    assert "echo kept" in templates.log(info).text
    _, log = templates.build(templates.new().from_image("ubuntu:22.04").run_cmd("echo kept > /srv/kept", user="root"))
    assert log.ran == [] and log.cached, log.text


def test_what_others_stand_on_stays_when_a_template_is_removed(own_server, registry_options, registry):
    """Unused layers go by age, at a start too; those of other templates never."""
    server = own_server(extra=[*registry_options, "--warm", "0"]).start()
    templates = Templates("sync", server, None)
    registry.push("test/unused", "1", Image([debian(READY), layer(file("etc/mark", os.urandom(2_000_000)))]))
    kept, _ = templates.build(templates.new().from_image("ubuntu:22.04").run_cmd("echo kept > /srv/kept", user="root"))
    gone, _ = templates.build(templates.new().from_template(kept.name).run_cmd("true"))
    other, _ = templates.build(templates.new().from_image(f"{registry.name}/test/unused:1").run_cmd("true"))
    with server.api() as api:
        for each in (gone, other):
            assert api.delete(f"/templates/{each.name}").status_code == 204
    server.terminate()
    server.start()
    sandbox = Sandbox.create(template=kept.name, timeout=60, **server.sdk)
    assert sandbox.commands.run("cat /srv/kept").stdout == "kept\n"
    sandbox.kill()

"""A registry that does its worst: the build fails with a clear reason, and nothing is left of it."""

import json
import os
import uuid
from pathlib import Path

import pytest
from e2b import BuildException

from support.images.debian import READY, debian
from support.images.hostile import PASSWORD, USER, HostileRegistry, Repository, bomb, outside
from support.images.layer import device, digest_of, file, folder, hardlink, layer, symlink
from support.images.registry import Image
from support.waiting import eventually

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def untouched(server, tmp_path):
    """What a failed pull must leave as it was: the store, and a folder outside it."""

    def store() -> dict[str, list[str]]:
        images = server.data / "images"
        return {name: sorted(os.listdir(images / name)) for name in ("layers", "tmp") if (images / name).exists()}

    before = store()
    canary = tmp_path / "canary"
    canary.write_text("as it was")
    yield canary
    assert canary.read_text() == "as it was" and canary.stat().st_nlink == 1 and canary.stat().st_mode & 0o777 == 0o644
    assert os.listdir(tmp_path) == ["canary"]
    eventually(lambda: store() == before, within=20, what=f"the store is as before: {before}, {store()}")


def refused(templates, reference: str, message: str, **credentials) -> str:
    with pytest.raises(BuildException, match=message) as raised:
        templates.build(templates.new().from_image(reference, **credentials))
    return str(raised.value)


def escapes(canary) -> dict[str, Image]:
    up, target = outside(canary), str(canary)
    evil = outside(canary.parent / "written")
    written = str(canary.parent / "written")
    cases = {
        "name that climbs": [file(evil, "x")],
        "name that climbs from a folder": [folder("a/b"), file("a/b/" + evil, "x")],
        "hard link that climbs": [hardlink("etc/mine", up), file("etc/mine", "x")],
        "hard link to an absolute name": [hardlink("etc/mine", target), file("etc/mine", "x")],
        "hard link through a link": [symlink("out", str(canary.parent)), hardlink("etc/mine", "out/canary")],
        "folder that climbs": [folder(evil)],
        "link that climbs": [symlink(evil, "/etc")],
        "whiteout that climbs": [file(outside(canary.parent / ".wh.canary"))],
        "whiteout of everything": [file("a/.wh...")],
    }
    return {name: Image([layer(*entries)]) for name, entries in cases.items()} | {
        # These have an answer inside: below the layer's own root. Fine, as long as it stays there.
        "through a link": Image([debian(READY), layer(symlink("out", str(canary.parent)), file("out/written", "x"))]),
        "absolute name": Image([debian(READY), layer(file(written, "x"))]),
        "opaque through a link": Image([debian(READY), layer(symlink("o", str(canary.parent)), file("o/.wh..wh..opq"))]),
        "link in one layer, file in the next": Image(
            [debian(READY), layer(symlink("out", str(canary.parent))), layer(file("out/canary", "x", mode=0o777))]
        ),
    }


STAY_INSIDE = ["through a link", "absolute name", "opaque through a link", "link in one layer, file in the next"]


@pytest.mark.parametrize("case", [name for name in escapes(Path("/c/d")) if name not in STAY_INSIDE])
def test_a_layer_that_leads_out_fails_the_build(sync_templates, hostile, untouched, case):
    reference = hostile.add(f"escape/{uuid.uuid4().hex[:8]}", Repository(escapes(untouched)[case]))
    refused(sync_templates, reference, "(?i)layer")


@pytest.mark.parametrize("case", STAY_INSIDE)
def test_a_layer_that_could_lead_out_stays_inside(sync_templates, hostile, tmp_path, case):
    canary = tmp_path / "canary"
    canary.write_text("as it was")
    reference = hostile.add(f"escape/{uuid.uuid4().hex[:8]}", Repository(escapes(canary)[case]))
    try:
        sync_templates.build(sync_templates.new().from_image(reference))
    except BuildException:
        pass
    assert canary.read_text() == "as it was" and os.listdir(tmp_path) == ["canary"]
    assert canary.stat().st_mode & 0o777 == 0o644


def test_a_blob_that_is_not_what_was_promised_is_thrown_away(sync_templates, hostile, untouched):
    evil = layer(file("etc/mark", "other"))
    image = Image([layer(file("etc/mark", "promised"))])
    promised = image.layers[0]
    repository = Repository(image, instead={promised.digest: evil.read()[: promised.size].ljust(promised.size, b"\0")})
    reference = hostile.add(f"digest/{uuid.uuid4().hex[:8]}", repository)
    refused(sync_templates, reference, "(?i)digest")


def test_a_configuration_that_is_not_what_was_promised_is_refused(sync_templates, hostile, untouched):
    image = Image([layer(file("etc/mark", "x"))])
    wrong = image.config.replace(b"linux", b"linuy")
    repository = Repository(image, instead={digest_of(image.config): wrong})
    refused(sync_templates, hostile.add(f"config/{uuid.uuid4().hex[:8]}", repository), "(?i)digest")


def test_a_manifest_that_is_not_what_was_asked_for_is_refused(sync_templates, hostile, untouched):
    repository = Repository(Image([layer(file("etc/mark", "x"))]))
    name = hostile.add(f"manifest/{uuid.uuid4().hex[:8]}", repository).rpartition(":")[0]
    refused(sync_templates, f"{name}@sha256:{'ab' * 32}", "(?i)digest")


def test_a_connection_that_is_cut_is_taken_up_where_it_was(sync_templates, hostile, run_in):
    image = Image([debian(READY), layer(file("etc/mark", "whole"))])
    repository = Repository(image, cut_after=9_000_000, resumable=True)
    info, _ = sync_templates.build(sync_templates.new().from_image(hostile.add(f"cut/{uuid.uuid4().hex[:8]}", repository)))
    assert run_in(info.name, "cat /etc/mark") == "whole"


def test_a_registry_that_hiccups_is_asked_again(sync_templates, hostile):
    repository = Repository(Image([debian(READY)]), failures=2)
    sync_templates.build(sync_templates.new().from_image(hostile.add(f"hiccup/{uuid.uuid4().hex[:8]}", repository)))


def test_a_connection_that_is_always_cut_is_an_error_in_the_end(sync_templates, hostile, untouched):
    big = layer(file("noise", os.urandom(3_000_000)))
    repository = Repository(Image([big]), cut_after=0)
    refused(sync_templates, hostile.add(f"always-cut/{uuid.uuid4().hex[:8]}", repository), "(?i)cut|connection")


def test_a_zip_bomb_is_stopped(sync_templates, hostile, untouched, server):
    free = os.statvfs(server.data).f_bavail * os.statvfs(server.data).f_frsize
    reference = hostile.add(f"bomb/{uuid.uuid4().hex[:8]}", Repository(Image([bomb(8)])))
    refused(sync_templates, reference, "(?i)layer|large|bytes|unpack")
    now = os.statvfs(server.data).f_bavail * os.statvfs(server.data).f_frsize
    assert free - now < 2 << 30


def test_a_layer_larger_than_it_said_is_stopped(sync_templates, hostile, untouched):
    image = Image([layer(file("noise", os.urandom(100_000)))])
    lying = json.loads(image.manifest)
    lying["layers"][0]["size"] = 500
    repository = Repository(image, manifest=json.dumps(lying).encode())
    refused(sync_templates, hostile.add(f"lying/{uuid.uuid4().hex[:8]}", repository), "(?i)digest|large|bytes|layer|size")


@pytest.mark.parametrize("body", [b"", b"<html>", b"{}", b'{"schemaVersion": 1}', b"[" * 100_000, b"x" * (64 << 20)])
def test_a_manifest_that_is_nonsense_is_told(sync_templates, hostile, untouched, body):
    repository = Repository(Image([]), manifest=body)
    refused(sync_templates, hostile.add(f"nonsense/{uuid.uuid4().hex[:8]}", repository), ".")


def test_a_registry_that_lets_nobody_in_is_told(sync_templates, hostile, untouched):
    repository = Repository(Image([layer(file("etc/mark", "x"))]), auth="basic")
    reference = hostile.add(f"closed/{uuid.uuid4().hex[:8]}", repository)
    message = "(?i)sign.?in|credential|unauthori|denied|password"
    refused(sync_templates, reference, message)
    text = refused(sync_templates, reference, message, username=USER, password="wr0ng-one")
    assert "wr0ng-one" not in text


def test_a_token_is_asked_for_and_used(sync_templates, hostile, run_in):
    image = Image([debian(READY), layer(file("etc/mark", "with a token"))])
    name = f"token/{uuid.uuid4().hex[:8]}"
    reference = hostile.add(name, Repository(image, auth="token"))
    refused(sync_templates, reference, "(?i)sign.?in|credential|unauthori|denied|password", username=USER, password="no")
    info, _ = sync_templates.build(sync_templates.new().from_image(reference, username=USER, password=PASSWORD))
    assert run_in(info.name, "cat /etc/mark") == "with a token"
    assert f"repository:{name}:pull" in hostile.tokens_given


@pytest.fixture
def bystander():
    """Something else on this machine, which a tenant must not reach through the server."""
    other = HostileRegistry()
    yield other
    other.close()


def test_a_token_server_inside_the_machine_is_not_asked(sync_templates, hostile, bystander, untouched):
    repository = Repository(Image([layer(file("x", "x"))]), auth="elsewhere", realm=f"http://{bystander.name}/secret")
    reference = hostile.add(f"realm/{uuid.uuid4().hex[:8]}", repository)
    refused(sync_templates, reference, "(?i)allow|private|encrypt", username=USER, password=PASSWORD)
    assert bystander.strangers == []


def test_a_redirect_into_the_machine_is_not_followed(sync_templates, hostile, bystander, untouched):
    for target in (f"http://{bystander.name}/secret", f"http://localhost:{bystander.port}/secret"):
        repository = Repository(Image([layer(file("x", "x"))]), redirect=target)
        reference = hostile.add(f"redirect/{uuid.uuid4().hex[:8]}", repository)
        refused(sync_templates, reference, "(?i)redirect|allow|private|encrypt")
    assert bystander.strangers == []


def test_redirects_in_a_circle_end(sync_templates, hostile, untouched):
    name = f"circle/{uuid.uuid4().hex[:8]}"
    image = Image([layer(file("x", "x"))])
    circle = f"http://{hostile.name}/v2/{name}/blobs/{image.layers[0].digest}"
    refused(sync_templates, hostile.add(name, Repository(image, redirect=circle)), "(?i)redirect")


def test_devices_in_a_layer_do_not_become_devices(sync_templates, hostile, run_in):
    image = Image([debian(READY), layer(folder("d"), device("d/mem", 1, 1), device("d/zero", 1, 5), file("d/kept", "x"))])
    info, _ = sync_templates.build(sync_templates.new().from_image(hostile.add(f"device/{uuid.uuid4().hex[:8]}", Repository(image))))
    assert run_in(info.name, "ls /d").split() == ["kept"]


def test_names_of_any_bytes_are_kept(sync_templates, hostile, run_in):
    names = ["weird/new\nline", "weird/back\\slash", "weird/ü", "weird/-rf", "weird/" + "n" * 255]
    image = Image([debian(READY), layer(folder("weird"), *(file(name, "x") for name in names))])
    info, _ = sync_templates.build(sync_templates.new().from_image(hostile.add(f"names/{uuid.uuid4().hex[:8]}", Repository(image))))
    assert run_in(info.name, "find /weird -type f -printf x | wc -c") == "5\n"


def test_a_store_that_saw_all_this_still_pulls(sync_templates, run_in):
    info, _ = sync_templates.build(sync_templates.new().skip_cache().from_image("ubuntu:22.04"))
    assert run_in(info.name, "echo fine") == "fine\n"

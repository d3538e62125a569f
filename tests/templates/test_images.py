"""Images as registries have them."""

import subprocess
import uuid

import pytest
from e2b import BuildException

from support.images.debian import READY, debian
from support.images.layer import file, layer
from support.images.packages import need
from support.images.registry import Image

pytestmark = pytest.mark.timeout(300)


def test_docker_hubs_names_go_to_the_mirror(sync_templates):
    for reference in ("ubuntu:22.04", "ubuntu", "docker.io/library/ubuntu:22.04", "debian:bookworm"):
        sync_templates.build(sync_templates.new().from_image(reference))


def test_an_image_is_found_by_its_digest(sync_templates, registry, run_in):
    digest = registry.push("test/by-digest", "1", Image([debian(READY), layer(file("etc/mark", "by digest"))]))
    info, _ = sync_templates.build(sync_templates.new().from_image(f"{registry.name}/test/by-digest@{digest}"))
    assert run_in(info.name, "cat /etc/mark") == "by digest"


def test_zstd_layers_are_unpacked(sync_templates, registry, run_in):
    info, _ = sync_templates.build(sync_templates.new().from_image(f"{registry.name}/test/zstd:1"))
    assert run_in(info.name, "cat /etc/compressed-with") == "zstd"


def test_of_several_architectures_ours_is_taken(sync_templates, registry, run_in):
    info, _ = sync_templates.build(sync_templates.new().from_image(f"{registry.name}/test/several:1"))
    assert run_in(info.name, "cat /etc/which") == "ours"


def test_an_image_for_other_machines_only_says_so(sync_templates, registry):
    with pytest.raises(BuildException, match="s390x|architecture|platform"):
        sync_templates.build(sync_templates.new().from_image(f"{registry.name}/test/foreign-only:1"))


def test_later_layers_hide_what_they_say_and_nothing_else(sync_templates, registry, run_in):
    info, _ = sync_templates.build(sync_templates.new().from_image(f"{registry.name}/test/whiteouts:1"))
    found = run_in(info.name, "cd /w && find . | sort | xargs; cat changed; stat -c '%a' changed", user="root")
    names, rest = found.split("\n", 1)
    assert names.split() == [
        ".", "./changed", "./first", "./inside", "./kept", "./opaque", "./opaque/new", "./second",
    ]  # fmt: skip
    assert rest == "after640\n"
    assert run_in(info.name, "stat -c '%i' /w/first /w/second | uniq | wc -l") == "1\n"
    # And they stay hidden in what is built on top.
    info, _ = sync_templates.build(sync_templates.new().from_template(info.name).run_cmd("touch /w/opaque/more", user="root"))
    assert run_in(info.name, "ls /w/opaque").split() == ["more", "new"]


def test_the_images_environment_is_taken_over_and_its_user_is_not(sync_templates, registry, run_in):
    info, _ = sync_templates.build(sync_templates.new().from_image(f"{registry.name}/test/configured:1"))
    assert run_in(info.name, 'echo "$FROM_IMAGE"; whoami') == 'it\'s "set" $HOME\nuser\n'
    assert run_in(info.name, "echo $PATH").startswith("/srv/bin:")


def test_an_image_made_by_umoci_works(sync_templates, registry, run_in, tmp_path):
    """Not only images of our own making."""
    need(umoci="umoci", skopeo="skopeo")
    run = lambda *words: subprocess.run(words, check=True, capture_output=True, timeout=120)  # noqa: E731
    run("skopeo", "copy", "--src-tls-verify=false", f"docker://{registry.name}/test/bare:1", f"oci:{tmp_path}/oci:base")
    run("umoci", "unpack", "--image", f"{tmp_path}/oci:base", f"{tmp_path}/bundle")
    root = tmp_path / "bundle" / "rootfs"
    (root / "etc" / "made-by").write_text("umoci")
    (root / "etc" / "issue").unlink()
    run("umoci", "repack", "--image", f"{tmp_path}/oci:new", f"{tmp_path}/bundle")
    run("umoci", "config", "--image", f"{tmp_path}/oci:new", "--config.env", "MADE=so")
    target = f"docker://{registry.name}/test/umoci:1"
    run("skopeo", "copy", "--dest-tls-verify=false", f"oci:{tmp_path}/oci:new", target)
    info, _ = sync_templates.build(sync_templates.new().from_image(f"{registry.name}/test/umoci:1"))
    assert run_in(info.name, "cat /etc/made-by; test ! -e /etc/issue && echo; echo $MADE") == "umoci\nso\n"


def test_layers_are_fetched_once_for_all_templates(sync_templates, registry):
    shared = layer(file("etc/shared", uuid.uuid4().hex))
    for repository in ("test/sharing-one", "test/sharing-two"):
        registry.push(repository, "1", Image([debian(READY), shared]))
    for repository in ("test/sharing-one", "test/sharing-two"):
        sync_templates.build(sync_templates.new().from_image(f"{registry.name}/{repository}:1"))
    # The second time only its configuration.
    assert registry.pulls("test/sharing-two") <= 1


def test_a_tag_that_moved_is_noticed(sync_templates, registry, run_in):
    for mark in ("first", "second"):
        registry.push("test/moving", "1", Image([debian(READY), layer(file("etc/mark", mark))]))
        template = sync_templates.new().skip_cache().from_image(f"{registry.name}/test/moving:1")
        info, _ = sync_templates.build(template)
        assert run_in(info.name, "cat /etc/mark") == mark


@pytest.fixture(scope="module")
def secret_image(private_registry):
    private_registry.push("team/secret", "1", Image([debian(READY), layer(file("etc/mark", "private"))]))
    return f"{private_registry.name}/team/secret:1"


def test_a_private_image_needs_the_right_password(templates, secret_image, run_in):
    base = templates.new().from_image(secret_image, username="someone", password="s3cret")
    info, log = templates.build(base)
    assert run_in(info.name, "cat /etc/mark") == "private"
    assert "s3cret" not in log.text


@pytest.mark.parametrize("credentials", [{}, {"username": "someone", "password": "wr0ng"}], ids=["none", "wrong"])
def test_without_it_the_error_says_so(templates, secret_image, server, credentials):
    with pytest.raises(BuildException, match="(?i)sign.?in|credential|unauthori|denied|password") as raised:
        templates.build(templates.new().skip_cache().from_image(secret_image, **credentials))
    assert "wr0ng" not in str(raised.value)
    assert "wr0ng" not in server.log.read_text(errors="replace")


def test_a_private_image_that_is_here_is_not_given_to_others(sync_templates, secret_image, stranger):
    sync_templates.build(sync_templates.new().from_image(secret_image, username="someone", password="s3cret"))
    with pytest.raises(BuildException, match="(?i)sign.?in|credential|unauthori|denied|password"):
        stranger.build(stranger.new().from_image(secret_image))


def test_the_password_is_not_kept_in_the_clear(sync_templates, secret_image, server):
    sync_templates.build(sync_templates.new().from_image(secret_image, username="someone", password="s3cret"))
    found = subprocess.run(
        ["grep", "-rlF", "s3cret", "--include=*.db*", "--include=*.json*", str(server.data), str(server.log)],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert found.stdout == ""


def test_a_registry_at_a_private_address_must_have_been_allowed(sync_templates, hostile):
    from support.images.hostile import HostileRegistry

    other = HostileRegistry()
    try:
        for reference in (f"{other.name}/x:1", f"localhost:{other.port}/x:1", f"[::ffff:127.0.0.1]:{other.port}/x:1"):
            with pytest.raises(Exception, match="(?i)allow|private|address|registry|reference|invalid"):
                sync_templates.build(sync_templates.new().from_image(reference))
        assert other.strangers == [] and other.repositories == {}
    finally:
        other.close()

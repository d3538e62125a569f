"""Templates on the command line."""

import json
import tarfile
import uuid

import pytest

from support.images.debian import READY, debian

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def cli(server):
    def run(*words, ok=True, **kwargs):
        done = server.cli("template", *words, timeout=kwargs.pop("timeout", 200), **kwargs)
        text = done.stdout.decode() + done.stderr.decode()
        assert (done.returncode == 0) is ok, text
        return done.stdout.decode() if ok else text

    return run


@pytest.fixture
def name():
    return f"cli-{uuid.uuid4().hex[:8]}"


def test_an_image_becomes_a_template_and_goes_again(cli, name, run_in):
    cli("from-image", "ubuntu:22.04", "-t", f"{name}:v1", "--run", "echo 1 > /srv/one", "--run", "echo 2 > /srv/two")
    assert run_in(f"{name}:v1", "cat /srv/one /srv/two") == "1\n2\n"
    assert name in cli("ls")
    (listed,) = [each for each in json.loads(cli("ls", "--json")) if name in each["aliases"]]
    assert listed["buildStatus"] == "ready"
    assert name in cli("inspect", name)
    assert json.loads(cli("inspect", name, "--json"))
    cli("tag", f"{name}:v1", "stable")
    assert run_in(f"{name}:stable", "cat /srv/one") == "1\n"
    cli("tag", name, "stable", "--remove")
    assert "echo 1" in cli("logs", name)


def test_templates_are_removed_by_name(cli, name):
    cli("from-image", "ubuntu:22.04", "-t", name)
    cli("rm", name)
    assert name not in cli("ls")
    assert name in cli("rm", name, ok=False)


def test_a_tar_becomes_a_template(cli, name, run_in, tmp_path):
    root = tmp_path / "root.tar.gz"
    root.write_bytes(debian(READY).read())
    cli("from-tar", str(root), "-t", name, "--run", "echo from-tar > /srv/mark")
    assert run_in(name, "cat /srv/mark; whoami").split() == ["from-tar", "user"]


def test_a_tar_that_leads_out_is_refused(cli, name, tmp_path):
    root, canary = tmp_path / "root.tar", tmp_path / "canary"
    with tarfile.open(root, "w") as tar:
        info = tarfile.TarInfo("../" * 30 + str(canary).lstrip("/"))
        tar.addfile(info)
    assert cli("from-tar", str(root), "-t", name, ok=False)
    assert not canary.exists()


def test_the_machine_itself_becomes_a_template(cli, name, run_in):
    cli("from-host", "-t", name, "--run", "echo here > /srv/mark")
    assert run_in(name, "cat /srv/mark; python3 -c 'print(2)'").split() == ["here", "2"]


def test_sizes_by_name_and_by_figure(cli, name, made):
    cli("from-image", "ubuntu:22.04", "-t", name, "--type", "basic", "--memory", "300")
    info = made.create(template=name, timeout=60).get_info()
    assert info.memory_mb == 300
    text = cli("from-image", "ubuntu:22.04", "-t", name, "--type", "gigantic", ok=False)
    assert "standard-1" in text


def test_a_private_image_with_the_password_from_standard_input(cli, name, private_registry, run_in):
    from support.images.layer import file, layer
    from support.images.registry import Image

    private_registry.push("team/cli", "1", Image([debian(READY), layer(file("etc/mark", "private"))]))
    words = ["from-image", f"{private_registry.name}/team/cli:1", "-t", name, "--registry-username", "someone"]
    cli(*words, "--registry-password-stdin", input=b"s3cret\n")
    assert run_in(name, "cat /etc/mark") == "private"
    assert "wr0ng" not in cli(*words, "--registry-password-stdin", "--no-cache", input=b"wr0ng\n", ok=False)


def test_an_unknown_built_in_is_told_with_those_that_are(cli):
    text = cli("build", "--builtin", "no-such", ok=False)
    assert "no-such" in text and "base-debian" in text

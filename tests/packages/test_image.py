"""What `packaging/build image` makes, as a container has it: an overlay for a root, a volume for the data.

Without a container engine: the Dockerfile's steps are done by hand, but for the packages that only
sandboxes use.
"""

import subprocess
import sys

import pytest
from e2b import Sandbox

from packages.root import Root
from packages.serving import LiveSandbox, Serving
from support.server import PROJECT


@pytest.fixture(scope="module")
def image(stripped, tmp_path_factory):
    out = tmp_path_factory.mktemp("image")
    command = [sys.executable, PROJECT / "packaging/build", "--program", stripped, "--out", out, "image"]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return out / "image"


def prepare(container: Root, image, name: str) -> None:
    container.run("dpkg", "-i", container.take_in(image / "soulbox.deb"))
    entrypoint = container.take_in(image / "entrypoint")
    container.run("install", "-m", "755", entrypoint, "/usr/sbin/soulbox-entrypoint")
    container.run("sh", "-c", f"echo {name} > /usr/lib/soulbox-image")


def serving_of(container: Root, volume, log) -> Serving:
    def start(settings):
        words = [f"{name}={value}" for name, value in settings.items()]
        return container.start(log, "env", *words, "/usr/sbin/soulbox-entrypoint", "serve")

    return Serving(volume, start, log)


def test_the_folder_has_what_the_dockerfile_copies(image):
    copied = [line.split()[1] for line in (image / "Dockerfile").read_text().splitlines() if line.startswith("COPY")]
    assert sorted(copied + ["Dockerfile"]) == sorted(each.name for each in image.iterdir())


def test_a_container_serves_and_the_next_one_of_another_image_has_what_was_kept(fresh, image, scratch):
    layers = [scratch / "container-1", scratch / "container-2"]
    for each in layers:
        each.mkdir()
    volume = layers[0] / "volume"
    log = scratch / "image.log"
    with Root(fresh, layers[0]) as container:
        prepare(container, image, "image-1")
        serving = serving_of(container, volume, log).start()
        try:
            live = LiveSandbox(serving)
            live.goes_on()
            paused = Sandbox.create(timeout=600, **serving.sdk)
            paused.files.write("kept", "before the upgrade")
            paused.pause(keep_memory=False)
            snapshot = live.sandbox.create_snapshot().snapshot_id
            key = serving.sdk["api_key"]
            serving.stop()
        finally:
            serving.end()
    assert [each.name for each in (volume / "container").iterdir()] == ["image-1"]

    # Another container on the same volume: the first one's processes are gone.
    volume.rename(layers[1] / "volume")
    with Root(fresh, layers[1]) as container:
        prepare(container, image, "image-2")
        serving = serving_of(container, layers[1] / "volume", log).start()
        try:
            assert serving.sdk["api_key"] == key
            with Sandbox.create(snapshot, timeout=60, **serving.sdk) as again:
                assert again.files.read("kept") == "written before"
            back = Sandbox.connect(paused.sandbox_id, timeout=60, **serving.sdk)
            assert back.files.read("kept") == "before the upgrade"
            for each in Sandbox.list(**serving.sdk).next_items():
                Sandbox.kill(each.sandbox_id, **serving.sdk)
            serving.stop()
        finally:
            serving.end()
    assert [each.name for each in (layers[1] / "volume/container").iterdir()] == ["image-2"]

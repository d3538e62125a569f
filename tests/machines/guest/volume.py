"""Files that outlive a sandbox, as the quick start shows them."""

from e2b import Sandbox, Volume

volume = Volume.create("results")
try:
    with Sandbox.create(timeout=300, volume_mounts={"/data": volume}) as sandbox:
        sandbox.commands.run("echo 42 > /data/answer")
    with Sandbox.create(timeout=300, volume_mounts={"/data": volume}) as sandbox:
        assert sandbox.files.read("/data/answer") == "42\n"
        assert sandbox.commands.run("stat -c %U /data/answer").stdout == "user\n"
    assert volume.read_file("answer") == "42\n"
finally:
    Volume.destroy(volume.volume_id)

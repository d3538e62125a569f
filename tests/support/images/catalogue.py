"""The images that the suites ask for by name."""

from support.images.debian import BARE, FULL, READY, debian
from support.images.layer import ZSTD, file, folder, hardlink, layer, symlink
from support.images.packages import need
from support.images.registry import FOREIGN, Image, Registry

BARE_NAMES = ["ubuntu:22.04", "ubuntu:latest", "debian:12", "debian:bookworm", "debian:stable", "debian:latest"]
FULL_NAMES = ["e2bdev/base:latest", "python:3", "python:3.11", "python:3.11-slim"]


def publish(registry: Registry) -> None:
    """As Docker Hub names them, so that the registry can stand in for it; variants below `test/`."""
    need(zstd="zstd")
    bare, full = Image([debian(BARE)]), Image([debian(FULL)])
    registry.push("test/bare", "1", bare)
    registry.push("test/full", "1", full)
    registry.alias("test/bare", bare, *map(hub, BARE_NAMES))
    registry.alias("test/full", full, *map(hub, FULL_NAMES))
    base = debian(READY)

    marked = layer(file("etc/compressed-with", "zstd"), media_type=ZSTD)
    registry.push("test/zstd", "1", Image([base, marked]))

    ours = Image([base, layer(file("etc/which", "ours"))])
    foreign = Image([layer(file("etc/which", "foreign"))], architecture=FOREIGN)
    registry.push_index("test/several", "1", [foreign, ours])
    registry.push_index("test/foreign-only", "1", [foreign])

    registry.push("test/whiteouts", "1", Image([base, *whiteouts()]))
    registry.push("test/configured", "1", configured(base))


def hub(name: str) -> str:
    return name if "/" in name else f"library/{name}"


def whiteouts():
    """What the later layer hides must be hidden, and nothing else."""
    return [
        layer(
            folder("w"), file("w/gone", "1"), file("w/kept", "1"),
            folder("w/folder"), file("w/folder/gone-too", "1"),
            folder("w/opaque"), file("w/opaque/old", "1"), folder("w/opaque/deep"), file("w/opaque/deep/old", "1"),
            file("w/first", "linked"), hardlink("w/second", "w/first"),
            symlink("w/inside", "/etc/hostname"), file("w/changed", "before", mode=0o600),
        ),
        layer(
            file("w/.wh.gone"), file("w/.wh.folder"),
            folder("w/opaque"), file("w/opaque/.wh..wh..opq"), file("w/opaque/new", "2"),
            file("w/changed", "after", mode=0o640),
        ),
    ]  # fmt: skip


def configured(base):
    return Image(
        [base, layer(folder("srv/app"), file("srv/app/here", "yes"))],
        env=["PATH=/srv/bin:/usr/local/bin:/usr/bin:/bin", "FROM_IMAGE=it's \"set\" $HOME"],
        user="nobody",
        workdir="/srv/app",
    )

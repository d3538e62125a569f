"""A server of one program, then of another, on the same data folder."""

import subprocess
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from e2b import Sandbox, Volume
from e2b.sandbox.commands.command_handle import PtySize

from support.server import Server, clean_environment
from support.waiting import eventually

DOCKERFILE = "FROM template://base\nRUN echo built before > /home/user/built\n"


@dataclass
class ProgramServer(Server):
    program: Path = Path()

    def command(self) -> list[str]:
        words = super().command()
        words[len(self.starter)] = str(self.program)
        return words

    def soulbox(self, *words: str, cwd: Path | None = None) -> str:
        done = subprocess.run(
            [str(self.program), *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=180,
            env=clean_environment() | self.env, cwd=cwd,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def replaced_by(self, program: Path, politely: bool = True) -> None:
        self.terminate() if politely else self.kill9()
        self.program = program
        self.start()


@dataclass
class Belongings:
    """One of everything that a user may have, made by the older program."""

    server: ProgramServer
    scratch: Path
    pids: dict[str, int] = field(default_factory=dict)

    def make(self) -> "Belongings":
        sdk = self.server.sdk
        self.volume = Volume.create("results", **sdk)
        self.live = Sandbox.create(timeout=1200, metadata={"kind": "live"}, volume_mounts={"/data": self.volume}, **sdk)
        self.live.files.write("kept", "of the live one")
        self.live.commands.run("echo 42 > /data/answer")
        ticker = self.live.commands.run(
            "i=0; while :; do i=$((i+1)); echo $i > ticks; sleep 0.1; done", background=True, timeout=0
        )
        waiter = self.live.commands.run("read line; echo got $line > got", background=True, stdin=True, timeout=0)
        terminal = self.live.pty.create(PtySize(rows=24, cols=80), timeout=0)
        self.live.pty.send_stdin(terminal.pid, b"KEPT=in-the-terminal\n")
        self.pids = {"ticker": ticker.pid, "waiter": waiter.pid, "terminal": terminal.pid}
        self.end_at = self.live.get_info().end_at

        self.frozen = Sandbox.create(timeout=1200, metadata={"kind": "frozen"}, **sdk)
        self.counter = self.frozen.commands.run(
            "i=0; while :; do i=$((i+1)); echo $i > ticks; sleep 0.1; done", background=True, timeout=0
        ).pid
        eventually(lambda: self.frozen.files.exists("ticks"))
        self.frozen.pause()

        self.put_away = Sandbox.create(timeout=1200, metadata={"kind": "put away"}, **sdk)
        self.put_away.files.write("kept", "only files")
        self.put_away.pause(keep_memory=False)

        snapshot_of = Sandbox.create(timeout=1200, **sdk)
        snapshot_of.files.write("kept", "in a snapshot")
        self.snapshot = snapshot_of.create_snapshot().snapshot_id
        snapshot_of.kill()

        folder = self.scratch / "template"
        folder.mkdir()
        (folder / "Dockerfile").write_text(DOCKERFILE)
        self.server.soulbox("template", "build", "-f", "Dockerfile", "-t", "before", ".", cwd=folder)
        self.key = self.server.key
        return self

    def are_there(self) -> None:
        """All of them, for whatever program serves now."""
        sdk = self.server.sdk
        assert self.server.key == self.key
        live = self.live
        assert live.files.read("kept") == "of the live one"
        assert live.get_info().end_at == self.end_at
        assert live.get_info().metadata == {"kind": "live"}
        assert set(self.pids.values()) <= {each.pid for each in live.commands.list()}
        before = int(live.files.read("ticks") or 0)
        eventually(lambda: int(live.files.read("ticks") or 0) > before, what="the live one's process works on")
        live.pty.send_stdin(self.pids["terminal"], b"echo $KEPT > from-terminal\n")
        eventually(
            lambda: live.files.exists("from-terminal") and live.files.read("from-terminal") == "in-the-terminal\n"
        )
        live.files.remove("from-terminal")
        assert live.files.read("/data/answer") == "42\n"
        assert live.commands.run("echo a new command").stdout == "a new command\n"
        with Sandbox.create(timeout=60, volume_mounts={"/data": self.volume}, **sdk) as other:
            assert other.files.read("/data/answer") == "42\n"
        states = {
            each.metadata.get("kind"): each.state.value
            for each in Sandbox.list(**sdk).next_items()
            if each.metadata.get("kind")
        }
        assert states == {"live": "running", "frozen": "paused", "put away": "paused"}
        with Sandbox.create(self.snapshot, timeout=60, **sdk) as again:
            assert again.files.read("kept") == "in a snapshot"
        with Sandbox.create("before", timeout=60, **sdk) as built:
            assert built.files.read("/home/user/built") == "built before\n"
        with Sandbox.create(timeout=60, **sdk) as new:
            assert new.commands.run("echo new").stdout == "new\n"

    def wake(self) -> None:
        """The paused ones, at the end: with their processes, or their files."""
        sdk = self.server.sdk
        frozen = Sandbox.connect(self.frozen.sandbox_id, timeout=600, **sdk)
        assert self.counter in [each.pid for each in frozen.commands.list()]
        before = int(frozen.files.read("ticks") or 0)
        eventually(lambda: int(frozen.files.read("ticks") or 0) > before, what="the frozen one's process works on")
        put_away = Sandbox.connect(self.put_away.sandbox_id, timeout=600, **sdk)
        assert put_away.files.read("kept") == "only files"
        # Input that was awaited since before.
        self.live.commands.send_stdin(self.pids["waiter"], "after\n")
        eventually(lambda: self.live.files.exists("got") and self.live.files.read("got") == "got after\n")


def migrations(data: Path) -> list[int]:
    import sqlite3

    with closing(sqlite3.connect(data / "soulbox.db", timeout=10)) as database:
        return [version for (version,) in database.execute("SELECT version FROM _sqlx_migrations ORDER BY version")]

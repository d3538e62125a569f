"""Calls every public method of PyPI `e2b` against a server and writes what each one did.

`methods.py OUT.json`, with E2B_API_KEY, E2B_API_URL, E2B_SANDBOX_URL and E2B_VOLUME_API_URL set.
Methods are found by looking at the classes, so one that is new appears as "not covered".
"""

import importlib.metadata
import inspect
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Callable

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import e2b  # noqa: E402
import httpx  # noqa: E402
from e2b.sandbox.commands.command_handle import PtySize  # noqa: E402
from e2b.template.types import BuildInfo  # noqa: E402

from support.blocking import Blocking, Loop  # noqa: E402
from support.waiting import eventually  # noqa: E402

Check = Callable[["Client"], None]
CHECKS: dict[str, Check] = {}

# They only build a description in the client; nothing is asked of a server.
LOCAL = {"Secret.fill", "Secret.iam_token", "Template.skip_cache", "Template.to_dockerfile", "Template.to_json"}


def covers(*names: str) -> Callable[[Check], Check]:
    def register(check: Check) -> Check:
        CHECKS.update(dict.fromkeys(names, check))
        return check

    return register


class Client:
    """One of the two clients, with a sandbox that checks may use and must leave usable."""

    def __init__(self, kind: str, loop: Loop) -> None:
        self.kind = kind
        wrap = (lambda cls: cls) if kind == "sync" else (lambda cls: Blocking(cls, loop))
        prefix = "" if kind == "sync" else "Async"
        for name in ("Sandbox", "Volume", "Secret", "Template"):
            setattr(self, name, wrap(getattr(e2b, prefix + name)))
        self.classes = {name: getattr(e2b, prefix + name) for name in ("Sandbox", "Volume", "Secret", "Template")}
        self.raw = [wrap, loop]
        self.sandbox: Any = self.Sandbox.create(timeout=900, envs={"A": "b"})
        self.unique = f"{kind}-{os.getpid()}"

    def fresh(self, **options: Any) -> Any:
        return self.Sandbox.create(timeout=120, **options)

    def pages(self, pager: Any) -> list[Any]:
        wrap, loop = self.raw
        pager = pager if self.kind == "sync" or isinstance(pager, Blocking) else Blocking(pager, loop)
        items = []
        while pager.has_next:
            items += pager.next_items()
        return items

    def terminal(self) -> Any:
        extra = {} if self.kind == "sync" else {"on_data": lambda _: None}
        return self.sandbox.pty.create(PtySize(rows=24, cols=80), timeout=60, **extra)

    def shell(self) -> Any:
        """A background command that answers its input; in the shape that both clients have."""
        return self.sandbox.commands.run("exec cat", background=True, stdin=True, timeout=60)


def methods(client: Client) -> list[str]:
    """Everything public that a program can call on these classes and on what a sandbox carries."""
    found = []
    target = client.sandbox if client.kind == "sync" else client.sandbox._target
    for name, cls in client.classes.items():
        found += [f"{name}.{each}" for each in public(cls)]
    for part in ("commands", "pty", "files", "git"):
        found += [f"Sandbox.{part}.{each}" for each in public(type(getattr(target, part)))]
    prefix = "" if client.kind == "sync" else "Async"
    for name in ("CommandHandle", "WatchHandle", "CommandInputHandle"):
        cls = getattr(e2b, prefix + name, None)
        found += [f"{name}.{each}" for each in public(cls)] if cls else []
    for name in ("SandboxPaginator", "SnapshotPaginator", "SecretPaginator"):
        found += [f"{name}.{each}" for each in public(getattr(e2b, prefix + name))]
    return found


def public(cls: type) -> list[str]:
    names = [name for name in dir(cls) if not name.startswith("_")]
    return [name for name in names if callable(getattr(cls, name)) and not inspect.isclass(getattr(cls, name))]


@covers("Sandbox.create", "Sandbox.kill", "Sandbox.is_running")
def life(client: Client) -> None:
    sandbox = client.fresh(metadata={"a": "b"}, envs={"X": "y"})
    assert sandbox.is_running() is True
    assert sandbox.commands.run("echo $X").stdout == "y\n"
    assert sandbox.kill() is True and sandbox.is_running() is False
    assert client.Sandbox.kill(sandbox.sandbox_id) is False


@covers("Sandbox.connect", "Sandbox.pause", "Sandbox.beta_pause")
def rest(client: Client) -> None:
    sandbox = client.fresh()
    assert sandbox.pause() is True and sandbox.pause() is False
    again = client.Sandbox.connect(sandbox.sandbox_id, timeout=60)
    assert again.commands.run("echo back").stdout == "back\n"
    assert again.beta_pause() is True
    sandbox.connect(timeout=60)
    assert sandbox.is_running() and sandbox.kill()


@covers("Sandbox.get_info", "Sandbox.set_timeout")
def info(client: Client) -> None:
    before = client.sandbox.get_info()
    client.sandbox.set_timeout(1500)
    after = client.Sandbox.get_info(client.sandbox.sandbox_id)
    assert after.sandbox_id == client.sandbox.sandbox_id and after.end_at > before.end_at


@covers("Sandbox.list", "SandboxPaginator.next_items")
def listing(client: Client) -> None:
    assert client.sandbox.sandbox_id in [each.sandbox_id for each in client.pages(client.Sandbox.list(limit=1))]


@covers("Sandbox.get_metrics")
def metrics(client: Client) -> None:
    found = eventually(lambda: client.sandbox.get_metrics(), within=30, every=1, what="metrics are there")
    assert found[0].cpu_count >= 1 and found[0].mem_total > 0


@covers("Sandbox.create_snapshot", "Sandbox.list_snapshots", "Sandbox.delete_snapshot", "SnapshotPaginator.next_items")
def snapshots(client: Client) -> None:
    client.sandbox.files.write("in-snapshot", "yes")
    taken = client.sandbox.create_snapshot(name=f"conformance-{client.unique}")
    assert taken.snapshot_id in [each.snapshot_id for each in client.pages(client.sandbox.list_snapshots())]
    copy = client.fresh(template=taken.snapshot_id)
    assert copy.files.read("in-snapshot") == "yes"
    copy.kill()
    assert client.Sandbox.delete_snapshot(taken.snapshot_id) is True
    assert client.Sandbox.delete_snapshot(taken.snapshot_id) is False


@covers("Sandbox.fork")
def fork(client: Client) -> None:
    client.sandbox.files.write("before-fork", "yes")
    for child in client.sandbox.fork(count=2, timeout=60):
        if isinstance(child, Exception):
            raise child
        child = child if client.kind == "sync" else Blocking(child, client.raw[1])
        assert child.files.read("before-fork") == "yes" and child.kill()


@covers("Sandbox.update_network")
def network(client: Client) -> None:
    client.sandbox.update_network({"deny_out": ["203.0.113.0/24"]})
    assert "203.0.113.0/24" in str(client.sandbox.get_info().network)
    client.sandbox.update_network({})


@covers("Sandbox.get_host", "Sandbox.get_mcp_url", "Sandbox.get_mcp_token")
def names(client: Client) -> None:
    assert client.sandbox.sandbox_id in client.sandbox.get_host(3000)
    assert client.sandbox.sandbox_id in client.sandbox.get_mcp_url()
    # Reads the gateway's file inside: without a gateway there is no token, which is an answer.
    try:
        client.sandbox.get_mcp_token()
    except e2b.NotFoundException:
        pass


@covers("Sandbox.download_url", "Sandbox.upload_url")
def urls(client: Client) -> None:
    path = "/home/user/by-url"
    route = {"E2b-Sandbox-Id": client.sandbox.sandbox_id, "E2b-Sandbox-Port": "49983"}
    up = client.sandbox.upload_url(path, use_signature_expiration=60)
    assert httpx.post(up, files={"file": ("by-url", b"signed")}, headers=route, timeout=30).is_success
    down = client.sandbox.download_url(path, use_signature_expiration=60)
    assert httpx.get(down, headers=route, timeout=30).text == "signed"


@covers("Sandbox.commands.run", "CommandHandle.wait")
def run(client: Client) -> None:
    assert client.sandbox.commands.run("echo out; echo err >&2").stderr == "err\n"
    assert client.sandbox.commands.run("exec echo done", background=True).wait().stdout == "done\n"


@covers("Sandbox.commands.list", "Sandbox.commands.connect", "Sandbox.commands.kill", "CommandHandle.kill", "CommandHandle.disconnect")
def processes(client: Client) -> None:
    handle = client.sandbox.commands.run("exec sleep 60", background=True)
    assert handle.pid in [each.pid for each in client.sandbox.commands.list()]
    again = client.sandbox.commands.connect(handle.pid)
    handle.disconnect()
    assert again.kill() is True
    other = client.sandbox.commands.run("exec sleep 60", background=True)
    assert client.sandbox.commands.kill(other.pid) is True


@covers("Sandbox.commands.send_stdin", "Sandbox.commands.close_stdin", "CommandHandle.send_stdin", "CommandHandle.close_stdin")
def stdin(client: Client) -> None:
    handle = client.shell()
    client.sandbox.commands.send_stdin(handle.pid, "one\n")
    handle.send_stdin("two\n")
    client.sandbox.commands.close_stdin(handle.pid)
    assert handle.wait().stdout == "one\ntwo\n"
    handle = client.shell()
    handle.send_stdin("x")
    handle.close_stdin()
    assert handle.wait().stdout == "x"


@covers("Sandbox.commands.stream_input", "CommandInputHandle.send", "CommandInputHandle.close")
def streamed(client: Client) -> None:
    handle = client.shell()
    if client.kind == "sync":
        client.sandbox.commands.stream_input(handle.pid, iter(["a", "b"]))
    else:
        stream(client, client.sandbox._target.commands, handle.pid)
    client.sandbox.commands.close_stdin(handle.pid)
    assert handle.wait().stdout == "ab"


@covers("Sandbox.pty.stream_input")
def streamed_terminal(client: Client) -> None:
    handle = client.terminal()
    if client.kind == "sync":
        client.sandbox.pty.stream_input(handle.pid, iter(["touch streamed", "\n"]))
    else:
        stream(client, client.sandbox._target.pty, handle.pid, ("touch streamed", "\n"))
    eventually(lambda: client.sandbox.files.exists("streamed"))
    assert client.sandbox.pty.kill(handle.pid)


def stream(client: Client, part: Any, pid: int, pieces: tuple[str, ...] = ("a", "b")) -> None:
    async def sending() -> None:
        handle = part.stream_input(pid)
        handle = await handle if inspect.isawaitable(handle) else handle
        for piece in pieces:
            await handle.send(piece)
        await handle.close()

    client.raw[1].run(sending())


@covers("Sandbox.pty.create", "Sandbox.pty.send_stdin", "Sandbox.pty.resize", "Sandbox.pty.connect", "Sandbox.pty.kill")
def terminal(client: Client) -> None:
    handle = client.terminal()
    client.sandbox.pty.resize(handle.pid, PtySize(rows=10, cols=111))
    client.sandbox.pty.send_stdin(handle.pid, b"stty size > size\n")
    eventually(lambda: client.sandbox.files.exists("size") and client.sandbox.files.read("size") == "10 111\n")
    extra = {} if client.kind == "sync" else {"on_data": lambda _: None}
    client.sandbox.pty.connect(handle.pid, **extra).disconnect()
    assert client.sandbox.pty.kill(handle.pid) is True


@covers(*(f"Sandbox.files.{each}" for each in ("write", "read", "exists", "get_info", "list", "make_dir", "rename", "remove", "write_files")))
def files(client: Client) -> None:
    area = client.sandbox.files
    assert area.make_dir("tree") is True and area.make_dir("tree") is False
    area.write("tree/a", b"\0bytes", metadata={"kept": "beside"})
    area.write_files([{"path": "tree/b", "data": "b"}, {"path": "tree/c", "data": "c"}])
    assert bytes(area.read("tree/a", format="bytes")) == b"\0bytes"
    assert sorted(each.name for each in area.list("tree")) == ["a", "b", "c"]
    assert area.get_info("tree/a").size == 6
    assert area.rename("tree/a", "tree/z").path == "/home/user/tree/z"
    area.remove("tree")
    assert area.exists("tree") is False


@covers("Sandbox.files.watch_dir", "WatchHandle.get_new_events", "WatchHandle.stop")
def watching(client: Client) -> None:
    client.sandbox.files.make_dir("watched")
    if client.kind == "sync":
        handle = client.sandbox.files.watch_dir("watched")
        client.sandbox.files.write("watched/x", "x")
        eventually(lambda: [each for each in handle.get_new_events() if each.name == "x"])
    else:
        seen: list[Any] = []
        handle = client.sandbox.files.watch_dir("watched", on_event=seen.append)
        client.sandbox.files.write("watched/x", "x")
        eventually(lambda: [each for each in seen if each.name == "x"])
    handle.stop()


@covers("Sandbox.git.init", "Sandbox.git.configure_user", "Sandbox.git.set_config", "Sandbox.git.get_config", "Sandbox.git.add",
        "Sandbox.git.commit", "Sandbox.git.status", "Sandbox.git.branches", "Sandbox.git.create_branch",
        "Sandbox.git.checkout_branch", "Sandbox.git.delete_branch", "Sandbox.git.reset", "Sandbox.git.restore",
        "Sandbox.git.remote_add", "Sandbox.git.remote_get", "Sandbox.git.push", "Sandbox.git.pull", "Sandbox.git.clone",
        "Sandbox.git.dangerously_authenticate")  # fmt: skip
def git(client: Client) -> None:
    git, area = client.sandbox.git, client.sandbox.files
    git.configure_user("Some One", "one@example.com")
    git.set_config("pull.rebase", "false")
    assert git.get_config("user.name") == "Some One"
    git.init("origin.git", bare=True, initial_branch="main")
    git.init("work", initial_branch="main")
    area.write("work/file", "1\n")
    git.add("work")
    git.commit("work", "First")
    git.remote_add("work", "origin", "/home/user/origin.git")
    assert git.remote_get("work", "origin") == "/home/user/origin.git"
    git.push("work", remote="origin", branch="main")
    git.pull("work", remote="origin", branch="main")
    git.clone("/home/user/origin.git", path="copy", branch="main")
    assert area.read("copy/file") == "1\n"
    git.create_branch("work", "other")
    git.checkout_branch("work", "main")
    assert "other" in git.branches("work").branches
    git.delete_branch("work", "other", force=True)
    area.write("work/file", "2\n")
    assert git.status("work").file_status
    git.restore("work", ["file"])
    area.write("work/file", "3\n")
    git.reset("work", mode="hard")
    assert area.read("work/file") == "1\n"
    git.dangerously_authenticate("someone", "a-token")


@covers("Volume.create", "Volume.connect", "Volume.get_info", "Volume.list", "Volume.destroy")
def volumes(client: Client) -> None:
    volume = client.Volume.create(f"vol-{client.unique}")
    try:
        assert volume.volume_id in [each.volume_id for each in client.Volume.list()]
        assert client.Volume.get_info(volume.volume_id).name == volume.name
        assert client.Volume.connect(volume.volume_id).name == volume.name
    finally:
        assert client.Volume.destroy(volume.volume_id) is True
    assert client.Volume.destroy(volume.volume_id) is False


@covers(*(f"Volume.{each}" for each in ("write_file", "read_file", "make_dir", "exists", "update_metadata", "remove")))
def volume_content(client: Client) -> None:
    volume = client.Volume.create(f"content-{client.unique}")
    try:
        volume.make_dir("/folder")
        volume.write_file("/folder/file", "text")
        assert volume.read_file("/folder/file") == "text"
        assert volume.exists("/folder/file") is True
        assert [each.name for each in volume.list("/folder")] == ["file"]
        volume.update_metadata("/folder/file", mode=0o600)
        sandbox = client.fresh(volume_mounts={"/mnt/shared": volume.name})
        assert sandbox.files.read("/mnt/shared/folder/file") == "text"
        sandbox.kill()
        volume.remove("/folder/file")
        assert volume.exists("/folder/file") is False
    finally:
        client.Volume.destroy(volume.volume_id)


@covers(*(f"Secret.{each}" for each in ("create", "get_info", "exists", "list", "update", "destroy")), "SecretPaginator.next_items")
def secrets(client: Client) -> None:
    # Names are kept in lower case.
    name = f"secret-{client.unique}"
    made = client.Secret.create(name, "s3cret", metadata={"a": "b"})
    key = getattr(made, "secret_id", None) or name
    try:
        assert client.Secret.exists(key) is True
        assert client.Secret.get_info(key).name == name
        assert name in [each.name for each in client.pages(client.Secret.list())]
        client.Secret.update(key, "changed")
    finally:
        assert client.Secret.destroy(key) is True
    assert client.Secret.exists(key) is False


@covers("Template.exists", "Template.alias_exists")
def template_exists(client: Client) -> None:
    assert client.Template.exists("base") is True and client.Template.exists("no-such-template") is False
    assert client.Template.alias_exists("base") is True


@covers("Template.get_tags", "Template.assign_tags", "Template.remove_tags")
def tags(client: Client) -> None:
    taken = client.sandbox.create_snapshot(name=f"tagged-{client.unique}")
    name = f"tagged-{client.unique}"
    try:
        client.Template.assign_tags(f"{name}:default", ["stable"])
        assert "stable" in [each.tag for each in client.Template.get_tags(name)]
        client.Template.remove_tags(name, ["stable"])
        assert "stable" not in [each.tag for each in client.Template.get_tags(name)]
    finally:
        client.Sandbox.delete_snapshot(taken.snapshot_id)


@covers("Template.get_build_status")
def build_status(client: Client) -> None:
    with httpx.Client(base_url=os.environ["E2B_API_URL"], headers={"X-API-Key": os.environ["E2B_API_KEY"]}) as api:
        base = api.get("/templates").json()[0]
    info = BuildInfo(template_id=base["templateID"], build_id=base["buildID"], name="base", alias="base")
    assert client.Template.get_build_status(info).status.value == "ready"


@covers("Template.build")
def build(client: Client) -> None:
    described = client.classes["Template"]().from_image("debian:12").run_cmd("true")
    client.Template.build(described, f"built-{client.unique}")


@covers("Template.build_in_background")
def build_later(client: Client) -> None:
    described = client.classes["Template"]().from_image("debian:12").run_cmd("true")
    client.Template.build_in_background(described, f"built-later-{client.unique}")


def verdict(client: Client, name: str, memo: dict[Check, tuple[str, str]]) -> tuple[str, str]:
    if name in LOCAL or name.startswith("Template.from_"):
        return "local", "no server is asked"
    check = CHECKS.get(name)
    if check is None:
        return "not covered", ""
    if check not in memo:
        try:
            check(client)
            memo[check] = ("works", "")
        except Exception as error:
            text = " ".join(str(error).split()) or repr(error)
            kind = "not supported yet" if "not supported yet" in text else "fails"
            memo[check] = (kind, f"{type(error).__name__}: {text}"[:300] if kind == "fails" else text[:300])
    return memo[check]


def main() -> int:
    loop = Loop()
    report: dict[str, Any] = {"package": "PyPI e2b", "version": importlib.metadata.version("e2b"), "sdks": {}}
    for kind in ("sync", "async"):
        client = Client(kind, loop)
        memo: dict[Check, tuple[str, str]] = {}
        began = time.monotonic()
        try:
            report["sdks"][kind] = {name: verdict(client, name, memo) for name in methods(client)}
        finally:
            client.sandbox.kill()
        print(f"{kind}: {len(report['sdks'][kind])} methods in {time.monotonic() - began:.0f} s", file=sys.stderr)
    loop.close()
    Path(sys.argv[1]).write_text(json.dumps(report, indent=1))
    return 0


sys.exit(main())

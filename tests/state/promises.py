"""What a server has answered, and whether another one keeps it after a power cut.

`Work` asks for things without a pause and notes every promise at the moment of its answer. A cut is a
copy of the disk at some moment with the promises given by then. `check` takes a server on that copy
by its words.
"""

import random
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Callable

import httpx
from e2b import Sandbox, Template

from support.power import ON_RECORD_WITHIN, PowerDisk, disks, play_reboot, stopped
from support.server import Server
from support.waiting import eventually

MOST_AT_ONCE = 6


@dataclass
class Told:
    """Of one sandbox."""

    at: float = field(default_factory=time.monotonic)
    state: str = "running"
    content: str | None = None
    deadline: int | None = None
    killed_at: float | None = None
    # Something is under way with it, of which the outcome is not known.
    busy: bool = False


@dataclass
class Promises:
    """By what was answered: there is `True`, gone is `False`."""

    sandboxes: dict[str, Told] = field(default_factory=dict)
    volumes: dict[str, tuple[str, str, bool]] = field(default_factory=dict)
    snapshots: dict[str, tuple[str, bool]] = field(default_factory=dict)
    keys: dict[str, bool] = field(default_factory=dict)
    secrets: dict[str, int] = field(default_factory=dict)
    tags: dict[str, bool] = field(default_factory=dict)

    def copy(self) -> "Promises":
        return Promises(
            {name: Told(**vars(told)) for name, told in self.sandboxes.items()},
            dict(self.volumes),
            dict(self.snapshots),
            dict(self.keys),
            dict(self.secrets),
            dict(self.tags),
        )


@dataclass
class Cut:
    image: Path
    promises: Promises
    at: float


class Work:
    """One client that never rests. Each operation notes what it was promised."""

    def __init__(self, server: Server, seed: int) -> None:
        self.server, self.random = server, random.Random(seed)
        self.promises, self._lock = Promises(), threading.Lock()
        self.done: dict[str, int] = {}
        self.failure: BaseException | None = None
        self._ended = threading.Event()
        self._api = server.api()
        self.template = f"cut-{uuid.uuid4().hex[:8]}"
        self.built = Template.build(
            Template().from_template("base").set_envs({"MADE": "once"}),
            self.template,
            api_key=server.key,
            api_url=server.url,
        )
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Work":
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._ended.set()
        self._thread.join(60)
        self._api.close()
        assert not self._thread.is_alive(), "the work does not end"

    def cut(self, disk: PowerDisk, to: Path) -> Cut:
        if self.failure is not None:
            raise self.failure
        with stopped(self.server.pid):
            with self._lock:
                promises, at = self.promises.copy(), time.monotonic()
            disk.copy(to)
        return Cut(to, promises, at)

    def operations(self) -> int:
        return sum(self.done.values())

    def _run(self) -> None:
        kinds = [
            (6, self._create), (5, self._pause), (2, self._resume), (2, self._extend), (2, self._kill),
            (2, self._volume), (1, self._delete_volume), (2, self._snapshot), (1, self._delete_snapshot),
            (3, self._key), (1, self._revoke), (3, self._secret), (3, self._tag), (1, self._untag),
        ]  # fmt: skip
        weights, calls = zip(*kinds, strict=True)
        try:
            while not self._ended.is_set():
                call = self.random.choices(calls, weights)[0]
                if call() is not False:
                    self.done[call.__name__[1:]] = self.done.get(call.__name__[1:], 0) + 1
        except BaseException as error:  # noqa: BLE001 (shown by whoever waits for us)
            self.failure = error

    def _ask(self, method: str, path: str, expect: int, **options) -> httpx.Response:
        answer = self._api.request(method, path, **options)
        assert answer.status_code == expect, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer

    def _pick(self, *states: str) -> str | None:
        found = [name for name, told in self.promises.sandboxes.items() if told.state in states]
        return self.random.choice(found) if found else None

    def _begin(self, name: str) -> None:
        with self._lock:
            self.promises.sandboxes[name].busy = True

    def _promise(self, name: str, **told) -> None:
        with self._lock:
            for key, value in told.items():
                setattr(self.promises.sandboxes[name], key, value)
            self.promises.sandboxes[name].busy = False

    def _create(self):
        if sum(told.state != "killed" for told in self.promises.sandboxes.values()) >= MOST_AT_ONCE:
            return self._kill()
        sandbox = Sandbox.create(timeout=1200, **self.server.sdk)
        with self._lock:
            self.promises.sandboxes[sandbox.sandbox_id] = Told()
        if self.random.random() < 0.7:
            content = uuid.uuid4().hex
            sandbox.files.write("kept", content)
            self._promise(sandbox.sandbox_id, content=content)

    def _pause(self):
        if (name := self._pick("running")) is None:
            return False
        self._begin(name)
        self._ask("POST", f"/sandboxes/{name}/pause", 204, json={"memory": self.random.random() < 0.5})
        self._promise(name, state="paused")

    def _resume(self):
        if (name := self._pick("paused")) is None:
            return False
        self._begin(name)
        self._ask("POST", f"/v2/sandboxes/{name}/connect", 201, json={"timeout": 1200})
        self._promise(name, state="running", deadline=None)

    def _extend(self):
        if (name := self._pick("running")) is None:
            return False
        self._begin(name)
        self._ask("POST", f"/sandboxes/{name}/timeout", 204, json={"timeout": self.random.randint(1000, 3000)})
        told = self._ask("GET", f"/sandboxes/{name}", 200).json()["endAt"]
        self._promise(name, deadline=int(datetime.fromisoformat(told).timestamp() * 1000))

    def _kill(self):
        if (name := self._pick("running", "paused")) is None:
            return False
        self._begin(name)
        self._ask("DELETE", f"/sandboxes/{name}", 204)
        self._promise(name, state="killed", killed_at=time.monotonic())

    def _volume(self):
        if len([each for each in self.promises.volumes.values() if each[2]]) >= 3:
            return self._delete_volume()
        made = self._ask("POST", "/volumes", 201, json={"name": f"v{uuid.uuid4().hex[:12]}"}).json()
        with self._lock:
            self.promises.volumes[made["volumeID"]] = (made["token"], "", True)
        content = uuid.uuid4().hex
        self._ask(
            "PUT", f"/volumecontent/{made['volumeID']}/file", 201, params={"path": "/kept"}, content=content.encode(),
            headers={"Authorization": f"Bearer {made['token']}"},
        )  # fmt: skip
        with self._lock:
            self.promises.volumes[made["volumeID"]] = (made["token"], content, True)

    def _delete_volume(self):
        there = [name for name, each in self.promises.volumes.items() if each[2]]
        if not there:
            return False
        name = self.random.choice(there)
        with self._lock:
            token, content, _ = self.promises.volumes.pop(name)
        self._ask("DELETE", f"/volumes/{name}", 204)
        with self._lock:
            self.promises.volumes[name] = (token, content, False)

    def _snapshot(self):
        name = self._pick("running")
        there = [each for each, (_, kept) in self.promises.snapshots.items() if kept]
        if name is None or len(there) >= 3:
            return self._delete_snapshot()
        content = self.promises.sandboxes[name].content or ""
        self._begin(name)
        taken = self._ask("POST", f"/sandboxes/{name}/snapshots", 201, json={}).json()["snapshotID"]
        with self._lock:
            self.promises.snapshots[taken] = (content, True)
        self._promise(name)

    def _delete_snapshot(self):
        there = [each for each, (_, kept) in self.promises.snapshots.items() if kept]
        if not there:
            return False
        name = self.random.choice(there)
        with self._lock:
            content, _ = self.promises.snapshots.pop(name)
        self._ask("DELETE", f"/templates/{name}", 204)
        with self._lock:
            self.promises.snapshots[name] = (content, False)

    def _key(self):
        made = self._ask("POST", "/api-keys", 201, json={"name": "cut"}).json()
        with self._lock:
            self.promises.keys[f"{made['id']} {made['key']}"] = True

    def _revoke(self):
        there = [each for each, kept in self.promises.keys.items() if kept]
        if not there:
            return False
        key = self.random.choice(there)
        with self._lock:
            del self.promises.keys[key]
        self._ask("DELETE", f"/api-keys/{key.split()[0]}", 204)
        with self._lock:
            self.promises.keys[key] = False

    def _secret(self):
        name = f"S{self.random.randrange(4)}"
        version = self.promises.secrets.get(name, 0)
        body = {"value": uuid.uuid4().hex}
        if version:
            told = self._ask("POST", f"/secrets/{name}", 200, json=body).json()
        else:
            told = self._ask("POST", "/secrets", 201, json=body | {"name": name}).json()
        with self._lock:
            self.promises.secrets[name] = told["currentVersion"]

    def _tag(self):
        tag = f"t{uuid.uuid4().hex[:8]}"
        self._ask("POST", "/templates/tags", 201, json={"target": f"{self.template}:default", "tags": [tag]})
        with self._lock:
            self.promises.tags[tag] = True

    def _untag(self):
        there = [each for each, kept in self.promises.tags.items() if kept]
        if not there:
            return False
        tag = self.random.choice(there)
        with self._lock:
            del self.promises.tags[tag]
        self._ask("DELETE", "/templates/tags", 204, json={"name": self.template, "tags": [tag]})
        with self._lock:
            self.promises.tags[tag] = False


class Check:
    """A server on the copy, as after the machine came up again. `broken` says what was not kept."""

    def __init__(self, server: Server, work: Work, cut: Cut) -> None:
        self.server, self.work, self.cut = server, work, cut
        self.broken: list[str] = []

    def run(self) -> list[str]:
        data = self.server.data
        self._deadlines(data)
        before = disks(data)
        play_reboot(data)
        self.server.start()
        try:
            with self.server.api() as api:
                self._sandboxes(api)
                self._rows(api)
                self._volumes(api)
                self._snapshots(api)
            # What was killed, or never anybody's, may go.
            after, told = disks(data), self.cut.promises.sandboxes
            for name in sorted(set(before) - set(after)):
                known = told.get(name)
                if known is not None and known.state != "killed" and not known.busy:
                    self._say(f"the disk of sandbox {name} ({known.state}) was removed")
            self._resume_all()
        finally:
            self.server.finish()
        return self.broken

    def _say(self, what: str) -> None:
        self.broken.append(what)

    def _deadlines(self, data: Path) -> None:
        for name, told in self.cut.promises.sandboxes.items():
            if told.deadline is None or told.busy or told.state == "killed":
                continue
            lease = data / "sandboxes" / name / "lease.json"
            text = lease.read_text() if lease.exists() else "no file"
            if str(told.deadline) not in text:
                self._say(f"sandbox {name} has another deadline than {told.deadline}: {text!r}")

    def _sandboxes(self, api: httpx.Client) -> None:
        for name, told in self.cut.promises.sandboxes.items():
            if told.busy:
                continue
            answer = api.get(f"/sandboxes/{name}")
            state = answer.json().get("state") if answer.status_code == 200 else answer.text
            if told.state == "paused" and state != "paused":
                self._say(f"sandbox {name} was paused, and is {state}")
            elif told.state == "running" and answer.status_code != 200:
                old = self.cut.at - told.at > ON_RECORD_WITHIN
                # Its files need not have been written. Then it is told as broken, and its disk is kept.
                why = "ended" in answer.json().get("message", "") or answer.json().get("error_code") == "sandbox_broken"
                if old and not why:
                    self._say(f"sandbox {name} is gone without a word: {state}")
            elif told.state == "killed" and answer.status_code == 200:
                if self.cut.at - (told.killed_at or 0) > ON_RECORD_WITHIN:
                    self._say(f"sandbox {name} was killed, and is {state}")

    def _resume_all(self) -> None:
        for name, told in self.cut.promises.sandboxes.items():
            if told.state != "paused" or told.busy:
                continue
            try:
                sandbox = Sandbox.connect(name, timeout=300, **self.server.sdk)
                if told.content is not None and (found := sandbox.files.read("kept")) != told.content:
                    self._say(f"sandbox {name} has {found!r} instead of {told.content!r}")
            except Exception as error:  # noqa: BLE001 (whatever it is, it was promised)
                self._say(f"sandbox {name} was paused, and cannot be resumed: {error!r}")

    def _rows(self, api: httpx.Client) -> None:
        for key, kept in self.cut.promises.keys.items():
            with self.server.api(key=key.split()[1]) as theirs:
                answer = theirs.get("/v2/sandboxes").status_code
            if answer != (200 if kept else 401):
                self._say(f"an API key ({'kept' if kept else 'revoked'}) is answered with {answer}")
        for name, version in self.cut.promises.secrets.items():
            answer = api.get(f"/secrets/{name}")
            if answer.status_code != 200 or answer.json()["currentVersion"] < version:
                self._say(f"secret {name} had version {version}: {answer.text}")
        answer = api.get(f"/templates/{self.work.built.template_id}/tags")
        tags = {each["tag"] for each in answer.json()} if answer.status_code == 200 else set()
        for tag, kept in self.cut.promises.tags.items():
            if (tag in tags) != kept:
                self._say(f"tag {tag} ({'kept' if kept else 'removed'}): {answer.text}")

    def _volumes(self, api: httpx.Client) -> None:
        listed = {each["volumeID"] for each in api.get("/volumes").json()}
        for name, (token, content, kept) in self.cut.promises.volumes.items():
            if (name in listed) != kept:
                self._say(f"volume {name} ({'kept' if kept else 'deleted'}) is {'' if kept else 'still '}told otherwise")
            elif kept and content:
                headers = {"Authorization": f"Bearer {token}"}
                answer = api.get(f"/volumecontent/{name}/file", params={"path": "/kept"}, headers=headers)
                if answer.text != content:
                    self._say(f"volume {name} has {answer.text!r} instead of {content!r}")

    def _snapshots(self, api: httpx.Client) -> None:
        listed = {each["snapshotID"] for each in api.get("/snapshots").json()}
        for name, (content, kept) in self.cut.promises.snapshots.items():
            if (name in listed) != kept:
                self._say(f"snapshot {name} ({'kept' if kept else 'deleted'}) is {'' if kept else 'still '}told otherwise")
                continue
            if not kept:
                continue
            try:
                sandbox = Sandbox.create(template=name, timeout=120, **self.server.sdk)
                if content and (found := sandbox.files.read("kept")) != content:
                    self._say(f"snapshot {name} has {found!r} instead of {content!r}")
                sandbox.kill()
            except Exception as error:  # noqa: BLE001
                self._say(f"snapshot {name} cannot be used: {error!r}")


# Addresses that no server picks by itself: between two starts another could have taken ours.
ADDRESSES = range(220, 251)


@dataclass
class ServerRun:
    """Of a server, with some cuts at moments of chance, which are looked at afterwards."""

    folder: Path
    first: int
    cuts: int
    seed: int
    addresses: int

    def run(self, progress: Callable[[int, list[str], dict[str, int]], None]) -> list[str]:
        disk = PowerDisk(self.folder, 2048)
        server = Server(
            disk.path / "data", extra=["--min-free-disk-mb", "0", "--network-range", f"10.{self.addresses}.0.0/16"]
        )
        # A log on the disk would be one more writer.
        server.log = self.folder / "server.log"
        broken: list[str] = []
        try:
            with disk.mounted():
                work, taken = self._work(server, disk)
            for number, cut in enumerate(taken, self.first):
                with disk.mounted(cut.image):
                    found = Check(server, work, cut).run()
                cut.image.unlink()
                broken += [f"cut {number}: {each}" for each in found]
                progress(number, found, work.done)
        finally:
            disk.unmount()
            if not broken:
                disk.image.unlink(missing_ok=True)
        return broken

    def _work(self, server: Server, disk: PowerDisk) -> tuple[Work, list[Cut]]:
        chance, taken = random.Random(self.seed), []
        server.start()
        try:
            with Work(server, chance.randrange(1 << 32)) as work:
                for each in range(self.cuts):
                    until = work.operations() + chance.randint(3, 12)
                    eventually(lambda: work.failure or work.operations() >= until, within=60, every=0.002, what="work")
                    # Not to wait for anything: the moment is one of chance.
                    time.sleep(chance.random() * 0.05)
                    taken.append(work.cut(disk, self.folder / f"cut-{each}.img"))
        finally:
            server.finish()
        return work, taken


def rounds(
    folder: Path,
    cuts: int,
    per_life: int,
    seed: int,
    at_once: int = 1,
    progress: Callable[[int, list[str], dict[str, int]], None] = lambda *_: None,
) -> list[str]:
    """Runs of servers, some beside each other."""
    chance, somewhere = random.Random(seed), random.SystemRandom().randrange(len(ADDRESSES))
    lives = [
        ServerRun(
            folder / f"life-{number}",
            first,
            min(per_life, cuts + 1 - first),
            chance.randrange(1 << 32),
            ADDRESSES[(somewhere + number) % len(ADDRESSES)],
        )
        for number, first in enumerate(range(1, cuts + 1, per_life))
    ]
    with ThreadPoolExecutor(at_once) as pool:
        return [each for broken in pool.map(lambda life: life.run(progress), lives) for each in broken]

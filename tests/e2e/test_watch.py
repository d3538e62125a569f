"""files.watch_dir: polling in the synchronous client, callbacks in the asynchronous one."""

import pytest
from e2b import FileNotFoundException, SandboxException
from e2b.sandbox.filesystem.watch_handle import FilesystemEventType as Type

from support.waiting import eventually


class Watch:
    """Either client's watcher with one face."""

    def __init__(self, sandbox, path, **kwargs):
        self.events = []
        self._polled = type(sandbox).__name__ != "Blocking"
        if self._polled:
            self.handle = sandbox.files.watch_dir(path, **kwargs)
        else:
            self.handle = sandbox.files.watch_dir(path, on_event=self.events.append, **kwargs)

    def seen(self):
        if self._polled:
            self.events += self.handle.get_new_events()
        return [(each.name, each.type) for each in self.events]

    def sees(self, name, kind):
        eventually(lambda: (name, kind) in self.seen(), what=f"{kind} of {name} in {self.events}")


def test_writes_renames_and_removals_are_seen(sandbox):
    sandbox.files.write("w/old", "1")
    watch = Watch(sandbox, "w")
    sandbox.files.write("w/old", "2")
    watch.sees("old", Type.WRITE)
    sandbox.files.rename("w/old", "w/new")
    watch.sees("old", Type.RENAME)
    watch.sees("new", Type.CREATE)
    sandbox.files.remove("w/new")
    watch.sees("new", Type.REMOVE)
    sandbox.commands.run("touch w/x; chmod 600 w/x")
    watch.sees("x", Type.CHMOD)
    watch.handle.stop()


def test_what_programs_inside_do_is_seen(sandbox):
    sandbox.files.make_dir("w")
    watch = Watch(sandbox, "w")
    sandbox.commands.run("echo x > w/by-program")
    watch.sees("by-program", Type.CREATE)
    watch.sees("by-program", Type.WRITE)
    watch.handle.stop()


def test_a_poll_right_after_a_write_has_exactly_its_three_events(box):
    box.files.make_dir("w")
    watch = box.files.watch_dir("w")
    box.files.write("w/f", "content")
    events = watch.get_new_events()
    assert [(each.name, each.type) for each in events] == [
        ("f", Type.CREATE), ("f", Type.CHMOD), ("f", Type.WRITE),
    ]  # fmt: skip
    assert watch.get_new_events() == []
    watch.stop()


def test_recursive_watching_covers_old_and_new_directories(sandbox):
    sandbox.files.make_dir("w/was-there")
    watch = Watch(sandbox, "w", recursive=True)
    sandbox.files.write("w/was-there/f", "x")
    watch.sees("was-there/f", Type.WRITE)
    sandbox.files.write("w/made/just/now/f", "x")
    watch.sees("made/just/now/f", Type.WRITE)
    watch.handle.stop()


def test_without_recursion_deeper_changes_are_not_seen(box):
    box.files.make_dir("w/sub")
    watch = box.files.watch_dir("w")
    box.files.write("w/sub/f", "x")
    box.files.write("w/marker", "x")
    names = {each.name for each in watch.get_new_events()}
    assert "marker" in names and not any("sub/" in name for name in names)
    watch.stop()


def test_entries_come_along_when_asked(sandbox):
    sandbox.files.make_dir("w")
    watch = Watch(sandbox, "w", include_entry=True)
    sandbox.files.write("w/f", "12345")
    watch.sees("f", Type.WRITE)
    (event,) = [each for each in watch.events if each.type == Type.WRITE][:1]
    assert event.entry.path == "/home/user/w/f" and event.entry.name == "f"
    watch.handle.stop()


def test_watching_nothing_or_a_file_is_refused(sandbox):
    with pytest.raises(FileNotFoundException):
        Watch(sandbox, "missing")
    sandbox.files.write("plain", "")
    with pytest.raises(SandboxException):
        Watch(sandbox, "plain")


def test_a_stopped_watcher_stays_stopped(box):
    box.files.make_dir("w")
    watch = box.files.watch_dir("w")
    watch.stop()
    with pytest.raises(SandboxException):
        watch.get_new_events()


def test_ten_thousand_changes_neither_block_nor_break_envd(box):
    box.files.make_dir("w")
    watch = box.files.watch_dir("w")
    box.commands.run("cd w; for i in $(seq 10000); do : > f$i; done", timeout=60)
    assert len(watch.get_new_events()) > 0
    assert box.commands.run("echo fine").stdout == "fine\n"
    watch.stop()

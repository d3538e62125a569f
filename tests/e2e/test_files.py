"""files.*"""

import gzip
import io
import os

import httpx
import pytest
from e2b import FileNotFoundException, InvalidArgumentException, NotEnoughSpaceException, SandboxException
from e2b.sandbox.filesystem.filesystem import FileType


def envd(server, sandbox):
    """A plain HTTP client for envd of a sandbox, with its token."""
    detail = server.api().get(f"/sandboxes/{sandbox.sandbox_id}").json()
    headers = {
        "E2b-Sandbox-Id": sandbox.sandbox_id,
        "E2b-Sandbox-Port": "49983",
        "X-Access-Token": detail["envdAccessToken"],
    }
    return httpx.Client(base_url=server.url, headers=headers, timeout=30)


@pytest.mark.parametrize(
    "data",
    ["text", "ünïcödé 漢字\n", "", b"\x00\xff\x80 bytes", b"x" * 1_000_000],
    ids=["text", "unicode", "empty", "binary", "megabyte"],
)
def test_what_is_written_is_read(sandbox, data):
    written = sandbox.files.write("some file", data)
    assert (written.name, written.path, written.type) == ("some file", "/home/user/some file", FileType.FILE)
    raw = data.encode() if isinstance(data, str) else data
    assert bytes(sandbox.files.read("some file", format="bytes")) == raw
    if isinstance(data, str):
        assert sandbox.files.read("some file") == data


@pytest.mark.parametrize(("use_gzip", "octet"), [(False, False), (False, True), (True, True)])
def test_every_way_of_uploading_gives_the_same_file(sandbox, use_gzip, octet):
    body = b"line\n" * 50_000
    sandbox.files.write("f", io.BytesIO(body), gzip=use_gzip, use_octet_stream=octet)
    assert bytes(sandbox.files.read("f", format="bytes", gzip=use_gzip)) == body
    assert sandbox.commands.run("wc -c < f").stdout.strip() == str(len(body))


def test_reading_as_a_stream_gives_the_whole_file(box):
    body = os.urandom(3_000_000)
    box.files.write("big", body)
    assert b"".join(box.files.read("big", format="stream")) == body


def test_writing_many_at_once(sandbox):
    made = sandbox.files.write_files(
        [
            {"path": "a.txt", "data": "A"},
            {"path": "deep/down/b.bin", "data": b"\x00"},
            {"path": "/tmp/c", "data": io.BytesIO(b"C")},
        ]
    )
    assert [each.path for each in made] == ["/home/user/a.txt", "/home/user/deep/down/b.bin", "/tmp/c"]
    assert sandbox.files.read("/tmp/c") == "C"


def test_overwriting_replaces_all_of_it(sandbox):
    sandbox.files.write("f", "a long first text")
    sandbox.files.write("f", "short")
    assert sandbox.files.read("f") == "short"


def test_files_belong_to_the_user_with_usual_modes(sandbox):
    sandbox.files.write("new/dir/f", "12345")
    info = sandbox.files.get_info("new/dir/f")
    assert (info.owner, info.group, info.mode, info.permissions, info.size) == (
        "user", "user", 0o644, "-rw-r--r--", 5,
    )  # fmt: skip
    assert info.type == FileType.FILE and info.symlink_target is None and info.modified_time
    folder = sandbox.files.get_info("new/dir")
    assert (folder.owner, folder.mode, folder.permissions, folder.type) == (
        "user", 0o755, "drwxr-xr-x", FileType.DIR,
    )  # fmt: skip


def test_root_writes_where_root_asks(sandbox):
    written = sandbox.files.write("r", "x", user="root")
    assert written.path == "/root/r"
    assert sandbox.files.get_info("/root/r").owner == "root"


def test_a_missing_file_is_not_found(sandbox):
    with pytest.raises(FileNotFoundException):
        sandbox.files.read("missing")
    with pytest.raises(FileNotFoundException):
        sandbox.files.get_info("missing")
    with pytest.raises(FileNotFoundException):
        sandbox.files.list("missing")
    with pytest.raises(FileNotFoundException):
        sandbox.files.rename("missing", "other")
    assert sandbox.files.exists("missing") is False


def test_reading_a_directory_is_the_callers_mistake(sandbox):
    with pytest.raises((InvalidArgumentException, SandboxException), match="director"):
        sandbox.files.read("/tmp")


def test_writing_onto_a_directory_is_the_callers_mistake(sandbox):
    with pytest.raises(InvalidArgumentException):
        sandbox.files.write("/tmp", "x")


def test_listing_goes_as_deep_as_asked_in_order(sandbox):
    for path in ["t/b/2", "t/a/x/1", "t/c"]:
        sandbox.files.write(path, "")
    names = lambda depth: [each.path.removeprefix("/home/user/t/") for each in sandbox.files.list("t", depth=depth)]
    assert names(1) == ["a", "b", "c"]
    assert names(2) == ["a", "a/x", "b", "b/2", "c"]
    assert names(3) == ["a", "a/x", "a/x/1", "b", "b/2", "c"]
    with pytest.raises(InvalidArgumentException):
        sandbox.files.list("t/c")


def test_making_directories(sandbox):
    assert sandbox.files.make_dir("x/y/z") is True
    assert sandbox.files.make_dir("x/y/z") is False
    sandbox.files.write("plain", "")
    with pytest.raises(SandboxException):
        sandbox.files.make_dir("plain")
    with pytest.raises(SandboxException):
        sandbox.files.make_dir("plain/below")


def test_removing_is_recursive_and_idempotent(sandbox):
    sandbox.files.write("t/a/b", "")
    sandbox.files.remove("t")
    assert not sandbox.files.exists("t")
    sandbox.files.remove("t")


def test_renaming_makes_parents_and_overwrites(sandbox):
    sandbox.files.write("from", "new")
    sandbox.files.write("to/here", "old")
    info = sandbox.files.rename("from", "to/here")
    assert info.path == "/home/user/to/here"
    assert sandbox.files.read("to/here") == "new"
    assert not sandbox.files.exists("from")
    sandbox.files.rename("to/here", "brand/new/place")
    assert sandbox.files.read("brand/new/place") == "new"


def test_a_symlink_shows_its_target(sandbox):
    sandbox.files.write("d/target", "x")
    sandbox.commands.run("ln -s target d/link; ln -s nowhere d/broken")
    info = sandbox.files.get_info("d/link")
    assert info.symlink_target == "/home/user/d/target"
    assert info.permissions.startswith("L")
    assert sandbox.files.get_info("d/broken").symlink_target


def test_metadata_stays_with_the_file_until_it_is_written_again(sandbox):
    written = sandbox.files.write("m", "x", metadata={"Author": "me", "tag": "1"})
    assert written.metadata == {"author": "me", "tag": "1"}
    assert sandbox.files.get_info("m").metadata == {"author": "me", "tag": "1"}
    assert sandbox.files.rename("m", "n").metadata == {"author": "me", "tag": "1"}
    (listed,) = [each for each in sandbox.files.list(".") if each.name == "n"]
    assert listed.metadata == {"author": "me", "tag": "1"}
    sandbox.files.write("n", "y")
    assert sandbox.files.get_info("n").metadata is None


def test_metadata_set_by_a_program_inside_is_shown(sandbox):
    sandbox.files.write("x", "")
    sandbox.commands.run("""python3 -c "import os; os.setxattr('x', 'user.e2b.made', b'inside')" """)
    assert sandbox.files.get_info("x").metadata == {"made": "inside"}


def test_proc_files_have_content_although_their_size_is_zero(sandbox):
    assert len(sandbox.files.read("/proc/sys/kernel/random/boot_id").strip()) == 36
    assert "MemTotal" in sandbox.files.read("/proc/meminfo")


@pytest.mark.parametrize(
    ("path", "user", "real"),
    [("~/a", None, "/home/user/a"), ("a", "root", "/root/a"), ("/tmp/../tmp/a", None, "/tmp/a")],
)
def test_paths_are_resolved_for_the_user(sandbox, path, user, real):
    sandbox.files.write(path, "x", user=user)
    assert sandbox.files.read(real) == "x"


def test_another_users_tilde_is_refused(sandbox):
    with pytest.raises(InvalidArgumentException):
        sandbox.files.write("~root/a", "x")


def test_odd_names_work(sandbox):
    for name in ["with space", "ünï", "new\nline", "quote'\"", "percent%20", "plus+", "#hash?", "-dash"]:
        sandbox.files.write(f"odd/{name}", name)
        assert sandbox.files.read(f"odd/{name}") == name


def test_ranges_are_served(server, box):
    box.files.write("r", "0123456789")
    with envd(server, box) as http:
        answer = http.get("/files", params={"path": "r"}, headers={"Range": "bytes=2-5"})
        assert (answer.status_code, answer.text) == (206, "2345")
        assert answer.headers["content-range"] == "bytes 2-5/10"
        assert http.get("/files", params={"path": "r"}, headers={"Range": "bytes=99-"}).status_code == 416


def test_compression_is_the_clients_choice(server, box):
    body = b"z" * 100_000
    box.files.write("z", body)
    with envd(server, box) as http:
        plain = http.get("/files", params={"path": "z"}, headers={"Accept-Encoding": "identity"})
        assert plain.content == body and "content-encoding" not in plain.headers
        packed = http.get("/files", params={"path": "z"}, headers={"Accept-Encoding": "gzip"})
        assert packed.content == body and packed.headers["content-encoding"] == "gzip"
        answer = http.post(
            "/files",
            params={"path": "back"},
            content=gzip.compress(body),
            headers={"Content-Encoding": "gzip", "Content-Type": "application/octet-stream"},
        )
        assert answer.status_code == 200, answer.text
        assert answer.json() == [{"path": "/home/user/back", "name": "back", "type": "file"}]
    assert box.commands.run("wc -c < back").stdout.strip() == "100000"


def test_a_disk_that_is_full_is_an_own_error(box):
    box.commands.run("fallocate -l 900G big 2>/dev/null || dd if=/dev/zero of=big bs=1M 2>/dev/null || true", timeout=100)
    with pytest.raises(NotEnoughSpaceException):
        box.files.write("more", b"x" * 50_000_000)
    box.commands.run("rm -f big more")
    box.files.write("fits", "again")

"""The built-in template `desktop` with the published client for computer use."""

import os
import struct

import httpx
import pytest
from e2b_desktop import Sandbox
from websockets.sync.client import connect

from support.waiting import eventually

pytestmark = [
    pytest.mark.skipif(
        os.environ.get("SOULBOX_TEST_SLOW") is None,
        reason="builds a gigabyte: run it with SOULBOX_TEST_SLOW=1",
    ),
    pytest.mark.timeout(1500),
    pytest.mark.registries,
    pytest.mark.usefixtures("registries"),
]


@pytest.fixture(scope="module")
def desktop(server):
    done = server.cli("template", "build", "--builtin", "desktop", timeout=1200)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()[-5000:]
    desktop = Sandbox.create(resolution=(1280, 720), timeout=600, **server.sdk)
    yield desktop
    desktop.kill()


def windows(desktop, application: str) -> list[str]:
    """Of an application that is being started: none is an error of the command."""

    def visible():
        found = desktop.commands.run(f"xdotool search --onlyvisible --class {application} || true").stdout
        return found.strip() and desktop.get_application_windows(application)

    return eventually(visible, within=60, what=f"a window of {application}")


def test_the_screen_has_its_size_and_the_mouse_its_place(desktop):
    assert desktop.get_screen_size() == (1280, 720)
    desktop.move_mouse(200, 150)
    assert desktop.get_cursor_position() == (200, 150)
    desktop.drag((300, 300), (320, 310))
    assert desktop.get_cursor_position() == (320, 310)
    for act in (desktop.left_click, desktop.double_click, desktop.middle_click, desktop.scroll):
        act()
    # The desktop's menu, which a middle click opens, would take what is typed next.
    desktop.press("escape")


def test_what_is_typed_arrives_in_the_window_that_was_launched(desktop):
    desktop.launch("xfce4-terminal")
    window = windows(desktop, "xfce4-terminal")[-1]
    assert "Terminal" in desktop.get_window_title(window)
    eventually(lambda: desktop.get_current_window_id() == window, within=30, what="it has the focus")
    eventually(lambda: "$" in desktop.commands.run("pgrep -u user -x bash >/dev/null && echo '$' || true").stdout, within=30, what="a shell")
    desktop.write("echo 'typed: ~!' > /tmp/typed")
    desktop.press("enter")
    eventually(lambda: desktop.files.exists("/tmp/typed"), within=30, what="the line is run")
    assert desktop.files.read("/tmp/typed") == "typed: ~!\n"


def test_a_screenshot_is_a_picture_with_more_than_one_colour(desktop):
    picture = bytes(desktop.screenshot())
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", picture[16:24]) == (1280, 720)
    # An empty screen of this size compresses to a few kilobytes.
    assert len(picture) > 20_000


def test_files_and_pages_open_in_their_applications(desktop):
    desktop.files.write("/home/user/note.txt", "some text")
    desktop.open("/home/user/note.txt")
    assert "note.txt" in desktop.get_window_title(windows(desktop, "mousepad")[0])
    desktop.files.write("/home/user/page.html", "<title>A page</title><h1>Hello</h1>")
    desktop.launch("google-chrome", "/home/user/page.html")
    browser = windows(desktop, "chromium")[0]
    eventually(lambda: "A page" in desktop.get_window_title(browser), within=60, what="the page is loaded")


def test_the_stream_is_served_through_the_proxy(server, desktop):
    desktop.stream.start(require_auth=True)
    key = desktop.stream.get_auth_key()
    assert f"6080-{desktop.sandbox_id}." in desktop.stream.get_url(auth_key=key)
    headers = {"E2b-Sandbox-Id": desktop.sandbox_id, "E2b-Sandbox-Port": "6080"}
    page = httpx.get(f"{server.url}/vnc.html", headers=headers)
    assert page.status_code == 200 and "noVNC" in page.text
    address = server.url.replace("http", "ws") + "/websockify"
    with connect(address, additional_headers=headers, subprotocols=["binary"]) as socket:
        assert socket.recv(timeout=20).startswith(b"RFB 003.")
    desktop.stream.stop()

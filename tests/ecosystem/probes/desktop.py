"""e2b-desktop: a screen, a mouse, a keyboard, and the picture of it in a browser."""

from e2b_desktop import Sandbox

from features import DOMAIN_MODE, equal, feature, main, no_call, open_port

desktop: Sandbox | None = None


@feature("create")
def create() -> None:
    """It starts X and the window manager itself."""
    global desktop
    desktop = Sandbox.create(timeout=180)
    equal(desktop.get_screen_size(), (1024, 768))


@feature("commands")
def commands() -> None:
    desktop.move_mouse(200, 150)
    equal(desktop.get_cursor_position(), (200, 150))
    desktop.left_click()
    desktop.write("hello")
    desktop.press("enter")
    assert bytes(desktop.screenshot()).startswith(b"\x89PNG")
    desktop.launch("xfce4-terminal")
    desktop.wait(2000)
    assert desktop.get_application_windows("xfce4-terminal")


@feature("failing command")
def failing_command() -> None:
    try:
        desktop.commands.run("exit 3")
    except Exception as error:
        equal(error.exit_code, 3)
        return
    raise AssertionError("no CommandExitException")


@feature("files")
def files() -> None:
    desktop.files.write("/home/user/a.txt", "text ü")
    equal(desktop.files.read("/home/user/a.txt"), "text ü")


@feature("PTY")
def pty() -> None:
    from e2b.sandbox.commands.command_handle import PtySize

    terminal = desktop.pty.create(PtySize(rows=24, cols=80), timeout=30)
    desktop.pty.send_stdin(terminal.pid, b"echo $((6 * 7)); exit\n")
    screen = b"".join(data for _, _, data in terminal if data)
    assert b"42" in screen, screen


@feature("ports")
def ports() -> None:
    desktop.stream.start(require_auth=True)
    url = desktop.stream.get_url(auth_key=desktop.stream.get_auth_key())
    assert url.startswith("https://"), url
    assert "noVNC" in open_port(url if DOMAIN_MODE else url.replace("https://", "http://", 1))


@feature("connect")
def connect() -> None:
    equal(Sandbox.connect(desktop.sandbox_id).get_screen_size(), (1024, 768))


@feature("pause")
def pause() -> None:
    desktop.pause()
    desktop.connect(timeout=120)
    equal(desktop.get_screen_size(), (1024, 768))


@feature("kill")
def kill() -> None:
    assert desktop.kill() is True
    equal(Sandbox.kill(desktop.sandbox_id), False)


no_call("run code")
main()

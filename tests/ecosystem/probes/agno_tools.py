"""agno: its E2B toolkit; every answer is a text for the model, and ports are `http://`."""

import json

from agno.tools.e2b import E2BTools
from e2b import Sandbox

from features import equal, feature, main, no_call, open_port

tools: E2BTools | None = None


@feature("create")
def create() -> None:
    global tools
    tools = E2BTools(timeout=180, sandbox_options={"envs": {"GIVEN": "value"}})
    equal(tools.set_sandbox_timeout(170), "170")


@feature("commands")
def commands() -> None:
    told = json.loads(tools.run_command("echo $GIVEN; pwd; echo err >&2"))
    assert "value\n/home/user" in str(told[0]).replace("\\n", "\n") and "err" in str(told), told
    assert "streamed" in tools.stream_command("echo streamed")
    handle = tools.run_background_command("sleep 60")
    assert "terminated" in tools.kill_background_command(handle)


@feature("failing command")
def failing_command() -> None:
    told = json.loads(tools.run_command("echo out; exit 3"))
    assert told["status"] == "error" and "code 3" in told["message"], told


@feature("files")
def files() -> None:
    tools.write_file_content("/home/user/made/a.txt", "text ü")
    equal(tools.read_file_content("/home/user/made/a.txt"), "text ü")
    assert "a.txt" in tools.list_files("/home/user/made")
    with open("here.txt", "w") as file:
        file.write("uploaded")
    equal(tools.upload_file("here.txt", "/home/user/there.txt"), "/home/user/there.txt")
    # Not `download_file_from_sandbox`: it writes the text that the SDK reads as bytes.
    equal(tools.read_file_content("/home/user/there.txt"), "uploaded")


@feature("ports")
def ports() -> None:
    tools.write_file_content("/home/user/served/index.html", "from inside")
    url = tools.run_server("python3 -m http.server -d /home/user/served 8000", 8000)
    equal(open_port(url), "from inside")
    equal(tools.get_public_url(8000), url)


@feature("run code")
def run_code() -> None:
    assert "42" in tools.run_python_code("x = 6; print('log'); x * 7")
    assert "ZeroDivisionError" in tools.run_python_code("x / 0")
    tools.run_python_code("import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show()")
    assert tools.download_png_result(0).images


@feature("kill")
def kill() -> None:
    gone = tools.sandbox.sandbox_id
    assert "success" in tools.shutdown_sandbox()
    equal(Sandbox.kill(gone), False)


no_call("PTY", "connect", "pause")
main()

"""What people do with a code interpreter, through the unmodified client."""

import base64
import concurrent.futures
import time

import httpx
import pytest
from e2b import TimeoutException
from e2b_code_interpreter import Sandbox

from support.waiting import eventually

pytestmark = pytest.mark.timeout(1500)

PLOT = """
import pandas as pd, matplotlib.pyplot as plt
frame = pd.DataFrame({"month": [1, 2, 3, 4], "sales": [10.0, 12.5, 9.0, 15.0]})
plt.plot(frame["month"], frame["sales"], label="sales")
plt.title("Sales"); plt.xlabel("Month"); plt.ylabel("Amount (EUR)")
plt.show()
frame
"""


def test_the_build_that_the_start_began_is_the_one_that_is_used(server, box):
    lines = server.log.read_text().splitlines()
    begun = [line for line in lines if "building a template of the server" in line and "code-interpreter-v1" in line]
    assert len(begun) == 1, begun


def test_the_last_expression_is_the_result_and_state_lives_between_calls(box):
    assert box.run_code("x = 41").text is None
    assert box.run_code("x + 1").text == "42"


def test_a_plot_comes_as_a_picture_and_as_data(box):
    execution = box.run_code(PLOT)
    assert execution.error is None
    figure, frame = execution.results
    assert base64.b64decode(figure.png).startswith(b"\x89PNG")
    assert figure.chart.type.value == "line"
    assert (figure.chart.title, figure.chart.y_unit) == ("Sales", "EUR")
    assert [list(point) for point in figure.chart.elements[0].points][1] == [2, 12.5]
    assert frame.data["sales"] == [10.0, 12.5, 9.0, 15.0] and frame.is_main_result


def test_output_streams_while_the_code_runs(box):
    seen = []
    box.run_code(
        "import time\nfor i in range(3): print(i, flush=True); time.sleep(1)",
        on_stdout=lambda message: seen.append((time.monotonic(), message.line)),
    )
    assert "".join(line for _, line in seen) == "0\n1\n2\n"
    assert seen[-1][0] - seen[0][0] > 0.5, "all of it came at the end"


def test_an_error_has_its_name_and_where(box):
    error = box.run_code("def broken():\n    1 / 0\nbroken()").error
    assert error.name == "ZeroDivisionError" and "broken" in error.traceback


def test_contexts_are_apart(box):
    one, other = box.create_code_context(), box.create_code_context(cwd="/tmp")
    box.run_code("x = 'one'", context=one)
    assert box.run_code("x", context=other).error.name == "NameError"
    assert box.run_code("import os; os.getcwd()", context=other).text == "/tmp"
    assert box.run_code("x", context=one).text == "one"
    box.restart_code_context(one)
    assert box.run_code("x", context=one).error.name == "NameError"


@pytest.mark.parametrize(
    ("language", "code", "text"),
    [
        ("javascript", "const answer = await Promise.resolve(42); answer", "42"),
        ("typescript", "const n: number = 42; n", "42"),
        ("java", "int n = 42; n", "42"),
    ],
)
def test_other_languages_give_results(box, language, code, text):
    execution = box.run_code(code, language=language)
    assert execution.error is None and execution.text == text


def test_r_shows_values_as_it_does(box):
    execution = box.run_code("n <- 42; n", language="r")
    assert execution.error is None and [each.text for each in execution.results] == ["[1] 42"]


def test_languages_that_nobody_uses_have_no_process(box):
    running = box.commands.run("ps -eo comm=").stdout.split()
    assert "python3" in running and not {"R", "java", "node"} & set(running), running


def test_bash_keeps_its_state(box):
    box.run_code("cd /tmp; thing=42", language="bash")
    execution = box.run_code("echo $thing in $PWD", language="bash")
    assert "".join(execution.logs.stdout) == "42 in /tmp\n"


def test_variables_survive_a_pause(server, box):
    box.run_code("import numpy; grid = numpy.arange(6).reshape(2, 3)")
    box.pause()
    again = Sandbox.connect(box.sandbox_id, **server.sdk)
    assert again.run_code("int(grid.sum())").text == "15"


def test_a_killed_server_does_not_cost_the_kernel(server, box):
    """Not even in the middle of a run."""
    box.run_code("x = 1")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        ticking = "import time\nfor i in range(30): x += 1; print(x, flush=True); time.sleep(0.1)"
        seen = []
        run = pool.submit(lambda: box.run_code(ticking, on_stdout=seen.append))
        eventually(lambda: seen, within=30, what="the run has begun")
        server.kill9()
        with pytest.raises(Exception):
            run.result(60)
    server.start()
    assert int(box.run_code("x").text) > 1


def test_an_endless_loop_ends_with_the_clients_patience_and_the_context_goes_on(box):
    box.run_code("x = 'kept'")
    with pytest.raises((TimeoutException, httpx.TimeoutException)):
        box.run_code("while True: pass", timeout=2)
    assert box.run_code("x", timeout=30).text == "kept"


def test_a_memory_bomb_costs_the_kernel_and_not_the_sandbox(box):
    execution = box.run_code("hog = bytearray(64 << 30)\nblocks = []\nwhile True: blocks.append(bytearray(64 << 20))")
    assert execution.error is not None
    assert box.run_code("1 + 1", timeout=60).text == "2"
    assert box.commands.run("echo here").stdout == "here\n"
    execution = box.run_code("blocks = []\nwhile True: blocks.append(b'x' * (64 << 20))", timeout=120)
    assert "memory" in f"{execution.error.name} {execution.error.value}".lower()
    assert box.run_code("1 + 1", timeout=60).text == "2"


def test_a_hundred_megabytes_of_output_stream_with_bounded_memory(box):
    total = 0

    def count(message):
        nonlocal total
        total += len(message.line)

    before = server_memory(box)
    box.run_code("line = 'x' * 1023\nfor i in range(100 * 1024): print(line)", on_stdout=count, timeout=300)
    assert total == 100 << 20
    assert server_memory(box) - before < 64 << 20, "the interpreter keeps what it has sent"


def server_memory(box):
    pid = box.commands.run("pgrep -x soulbox-interpr | tail -1", user="root").stdout.strip()
    status = box.commands.run(f"grep VmRSS /proc/{pid}/status", user="root").stdout
    return int(status.split()[1]) << 10


def test_environments_are_the_sandboxes_and_the_calls(make):
    box = make(envs={"WHO": "sandbox"})
    ask = "import os; os.environ.get('WHO')"
    assert box.run_code(ask).text == "sandbox"
    assert box.run_code(ask, envs={"WHO": "call"}).text == "call"
    assert box.run_code(ask).text == "sandbox"


def test_a_private_sandbox_asks_for_its_token(server, make):
    box = make(network={"allow_public_traffic": False})
    assert box.run_code("1 + 1").text == "2"
    headers = {"E2b-Sandbox-Id": box.sandbox_id, "E2b-Sandbox-Port": "49999"}
    assert httpx.get(f"{server.url}/health", headers=headers).status_code == 403

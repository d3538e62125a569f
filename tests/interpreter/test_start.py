"""What a sandbox of the interpreter does when it starts, and what it leaves for later.

Waiting sandboxes have everything loaded before a test sees them. So that the time before can be seen,
a second interpreter is started inside of one, whose pandas is loaded when the test says so.
"""

import base64
import json

import httpx
import pytest

from support.waiting import eventually

pytestmark = pytest.mark.timeout(1500)

PORT = 50123
FILES = "/tmp/second"
# In the zygote, which loads libraries for later kernels: waits, or breaks. In a kernel, which has a
# session of its own: gives way to the real one.
PANDAS = """
import os, sys, time
here = os.path.dirname(__file__)
if os.getsid(0) == os.getpid():
    sys.path.remove(here)
    del sys.modules["pandas"]
    import pandas
else:
    while not os.path.exists(here + "/go"):
        time.sleep(0.01)
    {then}
"""
LOADED = "import sys; ['pandas' in sys.modules, 'matplotlib' in sys.modules]"
PLOT = """
import pandas as pd, matplotlib.pyplot as plt
plt.plot([1, 2, 3], [10.0, 12.5, 9.0]); plt.title("Sales"); plt.show()
pd.DataFrame({"sales": [10.0, 12.5]})
"""


class Second:
    """The second interpreter of a sandbox, over the same routes as the first."""

    def __init__(self, server, box, then="pass"):
        self.box = box
        self.headers = {"E2b-Sandbox-Id": box.sandbox_id, "E2b-Sandbox-Port": str(PORT)}
        self.client = httpx.Client(base_url=server.url, headers=self.headers, timeout=60)
        box.files.write(f"{FILES}/pandas.py", PANDAS.format(then=then), user="root")
        box.commands.run(
            f"PYTHONPATH={FILES} /usr/lib/soulbox/soulbox-interpreter --port {PORT} --state {FILES}/state",
            user="root", background=True, timeout=0,
        )  # fmt: skip
        eventually(lambda: self.client.get("/health").status_code == 200, within=60)

    def run(self, code, context=None):
        answer = self.client.post("/execute", json={"code": code, "context_id": context})
        assert answer.status_code == 200, answer.text
        events = [json.loads(line) for line in answer.text.splitlines()]
        assert not [each for each in events if each["type"] == "error"], events
        return [each for each in events if each["type"] == "result"]

    def in_a_new_context(self, code):
        context = self.client.post("/contexts", json={}).json()["id"]
        try:
            return self.run(code, context)
        finally:
            self.client.delete(f"/contexts/{context}")

    def kernels(self):
        return self.box.commands.run(f"ls {FILES}/state/kernels", user="root").stdout.split()

    def let_go(self):
        self.box.files.write(f"{FILES}/go", "", user="root")


def test_the_first_cells_do_not_wait_and_later_contexts_have_the_libraries(server, box):
    second = Second(server, box)
    assert second.run(LOADED)[0]["json"] == [False, False]
    figure, frame = second.run(PLOT)
    assert base64.b64decode(figure["png"]).startswith(b"\x89PNG")
    assert (figure["chart"]["type"], figure["chart"]["title"]) == ("line", "Sales")
    assert frame["data"] == {"sales": [10.0, 12.5]} and frame["is_main_result"]
    assert second.in_a_new_context(LOADED)[0]["json"] == [False, False]
    second.let_go()
    eventually(lambda: second.in_a_new_context(LOADED)[0]["json"] == [True, True], within=60)
    # What has run something is left alone.
    assert second.run("len(pd.DataFrame([1, 2]))")[0]["text"] == "2"


def test_an_unused_context_gets_the_libraries_and_keeps_its_id(server, box):
    second = Second(server, box)
    contexts, before = second.client.get("/contexts").json(), second.kernels()
    second.let_go()
    eventually(lambda: len(now := second.kernels()) == 1 and now != before, within=60)
    assert second.client.get("/contexts").json() == contexts
    assert second.run(LOADED)[0]["json"] == [True, True]


@pytest.mark.parametrize("then", ["raise RuntimeError", "sys.exit(3)", "os.abort()"])
def test_a_library_that_cannot_be_loaded_leaves_a_kernel_that_works(server, box, then):
    second = Second(server, box, then=f"open(here + '/tried', 'w').close(); {then}")
    second.let_go()
    eventually(lambda: box.files.exists(f"{FILES}/tried", user="root"), within=60)
    assert second.run("1 + 1")[0]["text"] == "2"
    assert second.in_a_new_context(PLOT)[1]["data"] == {"sales": [10.0, 12.5]}


def test_a_sandbox_that_waited_has_the_libraries(make):
    def waited():
        box = make()
        found = box.run_code(LOADED).results[0].json
        box.kill()
        return found == [True, True]

    eventually(waited, within=120, every=3)


def test_a_start_compiles_nothing_and_lists_no_fonts(box):
    box.run_code("import matplotlib.pyplot")
    made = box.commands.run(
        "since=$(( $(date +%s) - $(ps -o etimes= -p 1) - 1 ));"
        " find /usr /root /home -xdev -newermt @$since \\( -name '*.pyc' -o -name 'fontlist*' \\)",
        user="root",
    )
    assert made.stdout == ""

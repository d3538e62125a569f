"""SoulBox's own: code in any installed language, in any sandbox, one piece or many in a call."""

import pytest
from e2b import Sandbox

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def plain(scratch):
    """A sandbox of `base`: no interpreter in it."""
    from support.server import Server

    server = Server(scratch / "execute").start()
    box = Sandbox.create(timeout=300, **server.sdk)
    yield server, box
    box.kill()
    server.finish()


@pytest.fixture
def execute(plain):
    server, box = plain

    def execute(body, status=200):
        with server.api() as api:
            answer = api.post(f"/v1/sandboxes/{box.sandbox_id}/execute", json=body, timeout=120)
        assert answer.status_code == status, answer.text
        return answer.json()

    return execute


def test_a_script_gets_its_input_and_arguments(execute):
    code = "import sys; print(sys.argv[1:], sys.stdin.read()); sys.exit(3)"
    done = execute({"language": "Python", "code": code, "args": ["a b", "$c"], "stdin": "in"})
    assert done["language"] == "python" and "compile" not in done
    assert done["run"]["stdout"] == "['a b', '$c'] in\n"
    assert done["run"]["exit_code"] == 3


def test_the_installed_languages_are_listed(plain):
    server, box = plain
    with server.api() as api:
        languages = api.get(f"/v1/sandboxes/{box.sandbox_id}/languages").json()["languages"]
    assert {"python", "bash", "sh"} <= set(languages)


def test_what_the_compiler_says_is_apart(plain, execute):
    server, box = plain
    if box.commands.run("command -v cc || true").stdout == "":
        pytest.skip("this machine has no C compiler, so its sandboxes have none")
    broken = execute({"language": "c", "code": "int main( { }"})
    assert "run" not in broken and "error" in broken["compile"]["stderr"]
    good = execute({"language": "c", "code": '#include <stdio.h>\nint main(){puts("hi");}'})
    assert good["compile"]["exit_code"] == 0 and good["run"]["stdout"] == "hi\n"


def test_time_and_output_are_bounded(execute):
    late = execute({"language": "bash", "code": "echo early; sleep 60 & sleep 60", "timeout_ms": 700})
    assert late["run"]["timed_out"] and late["run"]["stdout"] == "early\n"
    long = execute({"language": "sh", "code": "yes | head -c 100000", "max_output_bytes": 1000})
    assert long["run"]["truncated"] and len(long["run"]["stdout"]) == 1000


def test_a_batch_keeps_its_order_and_one_failure_costs_only_itself(execute):
    executions = [
        {"language": "sh", "code": f"sleep 0.{9 - i}; echo {i}"} for i in range(3)
    ] + [{"language": "klingon", "code": ""}]
    results = execute({"executions": executions, "parallel": 4})["results"]
    assert [each["run"]["stdout"] for each in results[:3]] == ["0\n", "1\n", "2\n"]
    assert results[3]["error"]["error_code"] == "unknown_language"


def test_nothing_of_an_execution_is_left(plain, execute):
    _, box = plain
    execute({"language": "sh", "code": "echo hi"})

    from support.waiting import eventually

    eventually(lambda: box.commands.run("ls -d /tmp/soulbox-run-* 2>/dev/null | wc -l").stdout == "0\n")


def test_a_language_that_is_not_installed_is_named_with_those_that_are(plain, execute):
    answer = execute({"language": "haskell", "code": "main = pure ()"}, status=400)
    assert answer["error_code"] == "language_not_installed" and "python" in answer["message"]


def test_other_tenants_and_typos_get_clear_answers(plain, execute):
    server, box = plain
    assert "timeout" in execute({"language": "sh", "code": "", "timeout": 5}, status=400)["message"]
    with server.api(key="e2b_" + "0" * 40) as api:
        answer = api.post(f"/v1/sandboxes/{box.sandbox_id}/execute", json={"language": "sh", "code": ""})
    assert answer.status_code == 401

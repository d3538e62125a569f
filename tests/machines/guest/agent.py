"""Runs checks for the tests, which ask by lines of JSON and are answered by such lines.

Loading the SDK takes ten seconds under emulation: it is done once, and each check runs in a fork.
"""

import json
import os
import runpy
import shlex
import sys
import tempfile
from pathlib import Path

import e2b  # noqa: F401

HERE = Path(__file__).parent


def environment_of(data: str) -> dict[str, str]:
    """What `. DATA/env` sets."""
    file, found = Path(data) / "env", {}
    for line in file.read_text().splitlines() if file.exists() else []:
        words = shlex.split(line, comments=True)
        if len(words) == 2 and words[0] == "export":
            name, _, value = words[1].partition("=")
            found[name] = value
    return found


def run(script: str, arguments: list[str], data: str) -> tuple[int, str, str]:
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        pid = os.fork()
        if pid == 0:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            os.environ.update(environment_of(data))
            sys.argv = [script, *arguments]
            sys.path.insert(0, str(HERE))
            code = 1
            try:
                runpy.run_path(str(HERE / f"{script}.py"), run_name="__main__")
                code = 0
            except BaseException:
                sys.excepthook(*sys.exc_info())
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read())
        return os.waitstatus_to_exitcode(status), *texts


def main() -> None:
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        code, out, err = run(asked["script"], asked["arguments"], asked["data"])
        print(json.dumps({"code": code, "out": out, "err": err}), flush=True)


main()

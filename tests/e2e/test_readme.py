"""What the READMEs show runs as it stands there: each block as a file of its own."""

import ast
import builtins
import re
import subprocess
import sys

import pytest

from support.server import PROJECT, clean_environment

READMES = ["README.md", "README.zh-CN.md"]
# Their images and packages come from the public registries, which the suites of templates and of
# the interpreter try.
FROM_REGISTRIES = ("Template()", "e2b_code_interpreter")


def blocks(language):
    found = []
    for readme in READMES:
        text = (PROJECT / readme).read_text()
        for number, block in enumerate(re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)):
            found.append(pytest.param(block, id=f"{readme}-{number}"))
    return found


def runs_here(block):
    return not any(word in block.values[0] for word in FROM_REGISTRIES)


@pytest.fixture
def leaves_no_sandbox(server):
    """Readers may look at what a block has made; other tests shall not."""

    def alive():
        with server.api() as api:
            return {each["sandboxID"] for each in api.get("/v2/sandboxes").json()}

    before = alive()
    yield
    with server.api() as api:
        for each in alive() - before:
            api.delete(f"/sandboxes/{each}")


def test_there_are_blocks_to_try():
    assert len(blocks("python")) == 2 * 6 and len(blocks("js")) == 2
    assert sum(map(runs_here, blocks("python"))) == 2 * 4


@pytest.mark.parametrize("block", blocks("python"))
def test_a_block_names_only_what_it_made_or_imported(block):
    nodes = list(ast.walk(ast.parse(block)))
    names = [node for node in nodes if isinstance(node, ast.Name)]
    imports = [each for node in nodes if isinstance(node, ast.Import | ast.ImportFrom) for each in node.names]
    known = {each.id for each in names if isinstance(each.ctx, ast.Store)} | {each.name for each in imports}
    used = {each.id for each in names if isinstance(each.ctx, ast.Load)}
    assert used - known - set(dir(builtins)) == set()


@pytest.mark.parametrize("block", blocks("js"))
def test_a_block_of_js_imports_what_it_uses(block):
    assert "import { Sandbox } from 'e2b'" in block


@pytest.mark.parametrize("block", [each for each in blocks("python") if runs_here(each)])
def test_a_block_runs_as_a_file_of_its_own(server, leaves_no_sandbox, block, tmp_path):
    program = tmp_path / "block.py"
    program.write_text(block)
    ran = subprocess.run(
        [sys.executable, program],
        cwd=tmp_path,
        env=clean_environment() | server.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ran.returncode, ran.stderr) == (0, "")

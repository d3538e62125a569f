"""What the pages show runs as it stands there: each block of Python as a file of its own.

Blocks that are parts of a program in `examples/` (they name it) run with it: `test_examples.py`.
"""

import ast
import builtins
import subprocess
import sys

import pytest
from docs.pages import page

from support.server import PROJECT, clean_environment

# For readers who paste: README and the guides, in both languages.
PAGES = [
    *("README.md", "docs/quickstart.md", "docs/templates.md", "docs/interpreter.md"),
    *("README.zh-CN.md", "docs/zh/quickstart.md", "docs/zh/templates.md", "docs/zh/interpreter.md", "docs/zh/names.md"),
]
# Their images and packages come from the public registries, which the suites of templates and of
# the interpreter try.
FROM_REGISTRIES = ("Template()", "e2b_code_interpreter")


def blocks(language):
    return [
        pytest.param(each.text, id=f"{name}:{each.line}")
        for name in PAGES
        for each in page(PROJECT / name).blocks
        if each.language == language and each.title is None
    ]


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
    assert {each.id.partition(":")[0] for each in blocks("python")} == set(PAGES)
    assert sum(map(runs_here, blocks("python"))) == 2 * 5 + 1 and len(blocks("js")) == 2


def test_no_page_has_a_block_that_nobody_tries():
    """A page with Python on it is one of those above, or shows parts of the examples."""
    for path in sorted((PROJECT / "docs").rglob("*.md")):
        untried = [each.line for each in page(path).blocks if each.language == "python" and each.title is None]
        assert not untried or str(path.relative_to(PROJECT)) in PAGES, (path, untried)


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

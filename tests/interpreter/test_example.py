"""The examples with the interpreter; the others are in `tests/e2e/test_examples.py`."""

import re

import pytest

from support.examples import EXAMPLES, assert_printed, run_example, shown_by

# The first test of the suite waits for the template.
pytestmark = pytest.mark.timeout(1500)


def test_the_example_runs_as_it_stands_there(server, tmp_path):
    lines = run_example(EXAMPLES / "code_interpreter.py", server, tmp_path)
    assert lines[:-1] == ["sum of y: 14", "error: ZeroDivisionError", "step 0", "step 1", "step 2"]
    assert re.fullmatch(r"picture: [1-9]\d+ characters of base64 \| chart: line", lines[-1]), lines[-1]


def test_the_tutorial_plot_data(server, tmp_path):
    (shown,) = shown_by("plot-data")
    assert_printed(run_example(EXAMPLES / "plot_data.py", server, tmp_path), shown)
    picture = (tmp_path / "temperatures.png").read_bytes()
    assert picture.startswith(b"\x89PNG\r\n") and len(picture) > 5000

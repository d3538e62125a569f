"""The chart objects of figures, by the numbers that E2B's protocol gives. Needs matplotlib 3.10."""

import datetime
import pathlib
import sys

import pytest

matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is not installed")
numpy = pytest.importorskip("numpy", reason="numpy is not installed")
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "python"))
matplotlib.use("agg")

import matplotlib.pyplot as plt  # noqa: E402
from soulbox_kernel.charts import chart_of_figure, unit_in  # noqa: E402
from soulbox_kernel.drawn import is_grid_line  # noqa: E402
from soulbox_kernel.ticks import rounded  # noqa: E402


@pytest.fixture(autouse=True)
def no_figures_left():
    yield
    plt.close("all")


def chart():
    return chart_of_figure(plt.gcf())


def test_a_blank_figure_has_no_chart():
    assert chart_of_figure(plt.figure()) is None
    plt.subplots()
    assert chart() is None


def test_a_line_has_points_labels_units_and_linear_scales():
    x = numpy.linspace(0, 2 * numpy.pi, 100)
    plt.plot(x, numpy.sin(x), label="sin")
    plt.plot(x, numpy.cos(x))
    plt.grid(True)
    plt.xlabel("Time (s)")
    plt.ylabel("Force [N]")
    plt.title("Waves")
    got = chart()
    assert (got["type"], got["title"]) == ("line", "Waves")
    assert (got["x_label"], got["x_unit"]) == ("Time (s)", "s")
    assert (got["y_label"], got["y_unit"]) == ("Force [N]", "N")
    assert (got["x_scale"], got["y_scale"]) == ("linear", "linear")
    assert [line["label"] for line in got["elements"]] == ["sin", "Line 1"]
    assert len(got["elements"][0]["points"]) == 100
    assert got["elements"][1]["points"][0] == [0.0, 1.0]
    assert all(isinstance(tick, float) for tick in got["x_ticks"])


def test_dates_are_iso_texts_and_the_scale_is_datetime():
    days = [datetime.date(2023, 9, 1) + datetime.timedelta(days=n) for n in range(100)]
    plt.plot(days, range(100))
    got = chart()
    assert got["x_scale"] == "datetime"
    assert got["elements"][0]["points"][0] == ["2023-09-01", 0]
    assert all(tick.endswith("+00:00") for tick in got["x_ticks"])


def test_numpy_dates_are_texts_to_the_second():
    days = numpy.array(["2023-09-01", "2023-09-02", "2023-09-03"], dtype="datetime64[ns]")
    plt.plot(days, [1, 2, 3])
    assert chart()["elements"][0]["points"][0][0] == "2023-09-01T00:00:00"


def test_scatter_keeps_its_labels_raw():
    plt.scatter([1, 2], [3, 4], label="a")
    plt.scatter([5], [6])
    plt.legend()
    got = chart()
    assert got["type"] == "scatter"
    assert got["elements"][0] == {"label": "a", "points": [[1.0, 3.0], [2.0, 4.0]]}
    assert got["elements"][1]["label"] == "_child1"


def test_bars_have_labels_groups_and_values():
    authors = ["A", "B", "C", "D"]
    plt.bar(authors, [100, 200, 300, 400], label="Books Sold")
    plt.xlabel("Authors")
    plt.ylabel("Number of Books Sold")
    plt.legend()
    got = chart()
    assert got["type"] == "bar"
    assert [e["label"] for e in got["elements"]] == authors
    assert [e["value"] for e in got["elements"]] == [100.0, 200.0, 300.0, 400.0]
    assert {e["group"] for e in got["elements"]} == {"Books Sold"}
    assert got["x_label"] == "Authors"
    assert "x_ticks" not in got


def test_lying_bars_swap_the_axes():
    plt.barh(["A", "B"], [1, 2])
    plt.xlabel("count")
    plt.ylabel("name")
    got = chart()
    assert (got["x_label"], got["y_label"]) == ("name", "count")
    assert got["elements"] == [
        {"label": "A", "group": "Group 0", "value": 1.0},
        {"label": "B", "group": "Group 0", "value": 2.0},
    ]


def test_a_pie_has_angles_and_radius():
    plt.pie([90, 10], labels=["big", "small"])
    got = chart()
    assert got == {
        "type": "pie",
        "title": None,
        "elements": [
            {"label": "big", "angle": 324.0, "radius": 1},
            {"label": "small", "angle": 36.0, "radius": 1},
        ],
    }


@pytest.mark.parametrize("lying", [False, True])
def test_boxes_have_quartiles_whiskers_and_outliers(lying):
    marks = [[85, 90, 78, 92, 88], [95, 84, 40, 89, 84, 90, 88, 20], [75, 82, 88, 79, 86]]
    plt.boxplot(
        marks,
        tick_labels=["Class A", "Class B", "Class C"],
        patch_artist=True,
        orientation="horizontal" if lying else "vertical",
    )
    plt.xlabel("Class")
    plt.ylabel("Marks")
    got = chart()
    assert got["type"] == "box_and_whisker"
    assert got["x_label"] == ("Marks" if lying else "Class")
    first, second, third = got["elements"]
    assert first == {
        "label": "Class A",
        "min": 78.0,
        "first_quartile": 85.0,
        "median": 88.0,
        "third_quartile": 90.0,
        "max": 92.0,
        "outliers": [],
    }
    assert sorted(second["outliers"]) == [20.0, 40.0]
    assert (third["min"], third["median"], third["max"]) == (75.0, 82.0, 88.0)


def test_several_axes_make_a_superchart():
    figure, (left, right) = plt.subplots(1, 2)
    left.plot([1, 2], [2, 4])
    right.scatter([1], [2])
    figure.suptitle("both")
    got = chart()
    assert (got["type"], got["title"]) == ("superchart", "both")
    assert [element["type"] for element in got["elements"]] == ["line", "scatter"]


def test_what_is_not_known_is_unknown_and_empty():
    plt.imshow([[1, 2], [3, 4]])
    assert chart() == {"type": "unknown", "title": None, "elements": []}


def test_log_and_categorical_scales_are_told():
    plt.plot([1, 10, 100], [1, 2, 3])
    plt.xscale("log")
    assert chart()["x_scale"] == "log"
    plt.figure()
    plt.plot(["a", "b", "c"], [1, 2, 3])
    got = chart()
    assert (got["x_scale"], got["x_tick_labels"]) == ("categorical", ["a", "b", "c"])


def test_two_points_in_a_row_are_a_grid_line():
    (flat,) = plt.plot([0, 1], [5, 5])
    (steep,) = plt.plot([0, 1], [5, 6])
    assert is_grid_line(flat) and not is_grid_line(steep)


def test_units_are_in_brackets_behind_the_label():
    assert unit_in("Time (s)") == "s"
    assert unit_in("Force [N]") == "N"
    assert unit_in("f(x)") is None
    assert unit_in("") is None


def test_rounding_takes_away_the_noise():
    assert rounded(0.1 + 0.2) == 0.3
    assert rounded(324.0000001) == 324.0
    assert rounded(0) == 0

"""Reads the data back out of a matplotlib figure: the chart objects that E2B's SDKs know.

A figure is told by what was drawn: lines, path collections, wedges, rectangles. The rules, and what is
a matter of guessing in them, are those of E2B's protocol; clients depend on the guesses too.
"""

import math
import re

from . import ticks
from .boxes import boxes_of
from .drawn import children_of, is_grid_line

# A unit stands in brackets behind the label: "Time (s)", "Force [N]".
UNIT = re.compile(r"\s\((.*?)\)|\[(.*?)\]")


def chart_of_figure(figure):
    """One chart, a superchart when there are several axes, or nothing when nothing is drawn."""
    axes = figure.get_axes()
    if not any(ax.has_data() for ax in axes):
        return None
    if len(axes) == 1:
        return chart_of_axes(axes[0])
    return {
        "type": "superchart",
        "title": figure.get_suptitle(),
        "elements": [chart_of_axes(ax) for ax in axes],
    }


def chart_of_axes(ax):
    kind = kind_of(ax)
    chart = {"type": kind, "title": ax.get_title() or None}
    if kind == "pie":
        chart["elements"] = slices_of(ax)
    elif kind == "line":
        chart.update(labels_of(ax), **scales_of(ax), elements=lines_of(ax))
    elif kind == "scatter":
        chart.update(labels_of(ax), **scales_of(ax), elements=clouds_of(ax))
    elif kind == "bar":
        elements, swapped = bars_of(ax)
        chart.update(labels_of(ax, swapped), elements=elements)
    elif kind == "box_and_whisker":
        elements, swapped = boxes_of(ax)
        chart.update(labels_of(ax, swapped), elements=elements)
    else:
        chart["elements"] = []
    return chart


def kind_of(ax):
    from matplotlib.collections import PathCollection
    from matplotlib.lines import Line2D
    from matplotlib.patches import PathPatch, Rectangle, Wedge

    drawn = children_of(ax)

    def all_are(*types):
        return all(isinstance(child, types) for child in drawn)

    if not drawn:
        return "unknown"
    if all_are(Line2D):
        return "line"
    if all_are(PathPatch, Line2D):
        return "box_and_whisker"
    drawn = [
        child for child in drawn if not (isinstance(child, Line2D) and is_grid_line(child))
    ]
    if not drawn:
        return "unknown"
    if all_are(PathCollection):
        return "scatter"
    if all_are(Wedge):
        return "pie"
    if all_are(Rectangle):
        return "bar"
    return "unknown"


def labels_of(ax, swapped=False):
    x, y = ax.get_xlabel(), ax.get_ylabel()
    if swapped:
        x, y = y, x
    return {
        "x_label": x or None,
        "y_label": y or None,
        "x_unit": unit_in(x),
        "y_unit": unit_in(y),
    }


def unit_in(label):
    found = UNIT.search(label)
    if found is None:
        return None
    return found.group(1) if found.group(1) is not None else found.group(2)


def scales_of(ax):
    return {**ticks.of_axis(ax.xaxis, "x"), **ticks.of_axis(ax.yaxis, "y")}


def lines_of(ax):
    lines = []
    for line in ax.get_lines():
        if is_grid_line(line):
            continue
        label = named(line.get_label(), "_child", "Line")
        x, y = line.get_xdata(), line.get_ydata()
        points = [[coordinate(a), coordinate(b)] for a, b in zip(x, y)]
        lines.append({"label": label, "points": points})
    return lines


def named(label, automatic, word):
    """The name that somebody gave, or a readable one in place of matplotlib's own."""
    label = str(label)
    number = label.removeprefix(automatic)
    return f"{word} {number}" if number != label and number.isdigit() else label


def clouds_of(ax):
    return [
        {
            "label": str(cloud.get_label()),
            "points": [[coordinate(x), coordinate(y)] for x, y in cloud.get_offsets()],
        }
        for cloud in ax.collections
    ]


def coordinate(value):
    """A number, or a text for what is none: dates, categories."""
    import numpy

    if isinstance(value, numpy.datetime64):
        return str(value.astype("datetime64[s]"))
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, numpy.generic):
        value = value.item()
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, (int, str)):
        return value
    try:
        number = float(value)
    except (TypeError, ValueError):
        return str(value)
    return number if math.isfinite(number) else str(number)


def bars_of(ax):
    """One element per bar. Bars of equal height are taken to lie on their side."""
    from matplotlib.container import BarContainer

    elements = []
    swapped = False
    for container in ax.containers:
        if not isinstance(container, BarContainer):
            continue
        group = named(container.get_label(), "_container", "Group")
        heights = [float(bar.get_height()) for bar in container]
        if len(set(heights)) == 1:
            swapped = not swapped
            names = ax.get_yticklabels()
            values = [float(bar.get_width()) for bar in container]
        else:
            names = ax.get_xticklabels()
            values = heights
        elements.extend(
            {"label": name.get_text(), "group": group, "value": value}
            for name, value in zip(names, values)
        )
    return elements, swapped


def slices_of(ax):
    from matplotlib.patches import Wedge

    return [
        {
            "label": wedge.get_label(),
            "angle": ticks.rounded(abs(wedge.theta2 - wedge.theta1)),
            "radius": wedge.r,
        }
        for wedge in ax.patches
        if isinstance(wedge, Wedge)
    ]

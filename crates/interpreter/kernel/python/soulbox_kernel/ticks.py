"""Axes: their ticks, what stands beside them, and their scale."""

import math

PRECISION = 8


def rounded(value):
    """To as many digits as tell values apart, so that 0.1 + 0.2 is 0.3."""
    value = float(value)
    if value == 0 or not math.isfinite(value):
        return value
    exponent = math.floor(math.log10(abs(value)))
    digits = max(1, PRECISION - exponent)
    return round(value, digits - 1 - exponent)


def of_axis(axis, name):
    import matplotlib.dates

    places = [float(place) for place in axis.get_ticklocs()]
    labels = [label.get_text() for label in axis.get_ticklabels()]
    if isinstance(axis.get_major_locator(), matplotlib.dates.DateLocator):
        moments = [moment.isoformat() for moment in matplotlib.dates.num2date(places)]
        return _named(name, moments, labels, "datetime")
    return _named(name, places, labels, scale_of(axis, places, labels))


def scale_of(axis, places, labels):
    scale = axis.get_scale()
    if scale != "linear":
        return scale
    counted = places == [float(index) for index in range(len(places))]
    if places and counted and all(label != str(i) for i, label in enumerate(labels)):
        return "categorical"
    return "linear"


def _named(name, places, labels, scale):
    return {f"{name}_ticks": places, f"{name}_tick_labels": labels, f"{name}_scale": scale}

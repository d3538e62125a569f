"""How values are shown: tables as data, figures as charts, lists and dictionaries as JSON."""

import json
import math
import sys

from IPython.core.formatters import BaseFormatter
from traitlets import ObjectName, Type, Unicode


class DataFormatter(BaseFormatter):
    format_type = Unicode("e2b/data")
    print_method = ObjectName("_repr_e2b_data_")
    _return_type = Type(dict)


class ChartFormatter(BaseFormatter):
    format_type = Unicode("e2b/chart")
    print_method = ObjectName("_repr_e2b_chart_")
    _return_type = Type(dict)

    def pop(self, typ, default=None):
        """Nothing: choosing a picture format for figures removes them from every formatter."""
        return default


def register(display):
    """Adds our formatters to a shell's. Types are named, not imported: that would load them."""
    data = DataFormatter(parent=display)
    data.for_type_by_name("pandas.core.frame", "DataFrame", table)
    chart = ChartFormatter(parent=display)
    chart.for_type_by_name("matplotlib.figure", "Figure", figure)
    display.formatters[data.format_type] = data
    display.formatters[chart.format_type] = chart
    as_json = display.formatters["application/json"]
    as_json._return_type = (dict, list)
    as_json.for_type(list, plain)
    as_json.for_type(dict, plain)
    own = [data.format_type, chart.format_type]
    display.active_types = [kind for kind in display.active_types if kind not in own] + own


def table(frame):
    """Columns by name, in order, with values that JSON has."""
    return {
        str(name): [value_of(value) for value in frame.iloc[:, position].tolist()]
        for position, name in enumerate(frame.columns)
    }


def value_of(value):
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    pandas = sys.modules.get("pandas")
    if pandas is not None and value is pandas.NaT:
        return None
    if hasattr(value, "isoformat"):
        return value.isoformat()
    wrapped = plain([value])
    return str(value) if wrapped is None else wrapped[0]


def figure(shown):
    """Never fails: a figure without a chart is still a picture."""
    try:
        from .charts import chart_of_figure

        return chart_of_figure(shown) or {}
    except Exception:
        return {}


def plain(value):
    """A list or dictionary as JSON has it, or nothing when it has something else inside."""
    try:
        return _with_orjson(value)
    except ImportError:
        pass
    except TypeError:
        return None
    try:
        return json.loads(json.dumps(value, default=_number))
    except (TypeError, ValueError, RecursionError):
        return None


def _with_orjson(value):
    import orjson

    options = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
    return orjson.loads(orjson.dumps(value, option=options))


def _number(value):
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError


def watch_matplotlib(shell):
    """Sets figures up when matplotlib is loaded, now or later, and does not load it."""
    # Loaded before there was a shell, the backend could not tell it how figures become pictures.
    backend = sys.modules.get("matplotlib_inline.backend_inline")
    if backend is not None:
        backend.configure_inline_support(shell, "module://matplotlib_inline.backend_inline")
    if "matplotlib" in sys.modules:
        configure_matplotlib()
    else:
        sys.meta_path.insert(0, _WhenLoaded("matplotlib", configure_matplotlib))


def configure_matplotlib():
    try:
        import matplotlib

        matplotlib.rcParams["font.family"] = ["sans-serif", "Noto Sans CJK JP"]
        import logging

        # A font that is not installed is no news for each and every figure.
        logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
    except Exception:
        pass


class _WhenLoaded:
    """Calls back after one module was loaded, once."""

    def __init__(self, name, then):
        self.name = name
        self.then = then

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        import importlib.util

        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            self.then()

        spec.loader.exec_module = exec_module
        return spec

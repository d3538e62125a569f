"""Leaves out of the start what a kernel behind a server never uses, and a user hardly ever.

Whoever does ask for it gets it: only the start does without.
"""

import contextlib
import sys
import types


@contextlib.contextmanager
def unavailable(name):
    """Libraries that look whether a module is there find that it is not."""
    known = sys.modules.get(name)
    sys.modules[name] = None
    try:
        yield
    finally:
        del sys.modules[name]
        if known is not None:
            sys.modules[name] = known


@contextlib.contextmanager
def later(package, module, name):
    """`package` takes `name` from its `module` when it is loaded: here, when it is first asked for.

    The terminal's shell is the case: IPython offers it by name, and everything that draws on a
    terminal comes with it, which is a third of all that a kernel loads.
    """
    full = f"{package}.{module}"
    if package in sys.modules:
        yield
        return
    stand_in = types.ModuleType(full)
    setattr(stand_in, name, None)
    sys.modules[full] = stand_in
    try:
        yield
    finally:
        del sys.modules[full]
    loaded = sys.modules.get(package)
    if loaded is None or getattr(loaded, name, stand_in) is not None:
        return
    delattr(loaded, name)

    def load(wanted):
        if wanted != name:
            raise AttributeError(f"module {package!r} has no attribute {wanted!r}")
        import importlib

        value = getattr(importlib.import_module(full), name)
        setattr(loaded, name, value)
        return value

    loaded.__getattr__ = load

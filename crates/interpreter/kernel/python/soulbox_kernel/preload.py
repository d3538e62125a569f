"""Loads what most cells want before anybody asks for it, and at nobody's expense."""

import importlib
import os
import signal
import sys
import time
import warnings

# What is not installed, or broken, is left out.
MODULES = (
    "IPython.core.completerlib",
    "IPython.extensions.storemagic",
    "tornado.platform.asyncio",
    "encodings.idna",
    "numpy",
    "pandas",
    "matplotlib",
    "matplotlib.pyplot",
    "matplotlib_inline.backend_inline",
    "PIL.Image",
    "PIL.ImageShow",
    "soulbox_kernel.charts",
)

# In processor time: whoever loads for ever is ended, and there are no libraries then.
MOST = 60.0


def load():
    os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    signal.setitimer(signal.ITIMER_PROF, MOST)
    sys.meta_path.insert(0, considerate := Considerate())
    for name in MODULES:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                importlib.import_module(name)
        except Exception as error:  # a broken package must not keep Python from starting
            print(f"zygote: {name} is not preloaded: {error}", file=sys.stderr)
    sys.meta_path.remove(considerate)
    signal.setitimer(signal.ITIMER_PROF, 0)


class Considerate:
    """A finder that finds nothing. Asked before every module, it gives way to whoever wants to run.

    Priorities would only count among the processes of this sandbox: others', which start at the same
    time, are to be spared as well. Time in which this process did not run is time in which somebody
    else did, or in which the disk was busy.
    """

    # Three times as long as it had to wait: then at most a quarter of its share is taken.
    MORE = 3
    LONGEST = 0.2

    def __init__(self):
        self.last = self.not_running()

    @staticmethod
    def not_running():
        return time.monotonic() - time.thread_time()

    def find_spec(self, name, path=None, target=None):
        waited = self.not_running() - self.last
        if waited > 0.001:
            time.sleep(min(waited * self.MORE, self.LONGEST))
            self.last = self.not_running()
        return None

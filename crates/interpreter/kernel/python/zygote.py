"""Starts the zygote: `zygote.py`, with the conversation on standard input."""

import gc
import os
import sys

# What the collector frees leaves holes in pages that the kernels would then fill, each for itself.
gc.disable()

# Nothing of a folder that somebody writes to may be mistaken for a library while they are loaded.
sys.path[:1] = []
sys.path.append(os.path.dirname(os.path.abspath(__file__)))

# In the package, because what is run as a program is compiled anew at every start.
from soulbox_kernel.zygote import main  # noqa: E402

main()

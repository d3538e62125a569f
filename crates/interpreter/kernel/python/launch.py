"""Starts one Python kernel: `launch.py CONNECTION_FILE`."""

import os
import sys

# The folder of this file is not a place for the user's imports: theirs are found from where they are.
sys.path[0] = ""
sys.path.append(os.path.dirname(os.path.abspath(__file__)))

from soulbox_kernel.app import run  # noqa: E402

run(sys.argv[1])

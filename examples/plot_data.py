"""A table goes in, questions are asked of it, and a picture with its numbers comes out.

    soulbox template build --builtin code-interpreter-v1     # once: minutes, 2 GB on disk
    pip install e2b-code-interpreter
    eval "$(sudo cat /var/lib/soulbox/env)"
    python3 examples/plot_data.py                            # writes temperatures.png here
"""

import base64
from pathlib import Path

from e2b_code_interpreter import Sandbox

TABLE = Path(__file__).with_name("plot_data.csv")
PICTURE = Path("temperatures.png")

with Sandbox.create(timeout=300) as sandbox:
    # The file goes into the sandbox: the code there sees nothing else of this machine's files.
    sandbox.files.write("temperatures.csv", TABLE.read_bytes())

    # One call loads it. The variable is there for every later call.
    loaded = sandbox.run_code("""
import pandas as pd
frame = pd.read_csv("temperatures.csv", index_col="month")
frame.shape
""")
    print("months and cities:", loaded.text)

    # A question about it: the value of the last line comes back.
    warmest = sandbox.run_code("frame.idxmax().to_dict()")
    print("warmest month:", warmest.text)

    # Code with a mistake in it is an answer too, and `frame` is still there.
    mistake = sandbox.run_code("frame.tokyo.mean()")
    if mistake.error:
        print("mistake:", mistake.error.name, "|", mistake.error.value)

    # What is drawn comes back as a picture, and as the numbers behind it.
    drawn = sandbox.run_code("""
import matplotlib.pyplot as plt
plt.plot(frame.index, frame.berlin, label="Berlin")
plt.plot(frame.index, frame.lisbon, label="Lisbon")
plt.title("Mean temperature")
plt.xlabel("month")
plt.ylabel("°C")
plt.legend()
plt.show()
""")
    if drawn.error:
        raise SystemExit(drawn.error.traceback)
    result = drawn.results[0]
    PICTURE.write_bytes(base64.b64decode(result.png))
    print("picture:", PICTURE)
    print("chart:", result.chart.type.value, "|", result.chart.title, "|", result.chart.y_label)
    for line in result.chart.elements:
        print(f"{line.label}: {len(line.points)} points, the last is {line.points[-1]}")

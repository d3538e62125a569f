"""Code in a kernel that keeps its variables: text, errors, a chart with its data.

    soulbox template build --builtin code-interpreter-v1     # once: minutes, 2 GB on disk
    pip install e2b-code-interpreter
    eval "$(sudo cat /var/lib/soulbox/env)"
    python3 examples/code_interpreter.py
"""

from e2b_code_interpreter import Sandbox

with Sandbox.create(timeout=300) as sandbox:
    # What one call defines, the next one has.
    sandbox.run_code("import pandas as pd\nframe = pd.DataFrame({'x': [1, 2, 3], 'y': [1, 4, 9]})")
    print("sum of y:", sandbox.run_code("int(frame.y.sum())").text)

    # An error is a result too: the kernel goes on.
    failed = sandbox.run_code("1 / 0").error
    print("error:", failed.name if failed else None)

    # Output while it runs, in pieces of one or more lines.
    sandbox.run_code("for i in range(3): print('step', i)", on_stdout=lambda message: print(message.line, end=""))

    # A chart is a picture and what was drawn.
    execution = sandbox.run_code("import matplotlib.pyplot as plt\nplt.plot(frame.x, frame.y)\nplt.show()")
    result = execution.results[0]
    print("picture:", len(result.png or ""), "characters of base64 | chart:", result.chart.type.value if result.chart else None)

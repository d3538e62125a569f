"""First steps: a sandbox, commands, files, a process that goes on.

    pip install e2b
    eval "$(sudo cat /var/lib/soulbox/env)"      # where the server is, and the key
    python3 examples/first_steps.py
"""

from e2b import CommandExitException, Sandbox

with Sandbox.create(timeout=120, metadata={"example": "first steps"}, envs={"GREETING": "hello"}) as sandbox:
    print("sandbox:", sandbox.sandbox_id)

    # A command runs to its end; what it said and its exit code come back.
    done = sandbox.commands.run('echo "$GREETING from $(whoami)"')
    print("said:", done.stdout.strip(), "| exit code:", done.exit_code)

    # One that fails is an exception, which has the same.
    try:
        sandbox.commands.run("echo oops >&2; exit 3")
    except CommandExitException as failed:
        print("failed:", failed.stderr.strip(), "| exit code:", failed.exit_code)

    # Files go in and out; folders are made on the way.
    sandbox.files.write("notes/today.txt", "one\ntwo\nthree\n")
    print("files:", [entry.name for entry in sandbox.files.list("notes")])
    print("lines:", sandbox.commands.run("wc -l < notes/today.txt").stdout.strip())

    # In the background: it is there until it ends, is killed, or the sandbox ends.
    counting = sandbox.commands.run("for i in 1 2 3; do echo $i; done; sleep 300", background=True)
    for stdout, _stderr, _terminal in counting:
        if stdout:
            print("counted:", stdout.split())
        if stdout and "3" in stdout:
            break
    print("killed:", counting.kill())

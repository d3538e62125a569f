"""The first lines of the quick start, as a newcomer pastes them."""

from e2b import Sandbox

with Sandbox.create(timeout=300, metadata={"for": "readme"}) as sandbox:
    assert sandbox.commands.run("python3 --version").stdout.startswith("Python 3.")
    sandbox.files.write("notes/hello.txt", "hello")
    assert [each.name for each in sandbox.files.list("notes")] == ["hello.txt"]
    assert sandbox.files.read("notes/hello.txt") == "hello"
    heard: list[str] = []
    sandbox.commands.run("for i in 1 2 3; do echo $i; sleep 1; done", on_stdout=heard.append)
    assert "".join(heard) == "1\n2\n3\n", heard
    assert sandbox.commands.run("sudo id -u").stdout == "0\n"
    assert sandbox.get_info().metadata == {"for": "readme"}
    name = sandbox.sandbox_id

assert name not in [each.sandbox_id for each in Sandbox.list().next_items()]

"""litellm: `litellm.sandbox`, with an HTTP client of its own instead of the SDK."""

import os

from litellm.sandbox.main import acode_interpreter_tool, acreate_sandbox, adelete_sandbox, arun_code

from features import DOMAIN_MODE, NotOffered, equal, feature, main, no_call

API = f"https://api.{os.environ['E2B_DOMAIN']}" if DOMAIN_MODE else os.environ["E2B_API_URL"]
container = None


@feature("create")
async def create() -> None:
    global container
    container = await acreate_sandbox("e2b", timeout=120, api_base=API, metadata={"made": "by"})


@feature("run code")
async def run_code() -> None:
    if not DOMAIN_MODE:
        raise NotOffered("`E2B_DOMAIN` only: it always goes to `https://49999-<id>.<domain>`, with E2B too")
    told = await arun_code("e2b", container, "x = 6; print('log'); x * 7")
    equal((told.stdout, told.results[0]["text"]), ("log\n", "42"))
    equal((await arun_code("e2b", container, "x / 0")).error["name"], "ZeroDivisionError")
    equal((await acode_interpreter_tool("e2b", "print(1)", api_base=API)).stdout, "1\n")


@feature("kill")
async def kill() -> None:
    equal(await adelete_sandbox("e2b", container, api_base=API), True)
    equal(await adelete_sandbox("e2b", container, api_base=API), False)


no_call("commands", "failing command", "files", "PTY", "ports", "connect", "pause")
main()

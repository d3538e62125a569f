"""Runs a command beside a server of its own, with that server's TLS environment.

The plain mode's variables come along as PLAIN_*. With `--registry` first, Docker Hub's names lead to
a registry beside it, whose own name is in REGISTRY.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.images.catalogue import publish  # noqa: E402
from support.images.registry import Registry  # noqa: E402
from support.server import Server, clean_environment  # noqa: E402
from support.turns import turn  # noqa: E402


def main() -> int:
    scratch = Path(tempfile.mkdtemp(prefix="soulbox-test-"))
    command, registry, extra, told = sys.argv[1:], None, [], {}
    if command[0] == "--registry":
        command.pop(0)
        registry = Registry(scratch / "registry")
        extra = ["--registry-allow", registry.name, "--registry-mirror", f"docker.io={registry.url}"]
        told = {"REGISTRY": registry.name}
    server = Server(scratch / "data", extra=extra)
    try:
        if registry:
            publish(registry)
        server.start()
        plain = {f"PLAIN_{name}": value for name, value in server.env.items()}
        told |= {"SOULBOX_DATA": str(server.data), "SOULBOX_URL": server.url}
        # By names, as where there is a wildcard record: an address would win over them.
        addresses = {"E2B_API_URL", "E2B_SANDBOX_URL", "E2B_VOLUME_API_URL"}
        tls = {name: value for name, value in server.env_tls.items() if name not in addresses}
        environment = clean_environment() | tls | plain | told
        return subprocess.run(command, env=environment).returncode
    finally:
        server.finish()
        if registry:
            registry.close()
        if os.environ.get("SOULBOX_TEST_KEEP") is None:
            shutil.rmtree(scratch, ignore_errors=True)


# Whoever ends this ends the server with it.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
with turn.taken():
    code = main()
sys.exit(code)

"""Runs a command beside a server of its own, with that server's TLS environment.

The plain mode's variables come along as PLAIN_*.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.server import Server, clean_environment  # noqa: E402


def main() -> int:
    scratch = Path(tempfile.mkdtemp(prefix="soulbox-test-"))
    server = Server(scratch / "data")
    try:
        server.start()
        plain = {f"PLAIN_{name}": value for name, value in server.env.items()}
        extra = {"SOULBOX_DATA": str(server.data), "SOULBOX_URL": server.url}
        environment = clean_environment() | server.env_tls | plain | extra
        return subprocess.run(sys.argv[1:], env=environment).returncode
    finally:
        server.finish()
        if os.environ.get("SOULBOX_TEST_KEEP") is None:
            shutil.rmtree(scratch, ignore_errors=True)


sys.exit(main())

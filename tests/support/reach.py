"""What a sandbox reaches."""

CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 3).close()
    print("open")
except OSError as error:
    print("closed", error)
"""


def reaches(sandbox, address, port):
    sandbox.files.write("/tmp/connect.py", CONNECT)
    out = sandbox.commands.run(f"python3 /tmp/connect.py '{address}' {port}", timeout=20).stdout
    return out.startswith("open")

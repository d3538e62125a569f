"""The program on a real terminal."""

import fcntl
import os
import pty
import select
import struct
import termios
import time

from support.server import binary, clean_environment
from support.waiting import eventually


class Screen:
    def __init__(self, server, *words):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                environment = clean_environment() | server.env | {"TERM": "xterm-256color"}
                os.execve(str(binary()), [str(binary()), *words], environment)
            finally:
                os._exit(99)
        self.text = ""

    def resize(self, rows, cols):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def type(self, text):
        os.write(self.fd, text.encode())

    def read(self):
        while select.select([self.fd], [], [], 0.05)[0]:
            try:
                data = os.read(self.fd, 65536)
            except OSError:
                return
            if not data:
                return
            self.text += data.decode(errors="replace")

    def shows(self, wanted):
        def seen():
            self.read()
            return wanted in self.text

        eventually(seen, what=f"{wanted!r} on the screen", within=20)

    def exit_code(self):
        end = time.monotonic() + 20
        while time.monotonic() < end:
            self.read()
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)
        raise AssertionError(f"did not end; screen: {self.text!r}")

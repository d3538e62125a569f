"""Loads what every Python kernel needs, then forks a kernel for each line that it reads.

The conversation is on standard input, a socket; crates/interpreter/src/kernel/zygote.rs is the other
end and says what the lines are. The forked kernels share the memory of what was loaded here.

The libraries that most cells want take longer to load than everything else. Nobody waits for them:
once all is quiet, a copy of this process, its successor, loads them and then takes the conversation
over. Until then kernels come from here and load what their code imports. A successor that fails is
no loss but of time.
"""

import contextlib
import ctypes
import gc
import json
import os
import random
import select
import signal
import socket
import sys
import time
import traceback

from . import app, preload

PR_SET_PDEATHSIG = 1
# Without a request for so long, whoever waited for a first kernel has it.
QUIET = 1.0
# Where requests never end, the libraries are wanted all the more.
LATEST = 5.0


class Zygote:
    def __init__(self, line_socket):
        self.socket = line_socket
        # Whose requests are answered here; the successor's, later on.
        self.answers = True
        self.pending = b""
        self.children = set()
        self.successor = None
        self.wake_read, self.wake_write = os.pipe()
        os.set_blocking(self.wake_read, False)
        os.set_blocking(self.wake_write, False)
        signal.set_wakeup_fd(self.wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # Ctrl-C is meant for the kernels.
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def tell(self, **line):
        self.socket.sendall(json.dumps(line).encode() + b"\n")

    def serve(self, preloads):
        """Until the conversation ends. One that preloads has a successor once all is quiet."""
        latest = time.monotonic() + LATEST
        due = time.monotonic() + QUIET if preloads else None
        while True:
            sources = [self.wake_read]
            if self.answers:
                sources.append(self.socket)
            if self.successor is not None and self.answers:
                sources.append(self.successor.line)
            rest = None if due is None else max(0, due - time.monotonic())
            readable, _, _ = select.select(sources, [], [], rest)
            if due is not None and time.monotonic() >= due:
                due = None
                self.successor = Successor(self)
            if self.wake_read in readable:
                with contextlib.suppress(BlockingIOError):
                    os.read(self.wake_read, 4096)
                self.reap()
                if self.successor is None and not self.answers:
                    # Its kernels have ended with it. The other end sees that the conversation is over.
                    return
            if self.socket in readable:
                received = self.socket.recv(65536)
                if not received:
                    return
                *lines, self.pending = (self.pending + received).split(b"\n")
                for line in lines:
                    self.fork(json.loads(line))
                if due is not None:
                    due = min(time.monotonic() + QUIET, latest)
            if self.successor is not None and self.answers and self.successor.line in readable:
                # Half a line that was read here is nothing that it could answer.
                if not self.pending and self.successor.hand_over():
                    self.answers = False

    def fork(self, request):
        pid = self.fork_into(lambda: self.become_kernel(request))
        self.children.add(pid)
        self.tell(started=pid)

    def fork_into(self, life):
        """A process that lives this life, and not longer than this one."""
        parent = os.getpid()
        pid = os.fork()
        if pid:
            return pid
        status = 1
        try:
            # Nobody could tell of its end.
            ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            signal.set_wakeup_fd(-1)
            os.close(self.wake_read)
            os.close(self.wake_write)
            if os.getppid() == parent:
                life()
                status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1 if end.code else 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)

    def become_kernel(self, request):
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self.socket.close()
        if self.successor is not None:
            self.successor.line.close()
        gc.enable()
        os.setsid()
        os.chdir(request["cwd"])
        sys.path.insert(0, "")
        # Forked kernels must not all draw the same random numbers.
        random.seed()
        if "numpy" in sys.modules:
            with contextlib.suppress(Exception):
                sys.modules["numpy"].random.seed()
        app.run(request["connection_file"])

    def reap(self):
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            if ended.si_pid in self.children:
                # While it is a zombie, its group's number is nobody else's.
                with contextlib.suppress(OSError):
                    os.killpg(ended.si_pid, signal.SIGKILL)
            _, status = os.waitpid(ended.si_pid, 0)
            code = os.waitstatus_to_exitcode(status)
            if self.successor is not None and ended.si_pid == self.successor.pid:
                if self.answers:
                    print(f"zygote: nothing is preloaded, loading ended with {code}", file=sys.stderr)
                self.successor.line.close()
                self.successor = None
                continue
            self.children.discard(ended.si_pid)
            if code < 0:
                self.tell(exited=ended.si_pid, signal=-code)
            else:
                self.tell(exited=ended.si_pid, code=code)


class Successor:
    """A copy of the zygote that loads the libraries. It says when it has, and is told when to begin."""

    def __init__(self, zygote):
        self.line, theirs = socket.socketpair()
        self.pid = zygote.fork_into(lambda: self.live(zygote.socket, theirs))
        theirs.close()

    def live(self, line_socket, line):
        self.line.close()
        preload.load()
        gc.freeze()
        line.sendall(b".")
        if line.recv(1):
            line.close()
            zygote = Zygote(line_socket)
            zygote.tell(preloaded=True)
            zygote.serve(preloads=False)

    def hand_over(self):
        """Whether it answers from now on; one that has ended does not."""
        try:
            if self.line.recv(1):
                self.line.sendall(b".")
                return True
        except OSError:
            pass
        return False


def main():
    line_socket = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.argv = ["kernel"]
    gc.freeze()  # the collector would otherwise write to every shared page
    zygote = Zygote(line_socket)
    zygote.tell(ready=True)
    zygote.serve(preloads=True)

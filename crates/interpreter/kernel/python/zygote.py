"""Loads what every Python kernel needs, then forks a kernel for each line that it reads.

The conversation is on standard input, a socket; crates/interpreter/src/kernel/zygote.rs is the other
end and says what the lines are. The forked kernels share the memory of what was loaded here.
"""

import ctypes
import gc
import json
import os
import select
import signal
import socket
import sys
import traceback

PR_SET_PDEATHSIG = 1

# Loaded before the first fork. What is not installed is left out.
PRELOADED = (
    "numpy",
    "pandas",
    "matplotlib",
    "matplotlib.pyplot",
    "matplotlib_inline.backend_inline",
    "PIL.Image",
    "PIL.ImageShow",
    "IPython.core.completer",
    "IPython.core.completerlib",
    "IPython.core.debugger",
    "IPython.core.logger",
    "IPython.core.oinspect",
    "IPython.extensions.storemagic",
    "ipykernel.ipkernel",
    "ipykernel.zmqshell",
    "tornado.platform.asyncio",
    "orjson",
    "encodings.idna",
    "encodings.latin_1",
)


def preload():
    import importlib
    import warnings

    os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    for name in PRELOADED:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                importlib.import_module(name)
        except Exception as error:  # a broken package must not keep Python from starting
            print(f"zygote: {name} is not preloaded: {error}", file=sys.stderr)


class Zygote:
    def __init__(self, line_socket):
        self.socket = line_socket
        self.children = set()

    def tell(self, **line):
        self.socket.sendall(json.dumps(line).encode() + b"\n")

    def serve(self):
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_read, False)
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # Ctrl-C is meant for the kernels.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.tell(ready=True)
        pending = b""
        while True:
            readable, _, _ = select.select([self.socket, wake_read], [], [])
            if wake_read in readable:
                try:
                    os.read(wake_read, 4096)
                except BlockingIOError:
                    pass
                self.reap()
            if self.socket in readable:
                received = self.socket.recv(65536)
                if not received:
                    return
                *lines, pending = (pending + received).split(b"\n")
                for line in lines:
                    self.fork(json.loads(line), (wake_read, wake_write))

    def fork(self, request, inherited):
        parent = os.getpid()
        pid = os.fork()
        if pid:
            self.children.add(pid)
            self.tell(started=pid)
            return
        status = 1
        try:
            self.become_kernel(request, parent, inherited)
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1 if end.code else 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)

    def become_kernel(self, request, parent, inherited):
        # The kernel must not outlive the one who can tell of its end.
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            return
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self.socket.close()
        for descriptor in inherited:
            os.close(descriptor)
        gc.enable()
        os.setsid()
        os.chdir(request["cwd"])
        # Forked kernels must not all draw the same random numbers.
        import random

        random.seed()
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            numpy.random.seed()

        from soulbox_kernel.app import run

        run(request["connection_file"])

    def reap(self):
        while self.children:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            # While it is a zombie, its group's number is nobody else's.
            try:
                os.killpg(ended.si_pid, signal.SIGKILL)
            except OSError:
                pass
            _, status = os.waitpid(ended.si_pid, 0)
            self.children.discard(ended.si_pid)
            code = os.waitstatus_to_exitcode(status)
            if code < 0:
                self.tell(exited=ended.si_pid, signal=-code)
            else:
                self.tell(exited=ended.si_pid, code=code)


def main():
    # What the collector frees leaves holes in pages that the kernels would then fill, each for itself.
    gc.disable()
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[0] = ""
    sys.path.append(here)
    line_socket = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    # Nothing of the current folder may be mistaken for a library while we load them.
    sys.path.pop(0)
    preload()
    import soulbox_kernel.app  # noqa: F401

    sys.path.insert(0, "")
    sys.argv = ["kernel"]
    gc.freeze()  # the collector would otherwise write to every shared page
    Zygote(line_socket).serve()


main()

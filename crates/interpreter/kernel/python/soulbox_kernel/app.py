"""The kernel's application: ipykernel with our settings, formatters and output streams."""

import contextlib
import os
import sys

import zmq
from traitlets import Type
from traitlets.config import Config

from .lean import later, unavailable

# Nobody completes names here, and there is no terminal.
with unavailable("jedi"), later("IPython", "terminal.embed", "embed"):
    from ipykernel.iostream import IOPubThread
    from ipykernel.ipkernel import IPythonKernel
    from ipykernel.kernelapp import IPKernelApp
    from ipykernel.zmqshell import ZMQInteractiveShell

    from . import formatters, images
    from .output import PatientStream

# Few: what a slow client has not taken stays in the program that makes it.
MESSAGES_AHEAD = 16


class KernelApp(IPKernelApp):
    def init_iopub(self, context):
        """As in ipykernel, but a message that there is no room for waits and is not dropped."""
        self.iopub_socket = context.socket(zmq.PUB)
        self.iopub_socket.linger = 1000
        self.iopub_socket.sndhwm = MESSAGES_AHEAD
        self.iopub_socket.setsockopt(zmq.XPUB_NODROP, 1)
        self.iopub_port = self._bind_socket(self.iopub_socket, self.iopub_port)
        self.configure_tornado_logger()
        self.iopub_thread = IOPubThread(self.iopub_socket, pipe=True)
        self.iopub_thread.start()
        self.iopub_socket = self.iopub_thread.background_socket

    def init_heartbeat(self):
        """Nobody asks: the server sees the process itself."""

    def init_gui_pylab(self):
        """The figures' backend is set when matplotlib is loaded, and not before."""


class Forgetful(dict):
    """A history that keeps nothing: whoever wants the output has it already."""

    def __missing__(self, _):
        return []

    def __setitem__(self, _, value):
        pass


class Shell(ZMQInteractiveShell):
    """Without the copy of everything ever printed or shown that IPython keeps to make notebooks of."""

    @contextlib.contextmanager
    def _tee(self, channel):
        yield

    def init_history(self):
        super().init_history()
        self.history_manager.outputs = Forgetful()


class Kernel(IPythonKernel):
    shell_class = Type(Shell)


def settings(connection_file):
    config = Config()
    app = config.KernelApp
    app.connection_file = connection_file
    app.parent_handle = 0
    app.kernel_class = Kernel
    app.outstream_class = f"{PatientStream.__module__}.{PatientStream.__name__}"
    # Messages are copied: what is sent without a copy is kept until a thread finds the time to free it.
    config.Session.copy_threshold = 1 << 40
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    config.PlainTextFormatter.max_seq_length = 0
    # Values may be looked at by other languages' clients: only the last expression is a result.
    config.InteractiveShell.ast_node_interactivity = "last_expr"
    return config


def run(connection_file):
    os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    os.environ.pop("JPY_PARENT_PID", None)
    app = KernelApp.instance(config=settings(connection_file))
    # Nobody steps through cells: the debugger would be megabytes and a tenth of a second for nothing.
    with unavailable("debugpy"):
        app.initialize(["--IPKernelApp.capture_fd_output=True"])
    shell = app.shell
    formatters.register(shell.display_formatter)
    formatters.watch_matplotlib(shell)
    images.watch_pillow()
    # Ours is not a package that the user should find in his way.
    sys.path[:] = [
        folder
        for folder in sys.path
        if folder != os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    ]
    app.start()

"""Standard streams that wait for their reader.

ipykernel keeps all that was printed until its sending thread takes it. Here whoever prints waits once
a piece is full, so that a program which prints more than its client reads is slowed down and does not
fill the memory.
"""

import os
import sys

from ipykernel.iostream import OutStream

PIECE = 256 * 1024


class PatientStream(OutStream):
    # Without an end: Ctrl-C ends the wait, and the server always reads in the end.
    flush_timeout = None

    def __init__(self, *args, **kwargs):
        self._unsent = 0
        super().__init__(*args, **kwargs)

    def write(self, string):
        if not isinstance(string, str):
            raise TypeError(f"write() argument must be str, not {type(string)}")
        if len(string) + self._unsent <= PIECE or not self._is_master_process():
            self._unsent += len(string)
            return super().write(string)
        for start in range(0, len(string), PIECE):
            piece = string[start : start + PIECE]
            self._unsent += len(piece)
            super().write(piece)
            if self._unsent >= PIECE:
                self.flush()
        return len(string)

    def _flush(self):
        self._unsent = 0
        super()._flush()

    def _watch_pipe_fd(self):
        """What programs write to the descriptor is shown; nobody reads the original stream."""
        import codecs

        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        try:
            while self._should_watch:
                received = os.read(self._fid, PIECE)
                if not received:
                    return
                self.write(decoder.decode(received))
        except Exception:
            self._exc = sys.exc_info()

"""An internet inside the machine: a web server and a name server, for the namespace they are run in.

Any name has the address that is the only argument.
"""

import http.server
import socket
import sys
import threading

ADDRESS = sys.argv[1]


class Hello(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "3")
        self.end_headers()
        self.wfile.write(b"hi\n")

    def log_message(self, *_):
        pass


def answer_names() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as names:
        names.bind((ADDRESS, 53))
        while True:
            asked, client = names.recvfrom(1500)
            end = asked.index(0, 12) + 5  # the first question: labels, type and class
            question, kind = asked[12:end], asked[end - 4 : end - 2]
            answer = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4" + socket.inet_aton(ADDRESS) if kind == b"\0\1" else b""
            head = asked[:2] + b"\x81\x80\0\1" + (b"\0\1" if answer else b"\0\0") + b"\0\0\0\0"
            names.sendto(head + question + answer, client)


threading.Thread(target=answer_names, daemon=True).start()
http.server.ThreadingHTTPServer((ADDRESS, 80), Hello).serve_forever()

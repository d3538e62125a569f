"""Programs that tests run inside a sandbox."""

HTTP_SERVER = r"""
import base64, hashlib, http.server, socketserver, sys, threading

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_): pass

    def reply(self, body, kind="text/plain"):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path.startswith("/ws"):
            return self.websocket()
        if self.path.startswith("/events"):
            return self.events()
        if self.path.startswith("/headers"):
            return self.reply(str(self.headers).encode())
        self.reply(f"{self.command} {self.path}".encode())

    do_DELETE = do_PATCH = do_GET

    def do_POST(self):
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            body = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.reply(hashlib.sha256(body).hexdigest().encode())

    def events(self):
        # The next event is only sent when the client has shown that it got the last one.
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number in range(3):
            chunk = f"data: {number}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            self.wfile.flush()
            if not seen[number].wait(20):
                return
        self.wfile.write(b"0\r\n\r\n")

    def do_PUT(self):
        seen[int(self.path.rsplit("/", 1)[1])].set()
        self.reply(b"noted")

    def websocket(self):
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.end_headers()
        self.close_connection = True
        while True:
            head = self.rfile.read(2)
            if len(head) < 2: return
            size = head[1] & 127
            if size == 126: size = int.from_bytes(self.rfile.read(2), "big")
            elif size == 127: size = int.from_bytes(self.rfile.read(8), "big")
            mask = self.rfile.read(4)
            data = bytes(b ^ mask[i % 4] for i, b in enumerate(self.rfile.read(size)))
            code = head[0] & 15
            if code == 8:
                self.wfile.write(bytes([0x88, len(data)]) + data)
                return
            out = bytes([0x80 | code])
            out += bytes([size]) if size < 126 else bytes([126]) + size.to_bytes(2, "big")
            self.wfile.write(out + data)
            self.wfile.flush()

seen = [threading.Event() for _ in range(3)]

class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

Server((sys.argv[1], int(sys.argv[2])), Handler).serve_forever()
"""


def serve_http(sandbox, address: str = "127.0.0.1", port: int = 8000):
    """Starts the server above inside; returns its command handle."""
    from support.waiting import eventually

    sandbox.files.write("/tmp/server.py", HTTP_SERVER)
    handle = sandbox.commands.run(
        f"exec python3 /tmp/server.py {address} {port}", background=True, timeout=0
    )
    eventually(
        lambda: sandbox.commands.run(
            f"curl -s -o /dev/null {address}:{port}/up && echo up || true"
        ).stdout,
        what="the server inside answers",
    )
    return handle

"""The data path: routing by header and by host, its error shapes, and what it must refuse."""

import json
import socket
import subprocess

import httpx
import pytest

from support.guest import serve_http
from support.waiting import eventually

UNKNOWN = "i" + "0" * 20


@pytest.fixture
def raw(server):
    with httpx.Client(base_url=server.url, timeout=30) as http:
        yield http


def to(sandbox_id, port):
    return {"E2b-Sandbox-Id": str(sandbox_id), "E2b-Sandbox-Port": str(port)}


def test_an_unknown_sandbox_answers_in_e2bs_words(raw):
    answer = raw.get("/", headers=to(UNKNOWN, 8000))
    assert answer.status_code == 502
    assert answer.headers["content-type"].startswith("application/json")
    assert answer.json() == {"sandboxId": UNKNOWN, "message": "The sandbox was not found", "code": 502}


def test_a_closed_port_answers_in_e2bs_words(raw, box):
    answer = raw.get("/", headers=to(box.sandbox_id, 9999))
    assert answer.status_code == 502
    assert answer.json() == {
        "sandboxId": box.sandbox_id,
        "message": "The sandbox is running but port is not open",
        "port": 9999,
        "code": 502,
    }


def test_a_browser_gets_a_page_with_the_same_status(raw):
    answer = raw.get(
        "/",
        headers=to(UNKNOWN, 8000)
        | {"User-Agent": "Mozilla/5.0 (X11) Gecko Firefox/1", "Accept": "text/html", "Sec-Fetch-Mode": "navigate"},
    )
    assert answer.status_code == 502
    assert answer.headers["content-type"].startswith("text/html")


def test_a_server_that_starts_a_moment_later_is_waited_for(raw, box):
    box.commands.run("sleep 0.4; exec python3 -m http.server 8003 >/dev/null 2>&1", background=True, timeout=0)
    eventually(lambda: raw.get("/", headers=to(box.sandbox_id, 8003)).status_code == 200)


def test_routing_by_header_reaches_any_port(raw, box):
    serve_http(box)
    assert raw.get("/x?y=z", headers=to(box.sandbox_id, 8000)).text == "GET /x?y=z"


def test_routing_by_host_works_on_the_plain_listener_too(server, raw, box):
    serve_http(box)
    host = f"8000-{box.sandbox_id}.{server.domain}"
    assert raw.get("/hosted", headers={"Host": host}).text == "GET /hosted"


@pytest.mark.parametrize(
    "headers",
    [
        {"E2b-Sandbox-Id": UNKNOWN},
        {"E2b-Sandbox-Port": "8000"},
        to("UPPER", 8000),
        to("../../etc", 8000),
        to(UNKNOWN, 0),
        to(UNKNOWN, 65536),
        to(UNKNOWN, "x"),
        to(UNKNOWN, "-1"),
        to(UNKNOWN, "80 80"),
    ],
    ids=str,
)
def test_malformed_routes_are_a_400(raw, headers):
    assert raw.get("/", headers=headers).status_code == 400


@pytest.mark.parametrize("host", ["x-{id}.{domain}", "99999-{id}.{domain}", "8000-BAD_ID.{domain}", "8000-.{domain}"])
def test_malformed_hosts_are_a_400(server, raw, host):
    name = host.format(id=UNKNOWN, domain=server.domain)
    assert raw.get("/", headers={"Host": name}).status_code == 400


CONTROL = ["init", "freeze", "unfreeze", "collapse", "fsfreeze", "fsthaw", "upgrade"]
SPELLINGS = [
    "/{}", "/{}/", "//{}", "/./{}", "/x/../{}", "/files/../{}", "/%2e/{}", "/x/%2e%2e/{}", "/%2F{}",
    "/{}?x=1", "/{}#x", "/{};x", "/{}%2f", "/{}/.", "/{}//", "///{}", "/..//{}", "/{}%00",
]  # fmt: skip


def encoded(name):
    return "".join(f"%{ord(letter):02x}" for letter in name)


@pytest.mark.parametrize("route", CONTROL)
def test_control_routes_of_envd_are_refused(server, box, route):
    token = server.api().get(f"/sandboxes/{box.sandbox_id}").json()["envdAccessToken"]
    headers = to(box.sandbox_id, 49983) | {"X-Access-Token": token}
    for name in (route, encoded(route), encoded(route).upper(), route[0] + encoded(route[1:])):
        for spelling in SPELLINGS:
            for method in ("GET", "POST", "PUT"):
                status, _, _ = send_raw(server, method, spelling.format(name), headers)
                assert status in (400, 404, 405), (method, spelling.format(name), status)
    assert box.commands.run("echo unharmed").stdout == "unharmed\n"


def test_a_refused_control_route_names_the_path(server, box):
    status, _, body = send_raw(server, "POST", "/init", to(box.sandbox_id, 49983))
    assert status == 404
    assert json.loads(body)["code"] == 404 and json.loads(body)["path"] == "/init"


def test_control_routes_are_envds_only(raw, box):
    serve_http(box)
    assert raw.get("/init", headers=to(box.sandbox_id, 8000)).text == "GET /init"


def send_raw(server, method, target, headers):
    """One request with the target exactly as given; clients would tidy it."""
    with socket.create_connection(("127.0.0.1", server.http_port), 20) as conn:
        lines = [f"{method} {target} HTTP/1.1", f"Host: 127.0.0.1:{server.http_port}", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in headers.items()] + ["Content-Length: 0", "", ""]
        conn.sendall("\r\n".join(lines).encode())
        answer = b""
        while chunk := conn.recv(65536):
            answer += chunk
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), head.decode(errors="replace"), body


def test_h2c_with_prior_knowledge_works(server, box):
    serve_http(box)
    out = subprocess.run(
        ["curl", "-sS", "--max-time", "20", "--http2-prior-knowledge", "-w", " %{http_version}",
         "-H", f"E2b-Sandbox-Id: {box.sandbox_id}", "-H", "E2b-Sandbox-Port: 8000", f"{server.url}/h2"],
        capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert out.stdout == "GET /h2 2", out.stderr


def test_an_upgrade_to_anything_becomes_a_plain_pipe(server, box):
    box.files.write(
        "/tmp/up.py",
        "import socket\n"
        "s = socket.create_server(('127.0.0.1', 8004))\n"
        "while True:\n"
        "    c, _ = s.accept()\n"
        "    while b'\\r\\n\\r\\n' not in (h := c.recv(65536)): pass\n"
        "    c.sendall(b'HTTP/1.1 101 Switching Protocols\\r\\nConnection: Upgrade\\r\\nUpgrade: echo\\r\\n\\r\\n')\n"
        "    while d := c.recv(65536): c.sendall(d[::-1])\n"
        "    c.close()\n",
    )
    box.commands.run("exec python3 /tmp/up.py", background=True, timeout=0)
    eventually(lambda: ":1F44" in box.files.read("/proc/net/tcp"))
    with socket.create_connection(("127.0.0.1", server.http_port), 20) as conn:
        conn.sendall(
            f"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nE2b-Sandbox-Id: {box.sandbox_id}\r\n"
            "E2b-Sandbox-Port: 8004\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n".encode()
        )
        head = b""
        while b"\r\n\r\n" not in head:
            head += conn.recv(4096)
        assert head.startswith(b"HTTP/1.1 101")
        conn.sendall(b"abc")
        assert conn.recv(16) == b"cba"


def test_a_stalled_client_costs_no_memory(server, box):
    """A download that nobody reads must wait in the sandbox, not in the server."""
    box.commands.run("head -c 400000000 /dev/zero > big", timeout=60)
    token = server.api().get(f"/sandboxes/{box.sandbox_id}").json()["envdAccessToken"]

    def memory():
        with open(f"/proc/{server.pid}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) // 1024

    before = memory()
    conn = socket.create_connection(("127.0.0.1", server.http_port), 20)
    try:
        conn.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        conn.sendall(
            f"GET /files?path=big HTTP/1.1\r\nHost: 127.0.0.1\r\nE2b-Sandbox-Id: {box.sandbox_id}\r\n"
            f"E2b-Sandbox-Port: 49983\r\nX-Access-Token: {token}\r\nAccept-Encoding: identity\r\n\r\n".encode()
        )
        conn.recv(1000)
        # Something else gets through meanwhile, many times over.
        for _ in range(20):
            box.commands.run("true")
        assert memory() - before < 64
    finally:
        conn.close()


def test_when_the_sandbox_dies_an_open_stream_is_cut_and_not_ended_politely(server, sync_sdk):
    sandbox = sync_sdk.create()
    serve_http(sandbox)
    with httpx.Client(base_url=server.url, timeout=30) as http:
        with http.stream("GET", "/events", headers=to(sandbox.sandbox_id, 8000)) as stream:
            lines = stream.iter_lines()
            assert next(lines) == "data: 0"
            sandbox.kill()
            with pytest.raises(httpx.TransportError):
                list(lines)


def test_hop_by_hop_headers_stay_on_their_hop(raw, box):
    serve_http(box)
    seen = raw.get(
        "/headers",
        headers=to(box.sandbox_id, 8000) | {"Connection": "keep-alive, X-Private", "X-Private": "1", "X-Kept": "2"},
    ).text.lower()
    assert "x-kept: 2" in seen
    assert "x-private" not in seen


def test_a_hundred_connections_at_once(raw, server, box):
    from concurrent.futures import ThreadPoolExecutor

    serve_http(box)
    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(lambda n: raw.get(f"/{n}", headers=to(box.sandbox_id, 8000)).text, range(200)))
    assert answers == [f"GET /{n}" for n in range(200)]


def test_cors_lets_browsers_use_the_api(raw):
    answer = raw.request(
        "OPTIONS",
        "/v2/sandboxes",
        headers={
            "Origin": "https://app.example.com",
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "x-api-key,content-type",
        },
    )
    assert answer.status_code in (200, 204)
    assert answer.headers["access-control-allow-origin"] in ("*", "https://app.example.com")
    assert "x-api-key" in answer.headers["access-control-allow-headers"].lower() or "*" in answer.headers["access-control-allow-headers"]

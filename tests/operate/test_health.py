"""`/livez` and `/readyz`: for those who restart a server, and for those who send it work."""

import signal
import sqlite3

import httpx
import pytest
from e2b import Sandbox

from support.small_disk import small_disk
from support.server import Server
from support.waiting import eventually


def ask(server, path: str) -> httpx.Response:
    return httpx.get(f"{server.admin_url}{path}", timeout=10)


def test_a_server_that_works_is_alive_and_ready(server):
    assert ask(server, "/livez").text == "ok\n"
    ready = ask(server, "/readyz")
    assert ready.status_code == 200 and ready.text.endswith("ok\n"), ready.text
    for check in ("store", "admission", "kernel", "disk", "stopping"):
        assert f"[+]{check} ok\n" in ready.text
    # They are the operator's: clients have /health.
    with server.api() as api:
        assert api.get("/health").is_success
        assert api.get("/livez").status_code == 404 and api.get("/readyz").status_code == 404


@pytest.mark.alone
def test_a_server_without_room_is_alive_and_says_why_it_is_not_ready(tmp_path):
    with small_disk(tmp_path, 700) as disk:
        server = Server(disk.path / "data", extra=["--min-free-disk-mb", "50"])
        server.log = tmp_path / "server.log"
        server.start()
        try:
            assert ask(server, "/readyz").status_code == 200
            disk.fill(leave=20 << 20)
            answer = ask(server, "/readyz")
            assert answer.status_code == 503 and answer.text.endswith("not ready\n")
            assert "[-]disk failed: " in answer.text and "MiB free" in answer.text, answer.text
            assert "[+]store ok" in answer.text
            assert ask(server, "/livez").status_code == 200, "a restart would not help"
            disk.empty()
            eventually(lambda: ask(server, "/readyz").status_code == 200)
        finally:
            disk.empty()
            server.finish()


def test_a_server_whose_database_does_not_answer_is_not_ready(own_server):
    server = own_server().start()
    # Another process has it to itself, as a tool that was left open would.
    other = sqlite3.connect(server.data / "soulbox.db", timeout=10, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    answer = ask(server, "/readyz")
    assert answer.status_code == 503 and "[-]store failed: " in answer.text, answer.text
    assert ask(server, "/livez").status_code == 200
    other.execute("ROLLBACK")
    other.close()
    eventually(lambda: ask(server, "/readyz").status_code == 200, within=20)


def test_a_server_that_stops_is_not_ready_any_more(own_server):
    server = own_server().start()
    box = Sandbox.create(timeout=60, **server.sdk)
    # Somebody who still listens keeps the server from ending at once.
    listening = box.commands.run("sleep 30", background=True)
    server.process.send_signal(signal.SIGTERM)

    def stopping() -> bool:
        answer = ask(server, "/readyz")
        return answer.status_code == 503 and "the server is stopping" in answer.text

    eventually(stopping, within=10, every=0.01)
    server.process.wait(30)
    listening.disconnect()
    server.start()

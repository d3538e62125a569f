"""Asks a server inside a sandbox for a sign of life all the time, and keeps the worst gap."""

import threading
import time

import httpx

from support.guest import serve_http


class Probe:
    """`with Probe(server, sandbox) as probe: …`, then `probe.worst` and `probe.failures`."""

    def __init__(self, server, sandbox, every: float = 0.01) -> None:
        serve_http(sandbox)
        headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "8000"}
        if sandbox.traffic_access_token:
            headers["E2b-Traffic-Access-Token"] = sandbox.traffic_access_token
        self._http = httpx.Client(base_url=server.url, headers=headers, timeout=60)
        self._every = every
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.worst = 0.0
        self.answers = 0
        self.failures: list[str] = []

    def _run(self) -> None:
        last = time.monotonic()
        while not self._stop.wait(self._every):
            try:
                answer = self._http.get("/sign")
                if answer.text != "GET /sign":
                    self.failures.append(f"{answer.status_code} {answer.text[:100]}")
            except httpx.HTTPError as error:
                self.failures.append(repr(error))
            now = time.monotonic()
            self.worst = max(self.worst, now - last)
            self.answers += 1
            last = now

    def __enter__(self) -> "Probe":
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._stop.set()
        self._thread.join(70)
        self._http.close()

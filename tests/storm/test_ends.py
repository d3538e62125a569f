"""Ends that no server saw are told as if one had."""

import os
import random

import pytest
from e2b import Sandbox

from storm.client import end_reason
from storm.victims import Struck, strike_first_process
from storm.wire import Answer
from support.waiting import eventually

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize("stop", ["politely", "killed"])
def test_a_sandbox_that_died_while_no_server_ran_is_reported_and_heard_of_as_died(own_server, stop):
    server = own_server().start()
    for name in ("one", "other"):
        Sandbox.create(timeout=300, metadata={"storm": name}, **server.sdk)
    server.terminate() if stop == "politely" else server.kill9()
    struck = Struck()
    assert strike_first_process(server, struck, random.Random(7))
    server.start()

    (died,) = struck.sandboxes
    with server.api() as api:
        answer = api.get(f"/sandboxes/{died}")
        assert end_reason(Answer(answer.status_code, {}, answer.content, 0)) == "died"
        assert "no server was watching" in answer.json()["message"]
        (heard,) = api.get(f"/events/sandboxes/{died}", params={"types": "killed"}).json()
        assert heard["eventData"]["reason"] == "died"
        assert {heard["eventData"]["sandbox_metadata"]["storm"]} == struck.names
        assert heard["eventData"]["execution"]["memory_mb"] > 0
        (left,) = api.get("/v2/sandboxes").json()
        assert left["sandboxID"] != died
        api.delete(f"/sandboxes/{left['sandboxID']}").raise_for_status()
    # Beside them are the logs of those that ended, for a day.
    left_over = lambda: [name for name in os.listdir(server.data / "ends") if name != "logs"]  # noqa: E731
    eventually(lambda: left_over() == [], within=10, what="all ends are on record")

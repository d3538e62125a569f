"""What a Python probe is made of: features in order, each told as one line of JSON.

A probe registers functions with `@feature("files")`, and ends with `main()`. They may be
coroutines; all of them run in one event loop. Those after a failed `create` are not tried.
"""

import asyncio
import inspect
import json
import os
import ssl
import signal
import sys
import time
import traceback
import urllib.error
import urllib.request
from typing import Any, Callable

# Each feature's own bound; the runner has one for the whole probe.
LIMIT = int(os.environ.get("ECOSYSTEM_FEATURE_SECONDS", "60"))
DOMAIN_MODE = os.environ.get("ECOSYSTEM_MODE") == "domain"
_features: list[tuple[str, Callable[[], Any]]] = []


class NotOffered(Exception):
    """This package or version has no such thing; the text says why."""


def feature(name: str) -> Callable:
    def register(function: Callable[[], Any]) -> Callable[[], Any]:
        _features.append((name, function))
        return function

    return register


def not_offered(reason: str, *names: str) -> None:
    def missing() -> None:
        raise NotOffered(reason)

    for name in names:
        feature(name)(missing)


def no_call(*names: str) -> None:
    not_offered("the package itself has no call for this, with E2B neither", *names)


def tell(name: str, state: str, reason: str = "", seconds: float = 0.0) -> None:
    line = {"feature": name, "state": state, "reason": reason, "seconds": round(seconds, 2)}
    print(json.dumps(line), flush=True)


def reason_of(error: BaseException) -> str:
    text = " ".join(str(error).split())
    where = [each for each in traceback.extract_tb(error.__traceback__) if "probes" in each.filename]
    line = f" (`{where[-1].line}`)" if where and not text else ""
    return f"{type(error).__name__}: {text[:300]}{line}"


def equal(found: Any, wanted: Any) -> None:
    assert found == wanted, f"{found!r} instead of {wanted!r}"


def _too_long(*_: Any) -> None:
    raise TimeoutError(f"no end within {LIMIT} s")


def _attempt(loop: asyncio.AbstractEventLoop, function: Callable[[], Any]) -> None:
    if inspect.iscoroutinefunction(function):
        loop.run_until_complete(asyncio.wait_for(function(), LIMIT))
        return
    signal.alarm(LIMIT)
    try:
        function()
    finally:
        signal.alarm(0)


def main() -> None:
    signal.signal(signal.SIGALRM, _too_long)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    created = True
    for name, function in _features:
        if not created:
            tell(name, "failed", "not tried: create failed")
            continue
        begin = time.monotonic()
        try:
            _attempt(loop, function)
            tell(name, "ok", seconds=time.monotonic() - begin)
        except NotOffered as reason:
            tell(name, "not offered", str(reason))
        except BaseException as error:  # also what libraries raise past Exception
            tell(name, "failed", reason_of(error), time.monotonic() - begin)
            traceback.print_exc(file=sys.stderr)
            created = created and name != "create"
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads and loops of libraries are of no interest any more.
    os._exit(0)


def open_port(host: str, within: float = 20.0) -> str:
    """What a server in a sandbox answers: over TLS in domain mode, else as plain HTTP of the same name.

    A package that makes a whole URL has made its choice itself.
    """
    url = host if "://" in host else f"{'https' if DOMAIN_MODE else 'http'}://{host}/"
    context = ssl.create_default_context() if url.startswith("https") else None
    end = time.monotonic() + within
    while True:
        try:
            with urllib.request.urlopen(url, timeout=10, context=context) as answer:
                return answer.read().decode()
        except (urllib.error.URLError, ConnectionError, TimeoutError) as error:
            # A certificate becomes no better by waiting.
            if time.monotonic() > end or isinstance(getattr(error, "reason", None), ssl.SSLCertVerificationError):
                raise AssertionError(f"{url}: {error}") from error
            time.sleep(0.1)  # until the server inside listens

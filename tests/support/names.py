"""Makes `*.localhost` mean 127.0.0.1 in this Python, which glibc leaves to the resolver.

Users do the same with `soulbox dns` or a wildcard record; test_host.py covers `soulbox dns` itself.
"""

import socket

_real_getaddrinfo = socket.getaddrinfo


def _getaddrinfo(host, *args, **kwargs):
    name = host.decode() if isinstance(host, bytes) else host
    if isinstance(name, str) and name.rstrip(".").endswith(".localhost"):
        host = "127.0.0.1"
    return _real_getaddrinfo(host, *args, **kwargs)


def resolve_localhost_names() -> None:
    socket.getaddrinfo = _getaddrinfo

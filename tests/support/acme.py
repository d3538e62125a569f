"""Pebble, Let's Encrypt's own small ACME server for tests, on the loopback, with a DNS that can be changed."""

import json
import shutil
import ssl
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from support.server import free_ports
from support.waiting import eventually


def need_pebble() -> None:
    for program in ["pebble", "pebble-challtestsrv"]:
        if not shutil.which(program):
            pytest.skip(f"skipped: {program} is not here (Debian: package pebble)")


@dataclass
class Pebble:
    folder: Path
    port: int
    management: int
    dns: int
    dns_management: int
    http: int  # where it asks HTTP-01's questions

    @property
    def directory(self) -> str:
        return f"https://127.0.0.1:{self.port}/dir"

    @property
    def ca(self) -> Path:
        """Of its own interface."""
        return self.folder / "ca.pem"

    def hook(self, name: str = "hook", failing: bool = False) -> Path:
        """A program that changes the DNS, and writes down how it was called."""
        add = f"curl -sf -X POST -d \"{{\\\"host\\\":\\\"$2.\\\",\\\"value\\\":\\\"$3\\\"}}\" http://127.0.0.1:{self.dns_management}/set-txt"
        remove = f"curl -sf -X POST -d \"{{\\\"host\\\":\\\"$2.\\\"}}\" http://127.0.0.1:{self.dns_management}/clear-txt"
        body = "echo 'no such zone' >&2; exit 3" if failing else f"case $1 in present) {add};; cleanup) {remove};; esac"
        path = self.folder / name
        path.write_text(f'#!/bin/sh\necho "$@" >> "$0.log"\n{body}\n')
        path.chmod(0o755)
        return path

    def root(self) -> str:
        """The authority of what it issues; new at each start."""
        context = ssl.create_default_context(cafile=self.ca)
        return httpx.get(f"https://127.0.0.1:{self.management}/roots/0", verify=context).text


def _certificate(folder: Path) -> None:
    """For its own interface: an authority, and a certificate for the loopback."""
    run = lambda *words: subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)  # noqa: E731
    run("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
        "-subj", "/CN=pebble test CA", "-keyout", "ca.key", "-out", "ca.pem")  # fmt: skip
    run("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=127.0.0.1",
        "-keyout", "key.pem", "-out", "request.pem")  # fmt: skip
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\nauthorityKeyIdentifier=keyid\n")
    run("x509", "-req", "-in", "request.pem", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
        "-days", "2", "-extfile", "names", "-out", "cert.pem")  # fmt: skip


@contextmanager
def pebble(folder: Path, lifetime: int | None = None):
    """`lifetime`: of its certificates, in seconds."""
    need_pebble()
    folder.mkdir()
    _certificate(folder)
    port, management, dns, dns_management, http, tls = free_ports(6)
    config = {
        "listenAddress": f"127.0.0.1:{port}",
        "managementListenAddress": f"127.0.0.1:{management}",
        "certificate": str(folder / "cert.pem"),
        "privateKey": str(folder / "key.pem"),
        "httpPort": http,
        "tlsPort": tls,
    }
    if lifetime is not None:
        config["certificateValidityPeriod"] = lifetime
    (folder / "config.json").write_text(json.dumps({"pebble": config}))
    log = open(folder / "log.txt", "wb")
    commands = [
        ["pebble-challtestsrv", "-dns01", f"127.0.0.1:{dns}", "-management", f"127.0.0.1:{dns_management}",
         "-http01", "", "-https01", "", "-tlsalpn01", "", "-defaultIPv6", ""],
        ["pebble", "-config", str(folder / "config.json"), "-dnsserver", f"127.0.0.1:{dns}"],
    ]  # fmt: skip
    # Without pauses and refusals by chance: what is tested here is not their randomness.
    environment = {"PEBBLE_VA_NOSLEEP": "1", "PEBBLE_WFE_NONCEREJECT": "0", "PEBBLE_AUTHZREUSE": "0", "PATH": "/usr/bin:/bin"}
    started = [subprocess.Popen(command, stdout=log, stderr=log, env=environment) for command in commands]
    log.close()
    made = Pebble(folder, port, management, dns, dns_management, http)
    try:
        context = ssl.create_default_context(cafile=made.ca)

        def answers():
            assert all(each.poll() is None for each in started), (folder / "log.txt").read_text()
            try:
                return httpx.get(made.directory, verify=context, timeout=2).is_success
            except httpx.TransportError:
                return False

        eventually(answers, within=20, what="pebble answers")
        yield made
    finally:
        for each in started:
            each.terminate()
        for each in started:
            each.wait(10)

"""nginx and Caddy of Debian, run from their packages without installing them: no service is made or started."""

import re
import shutil
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator

from support.server import PROJECT, Server, free_ports
from support.waiting import eventually

PAGE = PROJECT / "docs/reverse-proxy.md"
DOMAIN = "sandboxes.example.com"
PACKAGES = {"nginx": ["nginx"], "caddy": ["caddy"]}
PROGRAMS = {"nginx": "usr/sbin/nginx", "caddy": "usr/bin/caddy"}


class NoProxy(Exception):
    pass


def unpack(name: str, folder: Path) -> Path:
    """The program of a package, fetched by apt and unpacked here. One that is installed is used as it is."""
    if found := shutil.which(name, path="/usr/sbin:/usr/bin"):
        return Path(found)
    if shutil.which("apt-get") is None:
        raise NoProxy(f"{name} is not installed, and there is no apt")
    # apt drops its rights for the download.
    folder.mkdir(mode=0o755, parents=True)
    fetch = ["apt-get", "download", "-q", *PACKAGES[name]]
    done = subprocess.run(fetch, cwd=folder, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise NoProxy(f"{name} could not be fetched: {done.stderr.strip()[-300:]}")
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
    program = folder / PROGRAMS[name]
    missing = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
    if "not found" in missing:
        raise NoProxy(f"{name} needs libraries that are not installed: {missing}")
    return program


def configuration(language: str) -> str:
    """What the page shows."""
    (shown,) = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return shown


@dataclass
class Proxy:
    name: str
    program: Path
    server: Server
    folder: Path

    def __post_init__(self) -> None:
        (self.port,) = free_ports(1)

    @property
    def domain(self) -> str:
        return f"{self.server.domain}:{self.port}"

    @property
    def sdk(self) -> dict[str, str]:
        return {"api_key": self.server.key, "domain": self.domain}

    def _adapted(self, language: str) -> str:
        """Ports, paths and the name; nothing else."""
        text = configuration(language)
        tls = self.server.data / "tls"
        for shown, here in (
            ("/etc/ssl/sandboxes/fullchain.pem", str(tls / "leaf.pem")),
            ("/etc/ssl/sandboxes/privkey.pem", str(tls / "leaf.key")),
            ("127.0.0.1:3000", f"127.0.0.1:{self.server.http_port}"),
        ):
            assert shown in text, shown
            text = text.replace(shown, here)
        return text

    def _command(self) -> list[str]:
        if self.name == "nginx":
            text = self._adapted("nginx").replace("listen 443", f"listen 127.0.0.1:{self.port}")
            text = text.replace(DOMAIN, self.server.domain)
            temporary = "".join(
                f"{kind}_temp_path {self.folder}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
            )
            path = self.folder / "nginx.conf"
            path.write_text(
                f"daemon off;\nuser root;\npid {self.folder}/pid;\nworker_processes 1;\n"
                f"error_log {self.folder}/error.log;\n"
                f"events {{ worker_connections 1024; }}\nhttp {{\naccess_log off;\n{temporary}{text}}}\n"
            )
            return [str(self.program), "-c", str(path), "-p", str(self.folder), "-e", str(self.folder / "error.log")]
        text = self._adapted("caddyfile").replace(f"*.{DOMAIN}", f"*.{self.server.domain}:{self.port}")
        path = self.folder / "Caddyfile"
        path.write_text(f"{{\n\tadmin off\n\tauto_https disable_redirects\n}}\n{text}")
        return [str(self.program), "run", "--adapter", "caddyfile", "--config", str(path)]

    @contextmanager
    def running(self) -> Iterator["Proxy"]:
        log = self.folder / "log"
        with open(log, "wb") as out:
            process = subprocess.Popen(
                self._command(), stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=self.folder,
                env={"HOME": str(self.folder), "PATH": "/usr/bin:/bin", "XDG_DATA_HOME": str(self.folder)},
            )  # fmt: skip
        try:
            def answers() -> bool:
                assert process.poll() is None, log.read_text(errors="replace")
                return subprocess.run(["curl", "-sk", "-o", "/dev/null", f"https://127.0.0.1:{self.port}/"]).returncode in (0, 35)

            eventually(answers, within=20, what=f"{self.name} listens")
            yield self
        finally:
            process.terminate()
            process.wait(20)

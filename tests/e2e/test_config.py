"""Starting the server: options, files, and clear refusals."""

import os
import pwd
import shutil
import socket
import ssl
import subprocess

import httpx
import pytest

from support.server import Server, binary, clean_environment, free_ports, read_env_file
from support.waiting import eventually


def serve(*words, environment=None, timeout=60, user=None):
    """For starts that must fail."""
    return subprocess.run(
        [str(binary()), "serve", *words],
        env=clean_environment() | (environment or {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=timeout,
        user=user,
    )


def test_the_first_start_writes_the_env_files_and_prints_a_quick_start(own_server):
    server = own_server().start()
    env = server.env
    assert {"E2B_API_KEY", "E2B_API_URL", "E2B_SANDBOX_URL"} <= set(env)
    assert env["E2B_API_KEY"].startswith("e2b_") and len(env["E2B_API_KEY"]) == 44
    assert env["E2B_API_URL"] == env["E2B_SANDBOX_URL"] == server.url
    tls = server.env_tls
    assert {"E2B_API_KEY", "E2B_DOMAIN", "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE"} <= set(tls)
    assert tls["E2B_DOMAIN"] == server.tls_domain
    # Node asks the system's resolver, which need not know *.localhost.
    assert tls["E2B_API_URL"] == tls["E2B_SANDBOX_URL"] and tls["E2B_API_URL"].startswith("https://127.0.0.1:")
    # The bundle has the system's roots as well, for everything else the program talks to.
    assert open(tls["SSL_CERT_FILE"]).read().count("BEGIN CERTIFICATE") > 20
    for name in ("env", "env.tls"):
        assert (server.data / name).stat().st_mode & 0o777 == 0o600
    eventually(lambda: "e2b" in server.log.read_text())


def test_a_second_start_keeps_the_key_and_the_certificate(own_server):
    server = own_server().start()
    key, ca = server.key, open(server.env_tls["NODE_EXTRA_CA_CERTS"]).read()
    assert server.terminate() == 0
    server.start()
    assert server.key == key
    assert open(server.env_tls["NODE_EXTRA_CA_CERTS"]).read() == ca
    with server.api() as api:
        assert api.get("/v2/sandboxes").status_code == 200


def test_options_come_from_the_environment_and_from_a_file(own_server, tmp_path):
    http, https, admin = free_ports(3)
    config = tmp_path / "soulbox.toml"
    config.write_text(f'listen = "127.0.0.1:{http}"\nhttps = "127.0.0.1:1"\ndomain = "from.file.localhost"\n')
    data = tmp_path / "data"
    process = subprocess.Popen(
        [str(binary()), "serve", "--config", str(config), "--data-dir", str(data)],
        env=clean_environment()
        | {"SOULBOX_HTTPS": f"127.0.0.1:{https}", "SOULBOX_ADMIN": f"127.0.0.1:{admin}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:

        def up():
            assert process.poll() is None, process.stderr.read().decode()
            try:
                return httpx.get(f"http://127.0.0.1:{http}/health", timeout=2).is_success
            except httpx.TransportError:
                return False

        eventually(up, within=60)
        # The environment wins over the file.
        assert read_env_file(data / "env.tls")["E2B_DOMAIN"] == f"from.file.localhost:{https}"
    finally:
        process.terminate()
        process.wait(30)
        process.stderr.close()


def test_an_unknown_setting_in_the_file_is_refused_by_name(tmp_path):
    config = tmp_path / "soulbox.toml"
    config.write_text("listne = 'x'\n")
    result = serve("--config", str(config), "--data-dir", str(tmp_path / "d"))
    assert result.returncode != 0
    assert b"listne" in result.stderr


def test_not_being_root_is_refused_with_what_to_do(tmp_path):
    # A copy where that user can execute it.
    program = tmp_path / "soulbox"
    shutil.copy(binary(), program)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.owner() == "root" and str(folder).startswith("/tmp/"):
            folder.chmod(0o755)
    nobody = pwd.getpwnam("nobody").pw_uid
    result = subprocess.run(
        [str(program), "serve", "--data-dir", "/tmp/soulbox-nobody"],
        env=clean_environment(), capture_output=True, timeout=30, user=nobody, group=nobody, extra_groups=[],
        stdin=subprocess.DEVNULL, cwd="/",
    )  # fmt: skip
    assert result.returncode != 0
    assert b"root" in result.stderr and b"sudo" in result.stderr
    assert not os.path.exists("/tmp/soulbox-nobody")


def test_a_data_folder_in_use_is_refused(own_server):
    server = own_server().start()
    http, https, admin = free_ports(3)
    second = serve(
        "--data-dir", str(server.data), "--listen", f"127.0.0.1:{http}",
        "--https", f"127.0.0.1:{https}", "--admin", f"127.0.0.1:{admin}",
    )  # fmt: skip
    assert second.returncode != 0
    assert str(server.data).encode() in second.stderr
    assert httpx.get(f"{server.url}/health").is_success


@pytest.mark.parametrize("option", ["--listen", "--https"])
def test_a_port_in_use_is_refused_by_address(own_server, option):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        server: Server = own_server(extra=[])
        words = server.command()[2:]
        words[words.index(option) + 1] = address
        result = serve(*words)
    assert result.returncode != 0
    assert address.encode() in result.stderr


def test_a_template_to_prebuild_that_nobody_knows_is_refused_with_those_that_exist(own_server):
    result = serve(*own_server(extra=["--prebuild", "code-interpretor"]).command()[2:])
    assert result.returncode != 0
    assert b"--prebuild" in result.stderr and b"code-interpreter-v1" in result.stderr


def test_ones_own_certificate_is_served(own_server, tmp_path):
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-keyout", str(key), "-out", str(cert), "-days", "2", "-subj", "/CN=mine",
         "-addext", "subjectAltName=DNS:own.localhost,DNS:*.own.localhost"],
        check=True, capture_output=True, timeout=30,
    )  # fmt: skip
    server = own_server(domain="own.localhost", extra=["--tls-cert", str(cert), "--tls-key", str(key)]).start()
    context = ssl.create_default_context(cafile=str(cert))
    with socket.create_connection(("127.0.0.1", server.https_port), 10) as raw:
        with context.wrap_socket(raw, server_hostname="api.own.localhost") as tls:
            assert ("DNS", "*.own.localhost") in tls.getpeercert()["subjectAltName"]


def test_metrics_are_on_the_admin_listener_only(server, box):
    text = httpx.get(f"{server.admin_url}/metrics", timeout=10).text
    assert "# TYPE" in text and "soulbox_" in text
    with server.api() as api:
        assert "# TYPE soulbox" not in api.get("/metrics").text


def test_health_needs_no_key(server):
    assert httpx.get(f"{server.url}/health").is_success

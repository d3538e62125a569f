"""Several servers: `soulbox login`, `soulbox context`, `soulbox logout`."""

import json
import os
import pty
import select
import stat
import subprocess
import time

import pytest

from support.server import binary, clean_environment


@pytest.fixture
def user(tmp_path):
    return User(tmp_path)


class User:
    """Somebody with a home and nothing else."""

    def __init__(self, home):
        self.home = home
        hidden = ("E2B_", "SOULBOX_", "XDG_", "SSL_CERT")
        kept = {name: value for name, value in clean_environment().items() if not name.startswith(hidden)}
        self.env = kept | {"HOME": str(home)}

    def run(self, *words, input="", env=None):
        return subprocess.run(
            [str(binary()), *words], input=input, text=True, capture_output=True, timeout=60, env=self.env | (env or {})
        )

    @property
    def folder(self):
        return self.home / ".config" / "soulbox"


def https(server):
    return f"https://127.0.0.1:{server.https_port}"


def fingerprint(server):
    told = subprocess.run(
        ["openssl", "x509", "-in", server.data / "tls/ca.pem", "-noout", "-fingerprint", "-sha256"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return told.stdout.strip().split("=")[1]


def test_a_login_replaces_no_other_server_and_says_what_is_used_instead(server, user):
    assert user.run("login", server.url, input=server.key).returncode == 0
    refused = user.run("login", https(server), "--ca-fingerprint", fingerprint(server), input=server.key)
    assert refused.returncode == 1 and "--name" in refused.stderr, refused.stderr
    assert server.url in user.run("context", "show").stdout, "the first is still there"
    again = user.run("login", server.url, input=server.key, env={"E2B_API_URL": "http://127.0.0.1:1"})
    assert again.returncode == 0 and "unset E2B_API_URL" in again.stderr, again.stderr


def test_a_server_with_a_ca_of_its_own_is_trusted_by_its_fingerprint(server, user, box):
    unknown = user.run("login", https(server), input=server.key)
    assert unknown.returncode == 1
    assert fingerprint(server) in unknown.stderr and "--ca-fingerprint" in unknown.stderr
    assert not user.folder.exists()

    wrong = "00" + fingerprint(server)[2:]
    refused = user.run("login", https(server), "--ca-fingerprint", wrong, input=server.key)
    assert refused.returncode == 1 and "another fingerprint" in refused.stderr
    assert not user.folder.exists()

    done = user.run("login", https(server), "--name", "lab", "--ca-fingerprint", fingerprint(server).lower(), input=f"{server.key}\n")
    assert done.returncode == 0, done.stderr
    assert stat.S_IMODE(os.stat(user.folder / "contexts.json").st_mode) == 0o600
    assert stat.S_IMODE(os.stat(user.folder).st_mode) == 0o700
    listed = user.run("ls", "-q")
    assert box.sandbox_id in listed.stdout.split(), listed.stderr
    inside = user.run("exec", box.sandbox_id, "--", "echo", "hi")
    assert inside.stdout == "hi\n", inside.stderr


def test_a_ca_by_file_does_it_too(server, user):
    done = user.run("login", https(server), "--ca", str(server.data / "tls/ca.pem"), input=server.key)
    assert done.returncode == 0, done.stderr
    assert user.run("ls").returncode == 0


def test_a_refused_key_is_not_kept(server, user):
    refused = user.run("login", server.url, input="e2b_" + "0" * 40)
    assert refused.returncode == 1 and "refuses this API key" in refused.stderr, refused.stderr
    assert not user.folder.exists()
    nothing = user.run("login", server.url, input="")
    assert nothing.returncode == 1 and "not an API key" in nothing.stderr


def test_a_key_goes_unencrypted_to_this_machine_alone(user):
    refused = user.run("login", "http://192.0.2.1:3000", input="e2b_x")
    assert refused.returncode == 1 and "without encryption" in refused.stderr


def test_contexts_are_chosen_listed_and_forgotten(server, user, tmp_path):
    key = tmp_path / "key"
    key.write_text(server.key)
    for name in ["one", "two"]:
        assert user.run("login", server.url, "--name", name, "--api-key-file", str(key)).returncode == 0
    listed = json.loads(user.run("context", "ls", "--json").stdout)
    assert [(each["name"], each["current"]) for each in listed] == [("one", False), ("two", True)]
    assert server.key not in user.run("context", "ls").stdout + user.run("context", "show", "one").stdout

    assert user.run("context", "use", "one").returncode == 0
    assert json.loads(user.run("context", "show").stdout)["name"] == "one"
    # One by flag or variable wins; what is named must be there.
    assert user.run("ls", "--context", "two").returncode == 0
    for missing in [user.run("ls", "--context", "three"), user.run("ls", env={"SOULBOX_CONTEXT": "three"})]:
        assert missing.returncode == 1 and "no context three" in missing.stderr
    both = user.run("ls", "--context", "one", "--api-url", server.url)
    assert both.returncode == 2
    # A shell that loaded a server's env speaks with that one.
    elsewhere = user.run("ls", env={"E2B_API_URL": "http://127.0.0.1:1", "E2B_API_KEY": "e2b_x"})
    assert elsewhere.returncode == 1 and "127.0.0.1:1" in elsewhere.stderr

    assert user.run("logout").returncode == 0
    assert [each["name"] for each in json.loads(user.run("context", "ls", "--json").stdout)] == ["two"]
    assert user.run("context", "rm", "two").returncode == 0
    gone = user.run("context", "rm", "two")
    assert gone.returncode == 1 and "no context two" in gone.stderr


def test_a_context_gives_an_sdk_what_it_needs(server, user):
    by_name = f"https://api.{server.tls_domain}"
    assert user.run("login", by_name, "--ca", str(server.data / "tls/ca.pem"), "--name", "n", input=server.key).returncode == 0
    lines = user.run("context", "env").stdout
    loaded = subprocess.run(
        ["sh", "-c", 'eval "$1"; env', "-", lines], env=self_env(user), capture_output=True, text=True, check=True
    ).stdout.splitlines()
    values = dict(line.split("=", 1) for line in loaded if "=" in line)
    assert values["E2B_DOMAIN"] == server.tls_domain and values["E2B_API_KEY"] == server.key
    assert "E2B_API_URL" not in values
    ca = (server.data / "tls/ca.pem").read_text()
    assert open(values["NODE_EXTRA_CA_CERTS"]).read() == ca
    assert ca in open(values["SSL_CERT_FILE"]).read()


def self_env(user):
    return user.env | {"E2B_API_URL": "left over"}


def test_a_person_is_asked_and_the_key_is_not_shown(server, user):
    """On a terminal: the fingerprint is shown and confirmed, and what is typed as the key is not echoed."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(str(binary()), ["soulbox", "login", https(server)], user.env)
    seen = b""

    def until(text):
        nonlocal seen
        end = time.monotonic() + 30
        while text not in seen:
            assert select.select([terminal], [], [], end - time.monotonic())[0], seen
            seen += os.read(terminal, 4096)

    until(b"Is it the same?")
    assert fingerprint(server).encode() in seen
    os.write(terminal, b"y\n")
    until(b"API key for")
    os.write(terminal, server.key.encode() + b"\n")
    until(b"logged in to")
    assert server.key.encode() not in seen
    os.close(terminal)
    assert os.waitpid(pid, 0)[1] == 0
    assert user.run("ls").returncode == 0

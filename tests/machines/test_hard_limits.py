"""Hard limits that somebody has set low: sandboxes work, or the server says which limit it is."""

import pytest

from machines.serving import DATA, LOG, Serving


@pytest.mark.parametrize(
    "option, names",
    [
        ("core=0:0", ["core"]),
        ("nofile=1024:1024", ["open files", "nofile"]),
        ("nproc=64:64", ["nproc", "processes"]),
        ("memlock=0:0", ["memlock", "locked memory"]),
        ("stack=1048576:1048576", ["stack"]),
        ("sigpending=8:8", ["sigpending", "pending signals"]),
    ],
    ids=lambda value: value.split("=")[0] if isinstance(value, str) else "",
)
def test_a_low_hard_limit_is_refused_by_name_or_does_no_harm(machine, client, option, names):
    machine.run(f"setsid prlimit --{option} soulbox serve > {LOG} 2>&1 < /dev/null &")
    serving = Serving(machine)
    try:
        serving.wait()
    except AssertionError:
        if serving.is_running():
            raise
        said = serving.log().lower()
        assert any(each in said for each in names), said
        return
    try:
        assert client.run("inside", "python3 -c 'print(6 * 7)'") == "42\n"
    finally:
        serving.stop()
        machine.run(f"test -e {DATA}/env")

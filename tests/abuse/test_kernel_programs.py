"""Nothing inside puts a program into the kernel: thousands of them, freed at once, stop some kernels.

One call of each is enough, and more than one would be the attack itself.
"""

import pytest

pytestmark = pytest.mark.timeout(120)

# One instruction: "take the packet" for a socket, "allow" for seccomp.
ONE_INSTRUCTION = """
code = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x7fff0000))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", 1, ctypes.addressof(code)))
def answer(what, result):
    print(f"{what}: {result[1] or 'DONE'}")
"""

SOCKETS = (
    ONE_INSTRUCTION
    + """
SOL_SOCKET = 1
options = {"SO_ATTACH_FILTER": 26, "SO_ATTACH_BPF": 50, "SO_ATTACH_REUSEPORT_CBPF": 51, "SO_ATTACH_REUSEPORT_EBPF": 52}
kinds = {"udp": (socket.AF_INET, socket.SOCK_DGRAM), "unix": (socket.AF_UNIX, socket.SOCK_DGRAM), "netlink": (16, socket.SOCK_RAW)}
for kind, (family, type) in kinds.items():
    with socket.socket(family, type) as one:
        for name, option in options.items():
            answer(f"{kind} {name}", syscall(54, one.fileno(), SOL_SOCKET, option, program, 16))
            # The kernel looks at the lower half of these arguments only.
            answer(f"{kind} {name} in disguise", syscall(54, one.fileno(), SOL_SOCKET | 1 << 32, option | 1 << 32, program, 16))
"""
)

FILTERS = (
    ONE_INSTRUCTION
    + """
syscall(157, 38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS, without which a user may not in any case
answer("seccomp", syscall(317, 1, 0, program))
answer("seccomp with a listener", syscall(317, 1, 8, program))
answer("seccomp, is it there", syscall(317, 1, 0, 0))
answer("prctl", syscall(157, 22, 2, program, 0, 0))
answer("prctl, is it there", syscall(157, 22, 2, 0, 0, 0))
answer("prctl in disguise", syscall(157, 22 | 1 << 32, 2, program, 0, 0))
"""
)

STILL_WORKS = """
with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as one:
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as one:
    # 26, as SO_ATTACH_FILTER, but of another level.
    one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
"""

STRICT = """
if os.fork() == 0:
    syscall(317, 0, 0, 0)
    libc.syscall(60, 7)  # exit, one of the four calls that are left
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def answers(result) -> dict[str, str]:
    assert result.exit_code == 0, result.stderr
    return dict(line.rsplit(": ", 1) for line in result.stdout.splitlines())


def test_no_socket_takes_a_program(attacker):
    got = answers(attacker.python(SOCKETS))
    assert len(got) == 24, got
    assert set(got.values()) == {"EPERM"}, got
    attacker.survives()


def test_seccomp_filters_look_as_on_a_kernel_without_them(attacker):
    got = answers(attacker.python(FILTERS))
    assert len(got) == 6, got
    assert set(got.values()) == {"EINVAL"}, got
    attacker.survives()


def test_seccomps_strict_mode_needs_no_program_and_stays(attacker):
    result = attacker.python(STRICT)
    assert result.stdout == "7\n", result.stderr


def test_ordinary_options_of_sockets_are_left_alone(attacker):
    result = attacker.python(STILL_WORKS)
    assert result.exit_code == 0, result.stderr


def test_calls_of_x32_have_no_way_around(attacker):
    result = attacker.python(
        """
print("x32 setsockopt", syscall(0x40000000 | 541, 0, 1, 26, 0, 0)[1])
print("x32 prctl", syscall(0x40000000 | 157, 22, 2, 0, 0, 0)[1])
print("x32 seccomp", syscall(0x40000000 | 317, 1, 0, 0)[1])
"""
    )
    assert result.stdout.splitlines() == ["x32 setsockopt ENOSYS", "x32 prctl ENOSYS", "x32 seccomp ENOSYS"], result.stderr


def test_a_call_of_32_bits_ends_its_process(attacker):
    """`socketcall`, whose arguments no filter sees. Where the kernel has no such calls it is a fault."""
    result = attacker.python(
        """
import mmap
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(bytes([0xB8, 102, 0, 0, 0, 0xCD, 0x80, 0xC3]))  # mov eax, 102; int 0x80; ret
if os.fork() == 0:
    ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
    os._exit(0)
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    )
    assert result.stdout.strip() in ("-31", "-11"), result.stdout + result.stderr


@pytest.mark.parametrize(
    "command",
    [
        "python3 -c 'import asyncio; asyncio.run(asyncio.sleep(0))'",
        "if command -v node; then node -e 'console.log(1)'; fi",
        "if command -v file; then file /bin/sh; fi",
        "if command -v man; then man --version; fi",
        "if command -v ip; then ip addr; fi",
        "sudo true",
    ],
)
def test_programs_of_every_day_need_none(attacker, command):
    result = attacker.run(command)
    assert result.exit_code == 0, result.stderr

//! Nobody inside puts a program into the kernel.

use super::*;

const SOCKET: u32 = 41;
const SETSOCKOPT: u32 = 54;
const PRCTL: u32 = 157;
const SECCOMP_CALL: u32 = 317;
/// Garbage in the upper half: the kernel takes an `int` and does not see it.
const UPPER_HALF: u64 = 0xdead_beef << 32;

fn refusal(errno: i32) -> u32 {
    libc::SECCOMP_RET_ERRNO | errno.cast_unsigned()
}

fn answer_to(number: u32, first: [u64; 3]) -> u32 {
    let mut call = Call::new(number);
    call.arguments[..3].copy_from_slice(&first);
    run(&tree(), &call)
}

fn setsockopt(level: i32, option: i32, upper: u64) -> u32 {
    let wide = |value: i32| u64::from(value.cast_unsigned()) | upper;
    answer_to(SETSOCKOPT, [3 | upper, wide(level), wide(option)])
}

#[test]
fn sockets_take_no_programs() {
    for option in [
        libc::SO_ATTACH_FILTER,
        libc::SO_ATTACH_BPF,
        libc::SO_ATTACH_REUSEPORT_CBPF,
        libc::SO_ATTACH_REUSEPORT_EBPF,
    ] {
        for upper in [0, UPPER_HALF] {
            let answer = setsockopt(libc::SOL_SOCKET, option, upper);
            assert_eq!(answer, refusal(libc::EPERM), "option {option}");
        }
        // The same number means something else on another level.
        let answer = setsockopt(libc::IPPROTO_TCP, option, 0);
        assert_eq!(answer, ALLOW, "option {option} of TCP");
    }
}

#[test]
fn all_other_options_of_sockets_are_left_alone() {
    let programs = [26, 50, 51, 52];
    for option in (0..200).filter(|option| !programs.contains(option)) {
        let answer = setsockopt(libc::SOL_SOCKET, option, 0);
        assert_eq!(answer, ALLOW, "option {option}");
    }
}

#[test]
fn filters_of_system_calls_are_answered_as_by_a_kernel_without_them() {
    let without = refusal(libc::EINVAL);
    for upper in [0, UPPER_HALF] {
        let filter = u64::from(libc::SECCOMP_SET_MODE_FILTER) | upper;
        for flags in [0, libc::SECCOMP_FILTER_FLAG_TSYNC, u64::MAX] {
            assert_eq!(answer_to(SECCOMP_CALL, [filter, flags, 0]), without);
        }
        let option = u64::from(libc::PR_SET_SECCOMP.cast_unsigned()) | upper;
        let mode = u64::from(libc::SECCOMP_MODE_FILTER);
        assert_eq!(answer_to(PRCTL, [option, mode, 0]), without);
        assert_eq!(answer_to(PRCTL, [option, mode, 0x1000]), without);
    }
}

#[test]
fn strict_mode_and_questions_about_filters_stay() {
    for operation in [
        libc::SECCOMP_SET_MODE_STRICT,
        libc::SECCOMP_GET_ACTION_AVAIL,
        libc::SECCOMP_GET_NOTIF_SIZES,
    ] {
        let answer = answer_to(SECCOMP_CALL, [operation.into(), 0, 0]);
        assert_eq!(answer, ALLOW, "operation {operation}");
    }
    let strict = u64::from(libc::SECCOMP_MODE_STRICT);
    let set = u64::from(libc::PR_SET_SECCOMP.cast_unsigned());
    assert_eq!(answer_to(PRCTL, [set, strict, 0]), ALLOW);
    for option in (0..80).filter(|option| *option != set) {
        let answer = answer_to(PRCTL, [option, libc::SECCOMP_MODE_FILTER.into(), 0]);
        assert_eq!(answer, ALLOW, "prctl {option}");
    }
}

/// What would be a way around: they never see the arguments that are looked at here.
#[test]
fn there_is_no_other_door_for_programs() {
    for name in [
        "bpf",
        "perf_event_open",
        "io_uring_setup",
        "io_uring_enter",
        "io_uring_register",
    ] {
        let number = numbers::number_of(name).unwrap();
        assert_eq!(
            run(&tree(), &Call::new(number)),
            refusal(libc::EPERM),
            "{name}"
        );
    }
    let packet = u64::from(libc::AF_PACKET.cast_unsigned());
    let answer = answer_to(SOCKET, [packet, 3, 0]);
    assert_eq!(answer, refusal(libc::EPERM), "packet sockets have fanouts");
    // Programs of 32 bits have `socketcall`, whose arguments are behind a pointer.
    let socketcall = Call {
        architecture: 0x4000_0003,
        ..Call::new(102)
    };
    assert_eq!(run(&tree(), &socketcall), KILL);
    for x32 in [SETSOCKOPT, 541, PRCTL, SECCOMP_CALL] {
        let call = Call::new(0x4000_0000 | x32);
        assert_eq!(run(&tree(), &call), refusal(libc::ENOSYS), "x32 {x32}");
    }
}

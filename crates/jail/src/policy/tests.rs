//! The one program against the filters of the data file, as seccompiler compiles them and the
//! kernel would run them one after the other.

mod programs;

use std::collections::{BTreeMap, BTreeSet};

use super::tree::{
    AND, Instruction, JUMP, JUMP_IF_AT_LEAST, JUMP_IF_EQUAL, LOAD_WORD, RETURN, X86_64,
};
use super::*;

const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;
const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
/// The order of loading that the data file is written for.
const CHAIN: [&str; 6] = [
    "known",
    "refused",
    "unsupported",
    "absent",
    "invalid",
    "ignored",
];

/// A call as the kernel shows it to a filter.
#[derive(Debug, Clone, Copy)]
struct Call {
    number: u32,
    architecture: u32,
    arguments: [u64; 6],
}

impl Call {
    fn new(number: u32) -> Self {
        Self {
            number,
            architecture: X86_64,
            arguments: [0; 6],
        }
    }

    fn word(&self, place: u32) -> u32 {
        let mut data = [0_u8; 64];
        data[..4].copy_from_slice(&self.number.to_ne_bytes());
        data[4..8].copy_from_slice(&self.architecture.to_ne_bytes());
        for (index, argument) in self.arguments.iter().enumerate() {
            data[16 + index * 8..][..8].copy_from_slice(&argument.to_ne_bytes());
        }
        let place = place as usize;
        assert!(place.is_multiple_of(4), "not a word of its own");
        u32::from_ne_bytes(data[place..place + 4].try_into().unwrap())
    }
}

/// Runs a program as the kernel does.
fn run(program: &[Instruction], call: &Call) -> u32 {
    const JUMP_IF_GREATER: u16 = 0x25;
    const JUMP_IF_BITS: u16 = 0x45;
    let (mut at, mut accumulator) = (0, 0_u32);
    loop {
        let Instruction {
            code,
            jump_true,
            jump_false,
            value,
        } = program[at];
        at += 1;
        let branch = |taken: bool| usize::from(if taken { jump_true } else { jump_false });
        match code {
            LOAD_WORD => accumulator = call.word(value),
            AND => accumulator &= value,
            JUMP => at += value as usize,
            JUMP_IF_EQUAL => at += branch(accumulator == value),
            JUMP_IF_AT_LEAST => at += branch(accumulator >= value),
            JUMP_IF_GREATER => at += branch(accumulator > value),
            JUMP_IF_BITS => at += branch(accumulator & value != 0),
            RETURN => return value,
            other => panic!("an instruction {other:#x} that this machine does not have"),
        }
    }
}

/// Of all answers the strictest, and of equally strict ones the one of the filter loaded last.
fn run_chain(chain: &[Vec<Instruction>], call: &Call) -> u32 {
    let strictness = |answer: u32| (answer & libc::SECCOMP_RET_ACTION_FULL).cast_signed();
    let mut result = ALLOW;
    for program in chain.iter().rev() {
        let answer = run(program, call);
        if strictness(answer) < strictness(result) {
            result = answer;
        }
    }
    result
}

fn chain() -> Vec<Vec<Instruction>> {
    let mut programs =
        seccompiler::compile_from_json(SECCOMP.as_bytes(), seccompiler::TargetArch::x86_64)
            .unwrap();
    CHAIN
        .iter()
        .map(|name| {
            let program = programs.remove(*name).unwrap();
            let ours = program.iter().map(|instruction| Instruction {
                code: instruction.code,
                jump_true: instruction.jt,
                jump_false: instruction.jf,
                value: instruction.k,
            });
            ours.collect()
        })
        .collect()
}

fn tree() -> Vec<Instruction> {
    program().unwrap()
}

/// By number and argument, the values around those that the file compares with.
fn interesting_values() -> BTreeMap<u32, BTreeMap<usize, BTreeSet<u64>>> {
    let data: serde_json::Value = serde_json::from_str(SECCOMP).unwrap();
    let mut values: BTreeMap<u32, BTreeMap<usize, BTreeSet<u64>>> = BTreeMap::new();
    for filter in data.as_object().unwrap().values() {
        for entry in filter["filter"].as_array().unwrap() {
            let Some(arguments) = entry["args"].as_array() else {
                continue;
            };
            let number = numbers::number_of(entry["syscall"].as_str().unwrap()).unwrap();
            for argument in arguments {
                let index = usize::try_from(argument["index"].as_u64().unwrap()).unwrap();
                let value = argument["val"].as_u64().unwrap();
                let mask = argument["op"]["masked_eq"].as_u64().unwrap_or(u64::MAX);
                let here = values.entry(number).or_default().entry(index).or_default();
                here.extend([0, 1, u64::MAX, u64::from(u32::MAX), 1 << 32, 1 << 63]);
                here.extend([value, value.wrapping_sub(1), value.wrapping_add(1)]);
                here.extend([
                    value | 1 << 32,
                    value | 1 << 63,
                    value ^ mask,
                    value | !mask,
                ]);
                here.extend([0x800 | value, 0x80000 | value, mask, !mask]);
            }
        }
    }
    values
}

/// Every combination of the values of those arguments that are looked at.
fn calls(number: u32, values: &BTreeMap<usize, BTreeSet<u64>>) -> Vec<Call> {
    let mut calls = vec![Call::new(number)];
    for (index, values) in values {
        calls = calls
            .iter()
            .flat_map(|call| {
                values.iter().map(|value| {
                    let mut call = *call;
                    call.arguments[*index] = *value;
                    call
                })
            })
            .collect();
    }
    calls
}

#[test]
fn one_program_decides_as_the_filters_do_one_after_the_other() {
    let (chain, tree) = (chain(), tree());
    let values = interesting_values();
    let numbers = (0..=600)
        .chain([
            0x3fff_ffff,
            u32::MAX,
            u32::MAX - 1,
            i32::MAX.cast_unsigned(),
        ])
        .chain((0..=600).map(|number| 0x4000_0000 | number));
    let mut compared = 0;
    for number in numbers {
        // What x32 calls the same may not slip through with arguments either.
        let few = BTreeMap::new();
        for call in calls(number, values.get(&(number & 0x3fff_ffff)).unwrap_or(&few)) {
            for architecture in [X86_64, 0x4000_0003, 0xc000_00b7, 0] {
                let call = Call {
                    architecture,
                    ..call
                };
                assert_eq!(run(&tree, &call), run_chain(&chain, &call), "{call:?}");
                compared += 1;
            }
        }
    }
    let before: usize = chain.iter().map(Vec::len).sum();
    println!(
        "{compared} calls compared; {before} instructions before, {} now",
        tree.len()
    );
    assert!(tree.len() * 4 < before, "{} of {before}", tree.len());
}

#[test]
fn a_call_is_decided_after_few_instructions() {
    let tree = tree();
    let values = interesting_values();
    for number in (0..=600).filter(|number| !values.contains_key(number)) {
        let steps = steps(&tree, &Call::new(number));
        assert!(steps <= 12, "{number} takes {steps}");
    }
}

/// How many instructions are run for a number whose arguments do not matter.
fn steps(program: &[Instruction], call: &Call) -> usize {
    let (mut at, mut count) = (0, 0);
    loop {
        count += 1;
        let instruction = program[at];
        at += 1;
        match instruction.code {
            JUMP_IF_AT_LEAST if call.number >= instruction.value => {
                at += usize::from(instruction.jump_true);
            }
            JUMP_IF_AT_LEAST => at += usize::from(instruction.jump_false),
            JUMP_IF_EQUAL => at += usize::from(instruction.jump_true),
            JUMP => at += instruction.value as usize,
            RETURN => return count,
            _ => {}
        }
    }
}

#[test]
fn other_architectures_and_unknown_calls_get_nowhere() {
    let tree = tree();
    let foreign = Call {
        architecture: 0x4000_0003,
        ..Call::new(1)
    };
    assert_eq!(run(&tree, &foreign), KILL);
    let unknown = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned();
    for number in [463, 600, 0x4000_0000, 0x4000_0001, u32::MAX] {
        assert_eq!(run(&tree, &Call::new(number)), unknown, "{number:#x}");
    }
    assert_eq!(run(&tree, &Call::new(1)), ALLOW);
}

#[test]
fn a_program_longer_than_a_jump_is_reached_all_the_same() {
    use rules::{Action, Decision, Range};
    // Every number decides otherwise than the numbers beside it.
    let ranges: Vec<Range> = (0..2000)
        .map(|first| Range {
            first,
            decision: Decision {
                branches: Vec::new(),
                otherwise: Action::Errno(u16::try_from(first).unwrap()),
            },
        })
        .collect();
    let program = tree::compile(&ranges).unwrap();
    assert!(program.len() < 4096, "the kernel takes no more");
    for number in 0..2100 {
        let expected = libc::SECCOMP_RET_ERRNO | number.min(1999);
        assert_eq!(run(&program, &Call::new(number)), expected, "{number}");
    }
}

#[test]
fn a_filter_that_cannot_be_meant_is_refused() {
    let with = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut data: serde_json::Value = serde_json::from_str(SECCOMP).unwrap();
        change(&mut data);
        rules::Decisions::parse(&data.to_string()).map(drop)
    };
    assert!(with(&|_| {}).is_ok());
    let wrong: [&dyn Fn(&mut serde_json::Value); 6] = [
        &|data| data["more"] = data["absent"].clone(),
        &|data| drop(data.as_object_mut().unwrap().remove("absent")),
        &|data| data["absent"]["filter"][0]["syscall"] = "clone4".into(),
        &|data| data["absent"]["match_action"] = "allow".into(),
        &|data| data["known"]["filter"][0]["args"] = data["ignored"]["filter"][1]["args"].clone(),
        &|data| data["ignored"]["filter"][1]["args"][0]["index"] = 6.into(),
    ];
    for (number, change) in wrong.into_iter().enumerate() {
        assert!(with(change).is_err(), "change {number}");
    }
}

#[test]
fn the_built_in_policy_compiles() {
    let policy = Policy::load().unwrap();
    assert!(!policy.seccomp.is_empty() && policy.seccomp.len().is_multiple_of(16));
    assert!(
        !policy.capabilities.contains(&21),
        "CAP_SYS_ADMIN must not be given"
    );
    assert!(
        !policy.capabilities.contains(&19),
        "CAP_SYS_PTRACE would open envd to root inside"
    );
}

#[test]
fn every_system_call_has_a_reason() {
    let data: serde_json::Value = serde_json::from_str(SECCOMP).unwrap();
    for filter in data.as_object().unwrap().values() {
        for entry in filter["filter"].as_array().unwrap() {
            assert!(
                entry["comment"].as_str().is_some_and(|c| c.len() > 3),
                "{entry}"
            );
        }
    }
}

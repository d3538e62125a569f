//! One classic BPF program for all decisions: a balanced search for the call's number, and what
//! depends on arguments at its leaves.
//!
//! The kernel runs a new filter once for every number that it knows, to remember which ones are
//! always allowed. For a list of comparisons that takes as long as the list times the numbers: most
//! of the time that it took to load one.

use super::rules::{Action, Condition, Decision, Range, Test, Width};

/// One instruction, as the kernel's `sock_filter`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Instruction {
    pub(super) code: u16,
    pub(super) jump_true: u8,
    pub(super) jump_false: u8,
    pub(super) value: u32,
}

pub(super) const LOAD_WORD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
pub(super) const AND: u16 = 0x54; // BPF_ALU | BPF_AND | BPF_K
pub(super) const JUMP: u16 = 0x05; // BPF_JMP | BPF_JA
pub(super) const JUMP_IF_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
pub(super) const JUMP_IF_AT_LEAST: u16 = 0x35; // BPF_JMP | BPF_JGE | BPF_K
pub(super) const RETURN: u16 = 0x06; // BPF_RET | BPF_K

// Places in the kernel's `seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;

/// `AUDIT_ARCH_X86_64`. Programs of 32 bits number their calls otherwise.
pub(super) const X86_64: u32 = 0xc000_003e;

/// `None`: larger than jumps can reach.
pub(super) fn compile(ranges: &[Range]) -> Option<Vec<Instruction>> {
    let mut program = vec![
        load(ARCHITECTURE),
        jump_if(JUMP_IF_EQUAL, X86_64, 1, 0),
        answer(libc::SECCOMP_RET_KILL_PROCESS),
        // Numbers of x32 begin at 2^30, beyond all that are known.
        load(NUMBER),
    ];
    program.extend(search(ranges)?);
    Some(program)
}

fn search(ranges: &[Range]) -> Option<Vec<Instruction>> {
    if let [only] = ranges {
        return leaf(&only.decision);
    }
    let (below, above) = ranges.split_at(ranges.len() / 2);
    let first = above.first()?.first;
    let (below, above) = (search(below)?, search(above)?);
    let mut program = match u8::try_from(below.len()) {
        Ok(skip) => vec![jump_if(JUMP_IF_AT_LEAST, first, skip, 0)],
        Err(_) => vec![
            jump_if(JUMP_IF_AT_LEAST, first, 0, 1),
            Instruction {
                code: JUMP,
                jump_true: 0,
                jump_false: 0,
                value: u32::try_from(below.len()).ok()?,
            },
        ],
    };
    program.extend(below);
    program.extend(above);
    Some(program)
}

fn leaf(decision: &Decision) -> Option<Vec<Instruction>> {
    let mut program = Vec::new();
    for branch in &decision.branches {
        // Backwards: whoever fails jumps over what follows of its branch.
        let mut reversed = vec![answer(code_of(branch.action))];
        for condition in branch.conditions.iter().rev() {
            let past = u8::try_from(reversed.len()).ok()?;
            let mut checks = check(condition, past)?;
            checks.reverse();
            reversed.extend(checks);
        }
        program.extend(reversed.into_iter().rev());
    }
    program.push(answer(code_of(decision.otherwise)));
    Some(program)
}

/// Goes on behind itself where the condition holds, and `past` instructions further where not.
fn check(condition: &Condition, past: u8) -> Option<Vec<Instruction>> {
    let low_word = ARGUMENTS + u32::from(condition.index) * 8;
    let (high_word, value) = (low_word + 4, condition.value);
    let wide = condition.width == Width::Qword;
    Some(match condition.test {
        Test::Eq => {
            let mut checks = Vec::new();
            if wide {
                checks.extend(equal(
                    high_word,
                    u32::MAX,
                    high(value),
                    past.checked_add(2)?,
                ));
            }
            checks.extend(equal(low_word, u32::MAX, low(value), past));
            checks
        }
        Test::MaskedEq(mask) => {
            let mut checks = Vec::new();
            let lower = equal(low_word, low(mask), low(value & mask), past);
            if wide && high(mask) != 0 {
                let past = past.checked_add(u8::try_from(lower.len()).ok()?)?;
                checks.extend(equal(high_word, high(mask), high(value & mask), past));
            }
            checks.extend(lower);
            checks
        }
        Test::Ne => {
            let lower = [load(low_word), jump_if(JUMP_IF_EQUAL, low(value), past, 0)];
            let mut checks = Vec::new();
            if wide {
                checks.push(load(high_word));
                checks.push(jump_if(JUMP_IF_EQUAL, high(value), 0, 2));
            }
            checks.extend(lower);
            checks
        }
    })
}

fn equal(word: u32, mask: u32, value: u32, past: u8) -> Vec<Instruction> {
    let mut checks = vec![load(word)];
    if mask != u32::MAX {
        checks.push(Instruction {
            code: AND,
            jump_true: 0,
            jump_false: 0,
            value: mask,
        });
    }
    checks.push(jump_if(JUMP_IF_EQUAL, value, 0, past));
    checks
}

fn code_of(action: Action) -> u32 {
    match action {
        Action::Allow => libc::SECCOMP_RET_ALLOW,
        Action::Errno(number) => libc::SECCOMP_RET_ERRNO | u32::from(number),
    }
}

fn load(place: u32) -> Instruction {
    Instruction {
        code: LOAD_WORD,
        jump_true: 0,
        jump_false: 0,
        value: place,
    }
}

fn jump_if(code: u16, value: u32, jump_true: u8, jump_false: u8) -> Instruction {
    Instruction {
        code,
        jump_true,
        jump_false,
        value,
    }
}

fn answer(value: u32) -> Instruction {
    Instruction {
        code: RETURN,
        jump_true: 0,
        jump_false: 0,
        value,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the half that is asked for"
)]
fn low(value: u64) -> u32 {
    value as u32
}

fn high(value: u64) -> u32 {
    low(value >> 32)
}

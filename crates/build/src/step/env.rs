//! ENV: `[name, value, name, value, …]`.

use crate::{
    expand::expand,
    problem::{Problem, Result},
    state::State,
};

/// Programs cannot be started with much more.
const MOST_IN_ALL: usize = 1 << 20;

/// Each value sees what stands before it.
pub(super) fn apply(state: &mut State, args: &[String]) -> Result<()> {
    if args.is_empty() || !args.len().is_multiple_of(2) {
        return Err(Problem::user(format!(
            "ENV needs names and values in turn, but has {} arguments",
            args.len()
        )));
    }
    for pair in args.chunks_exact(2) {
        let (name, value) = (&pair[0], &pair[1]);
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(Problem::user(format!("{name:?} cannot name a variable")));
        }
        let value = expand(value, &state.env)?;
        if value.contains('\0') {
            return Err(Problem::user(format!(
                "the value of {name} holds a NUL character"
            )));
        }
        state.env.insert(name.clone(), value);
        let all: usize = state
            .env
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        if all > MOST_IN_ALL {
            return Err(Problem::user(format!(
                "all variables together are longer than {MOST_IN_ALL} bytes"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(args: &[&str]) -> Result<State> {
        let mut state = State {
            env: [("OLD".to_owned(), "old".to_owned())].into(),
            user: "user".to_owned(),
            workdir: None,
        };
        let args: Vec<_> = args.iter().map(|arg| (*arg).to_owned()).collect();
        apply(&mut state, &args).map(|()| state)
    }

    #[test]
    fn values_see_what_was_set_before_them() {
        let state = applied(&["A", "$OLD", "B", "${A}er", "OLD", "new"]).unwrap();
        assert_eq!(state.env["B"], "older");
        assert_eq!(state.env["OLD"], "new");
    }

    #[test]
    fn half_pairs_and_impossible_names_fail() {
        for args in [
            &[][..],
            &["A"],
            &["A", "1", "B"],
            &["", "1"],
            &["A=B", "1"],
            &["A", "\0"],
        ] {
            assert!(applied(args).is_err(), "{args:?}");
        }
    }
}

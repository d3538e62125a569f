//! Errors together with what led to them.

use std::{error::Error, fmt, io, iter};

/// The error and what it comes from, outermost first. What an [`io::Error`] carries is not among its
/// sources, and is found all the same.
pub fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    iter::successors(Some(error), |&cause| {
        let carried = cause
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref)
            .map(|carried| -> &(dyn Error + 'static) { carried });
        carried.or_else(|| cause.source())
    })
}

/// An error and its causes on one line. A cause that only repeats what was said is left out.
#[derive(Debug, Clone, Copy)]
pub struct Chain<'a>(pub &'a (dyn Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = String::new();
        for cause in causes(self.0) {
            let words = cause.to_string();
            if said.is_empty() {
                said = words;
            } else if !said.contains(&words) {
                said.push_str(": ");
                said.push_str(&words);
            }
        }
        f.write_str(&said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{words}")]
    struct Wrapped {
        words: &'static str,
        #[source]
        source: io::Error,
    }

    fn wrapped(words: &'static str, source: io::Error) -> Wrapped {
        Wrapped { words, source }
    }

    #[test]
    fn every_cause_is_told_once_and_in_order() {
        let inner = wrapped("no room", io::Error::other("the disk is full"));
        let outer = wrapped("could not write", io::Error::other(inner));
        let told = Chain(&outer).to_string();
        assert_eq!(told, "could not write: no room: the disk is full");
    }

    #[test]
    fn what_was_said_already_is_not_repeated() {
        let error = wrapped("could not write: boom", io::Error::other("boom"));
        assert_eq!(Chain(&error).to_string(), "could not write: boom");
    }

    #[test]
    fn what_an_io_error_carries_can_be_found() {
        let carried = wrapped("inner", io::ErrorKind::NotFound.into());
        let error = io::Error::other(carried);
        let found = causes(&error).find_map(|cause| cause.downcast_ref::<Wrapped>());
        assert_eq!(found.unwrap().words, "inner");
    }
}

//! Memory follows the store.
//!
//! A write is committed first and put on the disk then. When only the second fails, everybody who
//! asks the store finds what was written, and so will the next start: memory must not say otherwise,
//! or a name that is taken there seems free here, and every try to take it fails until a restart.
//! Whoever asked is told, since a power cut may still undo it.

use soulbox_store::Result as Written;

use crate::Result;

/// Changes memory as the store was changed, if it was.
pub(crate) fn follow<T>(written: Written<()>, change: impl FnOnce() -> T) -> Result<T> {
    match held(written)? {
        Ok(()) => Ok(change()),
        Err(not_safe) => {
            change();
            Err(not_safe.into())
        }
    }
}

/// The outer error: nothing was written. The inner one is for when the rest is done.
pub(crate) fn held<T>(written: Written<T>) -> Result<Written<T>> {
    match written {
        Err(error) if !error.is_committed() => Err(error.into()),
        written => Ok(written),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use soulbox_store::Error as StoreError;

    use super::*;

    fn follows(written: Written<()>) -> (bool, bool) {
        let mut changed = false;
        let answered = follow(written, || changed = true).is_ok();
        (changed, answered)
    }

    #[test]
    fn memory_changes_with_the_store_and_the_caller_hears_what_is_not_safe() {
        assert_eq!(follows(Ok(())), (true, true));
        let unsynced = StoreError::Unsynced(io::ErrorKind::Other.into());
        assert_eq!(follows(Err(unsynced)), (true, false));
        let refused = StoreError::Corrupt {
            table: "a",
            column: "b",
        };
        assert_eq!(follows(Err(refused)), (false, false));
    }
}

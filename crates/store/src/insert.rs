//! Rows of which a tenant has one per name, and only so many.

/// What became of such a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inserted {
    Yes,
    /// Nothing was written.
    NameTaken,
    /// Nothing was written: the tenant has as many as it may.
    Full,
}

/// A limit as a value.
pub(crate) fn at_most(most: usize) -> i64 {
    i64::try_from(most).unwrap_or(i64::MAX)
}

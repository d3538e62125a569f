//! What each route does.

pub(crate) mod contexts;
pub(crate) mod execute;

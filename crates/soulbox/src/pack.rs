//! The files of a COPY, out of the build context and into an archive.
//!
//! The same files give the same archive, byte by byte, so that its hash says whether the server
//! has them already. What Docker means by several sources, patterns and folders is settled here:
//! the server only ever sees one file or one folder to copy.
//!
//! # Layout
//! - `pattern`: `*`, `?`, `[a-z]` and `**`
//! - `ignore`: `.dockerignore`
//! - `select`: which files a source names
//! - `archive`: the tar file and its hash

mod archive;
mod ignore;
mod pattern;
mod select;

pub(crate) use archive::{Archive, InlineFile};
pub(crate) use ignore::Ignore;
pub(crate) use select::{Context, Selection};

//! Files with holes, such as disk images: a copy has the same holes, or shares the blocks where the
//! file system can, and a checksum does not depend on where they are. Everything here blocks.
//!
//! # Layout
//! - `copy`: copies, and making a copy equal again
//! - `checksum`: what is in a file

mod checksum;
mod copy;

pub use checksum::{Checksum, checksum};
pub use copy::{copy, copy_differences, copy_sparse, data_ranges, new_image, share_blocks};

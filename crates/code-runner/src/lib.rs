//! Runs a piece of code in any installed language, compiled where it must be.
//!
//! Everything happens through envd, so it works in every sandbox, whatever its template.
//!
//! # Layout
//! - `executor`: one execution in one sandbox
//! - `language`: how each language is recognised, compiled and run
//! - `request`: what is to be run, and what came of it

mod error;
mod executor;
mod language;
mod request;

pub use error::{Error, Result};
pub use executor::Executor;
pub use language::{LANGUAGES, Language, find};
pub use request::{Execution, Outcome, Phase};

//! `soulbox-interpreter`: runs code inside a sandbox. It speaks the protocol of E2B's code
//! interpreter, and starts the kernels behind it itself.
//!
//! # Layout
//! - [`http`]: accepting, routing, answers; [`routes`]: what each route does
//! - [`contexts`], [`context`]: kernels with their state; [`run`]: one execution; [`ndjson`], [`mime`]:
//!   what it tells
//! - [`kernel`]: kernels and how they are started; [`jupyter`], [`zmtp`]: the protocols they speak
//! - [`language`], [`envd`]: variables, and how each language is given them
//! - [`supervise`]: starts the server again

mod clock;
mod context;
mod contexts;
mod envd;
mod http;
mod jupyter;
mod kernel;
mod language;
mod memory;
mod mime;
mod ndjson;
mod options;
mod poll;
mod routes;
mod run;
mod server;
mod supervise;
mod zmtp;

use std::process::ExitCode;

use tokio::task::LocalSet;

use crate::options::Options;

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("soulbox-interpreter: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<ExitCode, server::Error> {
    let variable = |name: &str| std::env::var(name).ok();
    let Some(options) = Options::parse(std::env::args().skip(1), variable)? else {
        println!("soulbox-interpreter {}", env!("CARGO_PKG_VERSION"));
        return Ok(ExitCode::SUCCESS);
    };
    if options.supervise {
        return supervise::run().map_err(server::Error::Supervise);
    }
    memory::limit_heaps();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(2)
        .thread_stack_size(256 << 10)
        .build()
        .map_err(server::Error::Runtime)?;
    LocalSet::new().block_on(&runtime, server::serve(options))?;
    Ok(ExitCode::SUCCESS)
}

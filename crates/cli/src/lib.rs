//! The probity command line: arguments, progress, files and exit codes around the library crates.
//!
//! Standard output carries data, standard error everything else. Exit codes: 0 done, 1 done but something was left
//! unscored and `--strict` was given, 2 an error, 130 interrupted. A reader that closes the pipe early
//! changes no exit code; only a stream of answers ends there, with 0.

mod args;
mod config;
mod data;
mod demo;
mod determinism;
mod diff;
mod error;
mod events;
mod exit;
mod gate;
mod generate;
mod global;
mod groups;
mod import;
mod inspect;
mod interrupt;
mod label;
mod logprobs;
mod merge;
mod meta;
mod method;
mod metrics;
mod model;
mod options;
mod output;
mod plan_end;
mod progress;
mod prompts;
mod raw;
mod recipe;
mod reference;
mod report;
mod serve;
mod show;
mod slurm;
mod terminal;
mod verify;

use std::ffi::OsString;
use std::process::ExitCode;

#[cfg(fuzzing)]
pub use recipe::check_recipe;

/// What a model's chat template and tokenizer take is limited.
#[global_allocator]
static ALLOCATOR: probity_runtime::CountingAllocator = probity_runtime::CountingAllocator;

/// Runs the command that the process was given.
pub fn main() -> ExitCode {
    run(&std::env::args_os().collect::<Vec<_>>()).into()
}

/// Runs a command line, the program's name first; what the process is to end with.
pub fn run(arguments: &[OsString]) -> u8 {
    interrupt::survive_file_limits();
    make_pool();
    match args::parse(arguments) {
        Ok(invocation) => {
            let progress = invocation.global().progress;
            exit::report(invocation.run(arguments), progress)
        }
        Err(error) => exit::usage(&error),
    }
}

/// Makes the pool that metrics and checks of weights run on. Where the system has no threads for it, the process does
/// their work itself; made at its first use, the pool would end the process.
fn make_pool() {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    // A pool that could not be made is never tried again, so whether there are threads is tried before.
    let tried = std::thread::scope(|scope| {
        (0..processors).try_for_each(|_| std::thread::Builder::new().spawn_scoped(scope, || ()).map(drop))
    });
    let pool = rayon::ThreadPoolBuilder::new();
    let pool = if tried.is_ok() { pool } else { pool.num_threads(1).use_current_thread() };
    // An error here is one at its first use.
    let _ = pool.build_global();
}

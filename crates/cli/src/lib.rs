//! The command line of probity: arguments, progress, files and exit codes around the library crates.
//!
//! Data go to standard output, everything else to standard error. Exit codes: 0 success, 1 success but with `--strict`
//! something is unscored, 2 error, 130 interrupted. A reader that closes the pipe early does not change the exit code,
//! except that a stream of answers ends with 0.

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

/// Limits the memory used by a model's chat template and tokenizer.
#[global_allocator]
static ALLOCATOR: probity_runtime::CountingAllocator = probity_runtime::CountingAllocator;

/// Runs the command line of the process.
pub fn main() -> ExitCode {
    run(&std::env::args_os().collect::<Vec<_>>()).into()
}

/// Runs a command line, the program's name first, and returns the exit code.
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

/// Creates the thread pool for metrics and checks of weights. If the system has no threads left, the process works
/// without them; a pool created at its first use would abort the process.
fn make_pool() {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    // A failed pool is never retried, so a test thread is spawned first.
    let tried = std::thread::scope(|scope| {
        (0..processors).try_for_each(|_| std::thread::Builder::new().spawn_scoped(scope, || ()).map(drop))
    });
    let pool = rayon::ThreadPoolBuilder::new();
    let pool = if tried.is_ok() { pool } else { pool.num_threads(1).use_current_thread() };
    // An error here is reported at the first use.
    let _ = pool.build_global();
}

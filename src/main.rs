//! The `probity` binary; all code is in `probity-cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    probity_cli::main()
}

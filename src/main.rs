//! The `probity` binary; everything it does is in `probity-cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    probity_cli::main()
}

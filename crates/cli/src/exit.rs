//! How a command ends: exit codes, and errors as a person reads them.

use std::error::Error;
use std::io;
use std::process::ExitCode;

use serde_json::json;

use crate::interrupt::was_interrupted;
use crate::progress::{ProgressArg, emit};
use crate::terminal::{tell, visible};

/// A command that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Done {
    /// All is well.
    Success,
    /// `--strict` was given and some samples are unscored.
    Unscored,
    /// Scores that should be the same differ.
    Differs,
    /// Lines of the input were refused, or stages of a recipe failed, as was told; the others are done.
    InPart,
}

const ERROR: u8 = 2;
const INTERRUPTED: u8 = 130;

/// The exit code; an error is printed, as an event where progress is told so.
pub(crate) fn report(result: anyhow::Result<Done>, progress: ProgressArg) -> ExitCode {
    let error = match result {
        Ok(Done::Success) => return ExitCode::SUCCESS,
        Ok(Done::Unscored | Done::Differs) => return ExitCode::from(1),
        Ok(Done::InPart) => return ExitCode::from(ERROR),
        Err(error) => error,
    };
    if error.chain().any(closed_pipe) {
        return ExitCode::SUCCESS;
    }
    let (text, code) = if was_interrupted(&error) {
        ("interrupted; what was written is kept".to_owned(), INTERRUPTED)
    } else {
        (message(error.as_ref()), ERROR)
    };
    match progress {
        ProgressArg::Json => emit(&json!({"event": "error", "text": text, "code": code})),
        _ => tell(&text),
    }
    ExitCode::from(code)
}

/// Whether the reader of our output went away. Other pipes than standard output's are nobody's to close.
pub(crate) fn closed_pipe(cause: &(dyn Error + 'static)) -> bool {
    cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Help and version go to standard output and are no error; a usage error is told by clap.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    // A closed pipe while printing help is no error either.
    let _ = error.print();
    if error.use_stderr() { ExitCode::from(ERROR) } else { ExitCode::SUCCESS }
}

/// `error: …`, the causes that it does not mention itself, and the hints of all of them at the end. Control characters
/// are made visible.
pub(crate) fn message(error: &(dyn Error + 'static)) -> String {
    let mut said = String::new();
    let mut hints: Vec<String> = Vec::new();
    let mut cause = Some(error);
    while let Some(current) = cause {
        let text = current.to_string();
        // An error that quotes its cause may have the cause's hint in its middle.
        let mut what = String::new();
        for (index, part) in text.split("\n\nhint: ").enumerate() {
            match (index, part.split_once("\n\n")) {
                (0, _) => what.push_str(part),
                (_, Some((hint, rest))) => {
                    add(&mut hints, hint);
                    what.push_str(rest);
                }
                (_, None) => add(&mut hints, part),
            }
        }
        if said.is_empty() {
            said = format!("error: {what}");
        } else if !said.contains(&what) {
            said.push_str("\n  because ");
            said.push_str(&what.replace('\n', "\n  "));
        }
        cause = current.source();
    }
    for (index, hint) in hints.iter().enumerate() {
        said.push_str(if index == 0 { "\n\nhint: " } else { "\nhint: " });
        said.push_str(hint);
    }
    visible(&said)
}

fn add(hints: &mut Vec<String>, hint: &str) {
    if !hints.iter().any(|known| known == hint) {
        hints.push(hint.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read x: {source}\n\nhint: look for it")]
    struct Outer {
        source: Inner,
    }

    #[derive(Debug, thiserror::Error)]
    #[error("it is not there\n\nhint: try y")]
    struct Inner;

    #[derive(Debug, thiserror::Error)]
    #[error("the run stopped")]
    struct Top(#[source] Outer);

    #[test]
    fn causes_are_told_once_and_hints_come_last() {
        let said = message(&Top(Outer { source: Inner }));
        assert_eq!(
            said,
            "error: the run stopped\n  because cannot read x: it is not there\n\nhint: try y\nhint: look for it"
        );
    }

    #[test]
    fn a_hostile_name_in_an_error_cannot_write_to_the_terminal() {
        let said = message(anyhow::anyhow!("no file `\u{1b}[2J\u{202e}`").as_ref());
        assert_eq!(said, "error: no file `\\u{1b}[2J\\u{202e}`");
    }
}

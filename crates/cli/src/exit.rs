//! Exit codes, and error messages.

use std::error::Error;
use std::io;

use clap::error::{ContextKind, ContextValue};
use probity_session::{causes, message, was_interrupted};
use serde_json::json;

use crate::global::ProgressArg;
use crate::progress::emit;
use crate::terminal::eprint_wrapped;

/// A command that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Completed {
    /// Success.
    Success,
    /// `--strict` was set and some samples are unscored.
    Unscored,
    /// Scores that should be equal differ.
    Differs,
    /// Some lines, folders or stages failed with a message; the rest is done.
    InPart,
}

const SUCCESS: u8 = 0;
const ERROR: u8 = 2;
// Like shells after Ctrl-C: 128 plus the number of SIGINT.
const INTERRUPTED: u8 = 130;

/// Returns the exit code. Prints an error, as an event with `--progress json`.
pub(crate) fn report(result: miette::Result<Completed>, progress: ProgressArg) -> u8 {
    let error = match result {
        Ok(Completed::Success) => return SUCCESS,
        Ok(Completed::Unscored | Completed::Differs) => return 1,
        Ok(Completed::InPart) => return ERROR,
        Err(error) => error,
    };
    // The answers of `probity generate FILE | head` end when the reader has enough. Other commands continue without a
    // reader and keep their exit code.
    if causes(error.as_ref()).any(closed_pipe) {
        return SUCCESS;
    }
    let (text, code) = if was_interrupted(error.as_ref()) {
        ("interrupted; finished work is kept".to_owned(), INTERRUPTED)
    } else {
        (message(&*error), ERROR)
    };
    match progress {
        ProgressArg::Json => emit(&json!({"event": "error", "text": text, "code": code})),
        _ => eprint_wrapped(&text),
    }
    code
}

/// Whether the reader of our output is gone. Only standard output counts.
pub(crate) fn closed_pipe(cause: &(dyn Error + 'static)) -> bool {
    cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Help and version go to standard output and are no error. clap reports usage errors; a missing model, which is common
/// for new users, gets our own message.
pub(crate) fn usage(error: &clap::Error) -> u8 {
    // A closed pipe while printing help is no error either.
    let _ = match meant_gold(error) {
        Some(meant) => meant.print(),
        None => error.print(),
    };
    if lacks_model(error) {
        eprint_wrapped(
            "\nhint: `probity model list` lists the known models, `probity model get NAME` downloads one; a folder or \
             a .gguf file works too. Set PROBITY_MODEL=NAME for all commands",
        );
    }
    if error.use_stderr() { ERROR } else { SUCCESS }
}

/// Suggests the right option: `meta` has no `--data`, and clap would suggest an unrelated one with a similar name.
fn meant_gold(error: &clap::Error) -> Option<clap::Error> {
    let unknown = (error.kind() == clap::error::ErrorKind::UnknownArgument).then_some(error)?;
    let is = |kind, name: &str| matches!(unknown.get(kind), Some(ContextValue::String(text)) if text == name);
    let is_of_meta = matches!(unknown.get(ContextKind::Usage), Some(ContextValue::StyledStr(usage)) if usage.to_string().contains("probity meta "));
    (is(ContextKind::InvalidArg, "--data") && is_of_meta).then(|| {
        let mut meant = clap::Error::new(unknown.kind());
        meant.insert(ContextKind::InvalidArg, ContextValue::String("--data".to_owned()));
        meant.insert(ContextKind::SuggestedArg, ContextValue::String("--gold".to_owned()));
        meant
    })
}

/// Whether the missing argument is a model.
fn lacks_model(error: &clap::Error) -> bool {
    let missing =
        error.get(ContextKind::InvalidArg).filter(|_| error.kind() == clap::error::ErrorKind::MissingRequiredArgument);
    matches!(missing, Some(ContextValue::Strings(names)) if names.iter().any(|name| name.starts_with("--model ")))
}

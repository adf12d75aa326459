//! The text of an error, with its causes and all their hints.

use std::error::Error;
use std::fmt::{self, Display};

use miette::Diagnostic;
use probity_lm::BoxedError;
use probity_report::text::visible;

/// The text of an error.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ErrorText {
    /// Its message, and the causes that it does not mention, each after `because`.
    pub what: String,
    /// The hints of the error and its causes, without duplicates.
    pub hints: Vec<String>,
}

impl ErrorText {
    /// The text of an error with its causes.
    pub fn from_error(error: &dyn Diagnostic) -> Self {
        let mut told = Self::from(error.to_string());
        told.add_causes(error);
        told
    }

    /// Adds a hint.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.add_hint(hint.into());
        self
    }

    /// Prefixes the option.
    #[must_use]
    pub fn about(self, option: &str) -> Self {
        Self { what: format!("`{option}`: {}", self.what), ..self }
    }

    /// Hints follow the order of the text: if an error quotes its cause, the cause's hints come first.
    fn add_causes(&mut self, error: &dyn Diagnostic) {
        let Some(cause) = error.diagnostic_source() else {
            self.add_hints(error);
            // All further causes come from libraries and have no hints.
            let plain = std::iter::successors(error.source(), |&cause| cause.source());
            plain.for_each(|cause| self.add_cause(&cause.to_string()));
            return;
        };
        let text = cause.to_string();
        if error.to_string().contains(&text) {
            self.add_causes(cause);
            self.add_hints(error);
        } else {
            self.add_hints(error);
            self.add_cause(&text);
            self.add_causes(cause);
        }
    }

    fn add_cause(&mut self, text: &str) {
        if !self.what.contains(text) {
            self.what.push_str("\n  because ");
            self.what.push_str(&text.replace('\n', "\n  "));
        }
    }

    fn add_hints(&mut self, error: &dyn Diagnostic) {
        if let Some(help) = error.help() {
            help.to_string().lines().for_each(|hint| self.add_hint(hint.to_owned()));
        }
    }

    fn add_hint(&mut self, hint: String) {
        if !self.hints.contains(&hint) {
            self.hints.push(hint);
        }
    }
}

impl<T: Into<String>> From<T> for ErrorText {
    fn from(what: T) -> Self {
        Self { what: what.into(), hints: Vec::new() }
    }
}

impl Display for ErrorText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        for (index, hint) in self.hints.iter().enumerate() {
            f.write_str(if index == 0 { "\n\nhint: " } else { "\nhint: " })?;
            f.write_str(hint)?;
        }
        Ok(())
    }
}

/// `error: …`, the causes that it does not mention, then all hints. Control characters are escaped.
pub fn message(error: &dyn Diagnostic) -> String {
    visible(&format!("error: {}", ErrorText::from_error(error)))
}

/// The error and its causes with their own types, without boxes around them.
pub fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(unboxed(error)), |&error| error.source().map(unboxed))
}

fn unboxed<'e>(error: &'e (dyn Error + 'static)) -> &'e (dyn Error + 'static) {
    match error.downcast_ref::<BoxedError>() {
        Some(inner) => unboxed(&**inner),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use probity_lm::LmError;

    use super::*;
    use crate::{Interrupted, SessionError};

    #[derive(Debug, thiserror::Error, Diagnostic)]
    #[error("cannot read x: {source}")]
    #[diagnostic(help("look for it"))]
    struct OuterError {
        #[diagnostic_source]
        source: Inner,
    }

    #[derive(Debug, thiserror::Error, Diagnostic)]
    #[error("it is not there")]
    #[diagnostic(help("try y\ntry z"))]
    struct Inner;

    #[derive(Debug, thiserror::Error, Diagnostic)]
    #[error("the run stopped")]
    #[diagnostic(help("begin again"))]
    struct Top(
        #[source]
        #[diagnostic_source]
        BoxedError,
    );

    #[test]
    fn causes_are_told_once_and_hints_come_last() {
        let told = message(&Top(Box::new(OuterError { source: Inner })));
        assert_eq!(
            told,
            "error: the run stopped\n  because cannot read x: it is not there\n\nhint: begin again\nhint: try y\nhint: \
             try z\nhint: look for it"
        );
        let refused = std::io::Error::other("no such file");
        let io = SessionError::Io { path: "a".into(), source: refused };
        assert_eq!(message(&io), "error: cannot read a\n  because no such file");
    }

    #[test]
    fn a_cause_in_a_box_is_found_by_its_type() {
        let error = Top(Box::new(OuterError { source: Inner }));
        assert!(causes(&error).any(<dyn Error>::is::<OuterError>) && causes(&error).any(<dyn Error>::is::<Inner>));
        assert!(crate::was_interrupted(&SessionError::Interrupted(Interrupted)));
        assert!(crate::was_interrupted(&LmError::Sink(Box::new(Interrupted))));
    }

    #[test]
    fn a_hostile_name_in_an_error_cannot_write_to_the_terminal() {
        let problems = SessionError::Problems { what: "no file `\u{1b}[2J\u{202e}`".to_owned(), hints: None };
        assert_eq!(message(&problems), "error: no file `\\u{1b}[2J\\u{202e}`");
    }
}

//! Formats errors for tests that search for words in them.

use miette::Diagnostic;

/// The error's text, its hint and those of its causes, one per line.
pub(crate) fn error_text(error: &dyn Diagnostic) -> String {
    let mut text = error.to_string();
    let mut next = Some(error);
    while let Some(error) = next {
        text.extend(error.help().map(|hint| format!("\nhint: {hint}")));
        next = error.diagnostic_source();
    }
    text
}

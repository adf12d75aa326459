//! What an error says, for tests that look for words in it.

use miette::Diagnostic;

/// Its text, its hint and those of its causes, a line each.
pub(crate) fn told(error: &dyn Diagnostic) -> String {
    let mut text = error.to_string();
    let mut next = Some(error);
    while let Some(error) = next {
        text.extend(error.help().map(|hint| format!("\nhint: {hint}")));
        next = error.diagnostic_source();
    }
    text
}

//! Ids as small numbers, in the order of their first appearance.

use std::collections::HashMap;

/// Texts by number and numbers by text.
#[derive(Debug, Default)]
pub(crate) struct Names {
    texts: Vec<String>,
    // Looked up alone, so its order does not matter.
    numbers: HashMap<String, u32>,
}

impl Names {
    /// The number of a text, a new one where it has none.
    pub(crate) fn number(&mut self, text: &str) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.texts.len() as u32;
        self.texts.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }

    /// The number of a text that is known.
    pub(crate) fn find(&self, text: &str) -> Option<u32> {
        self.numbers.get(text).copied()
    }

    pub(crate) fn text(&self, number: u32) -> &str {
        &self.texts[number as usize]
    }

    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().map(String::as_str)
    }

    pub(crate) fn len(&self) -> usize {
        self.texts.len()
    }
}

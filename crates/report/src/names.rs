//! Interned strings, numbered by first appearance.

use std::collections::HashMap;

/// Strings by number and numbers by string.
#[derive(Debug, Default)]
pub(crate) struct Names {
    texts: Vec<String>,
    // Only used for lookups, so its order does not matter.
    numbers: HashMap<String, u32>,
}

impl Names {
    /// Number of a string, which is added if new.
    pub(crate) fn number(&mut self, text: &str) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.texts.len() as u32;
        self.texts.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }

    /// Number of a known string.
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

//! Prompts that ship with probity.

use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use crate::template::variables;

/// The maximum number of texts in a list; the lines around them are guarded.
pub const MAX_LIST: usize = 32;

/// A slot for text from data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataSlot {
    /// The variable in the template.
    pub name: &'static str,
    /// The template must use it. Otherwise a sample may lack it, and the template needs `{% if name %}`.
    pub required: bool,
    /// It holds a list of at most [`MAX_LIST`] texts, and the template needs `{% for one in name %}`.
    pub list: bool,
}

impl DataSlot {
    /// A text that the template must use.
    pub const fn required(name: &'static str) -> Self {
        Self { name, required: true, list: false }
    }

    /// A text that samples may lack.
    pub const fn optional(name: &'static str) -> Self {
        Self { name, required: false, list: false }
    }

    /// A list of texts.
    pub const fn list(name: &'static str) -> Self {
        Self { name, required: false, list: true }
    }
}

/// The rows of a JSONL file that ships with probity.
pub fn built_in_rows<T: DeserializeOwned>(file: &str) -> Vec<T> {
    file.lines().map(|line| serde_json::from_str(line).expect("a row of this form")).collect()
}

/// A prompt that ships with probity; a user's file can replace it.
#[derive(Debug, Clone, Copy)]
pub struct Builtin {
    /// Its name within the method.
    pub name: &'static str,
    /// The template.
    pub source: &'static str,
    /// The variables filled from data; all others are settings. A replacement file has the same variables.
    pub data: &'static [DataSlot],
}

impl Builtin {
    /// The name, as on the command line.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The file: a Jinja template that begins with a comment about itself.
    pub fn source(&self) -> &'static str {
        self.source
    }

    /// SHA-256 of the file in hex, as in signatures.
    pub fn sha256(&self) -> String {
        format!("{:x}", Sha256::digest(self.source.as_bytes()))
    }

    /// The file's first comment, without indentation.
    pub fn about(&self) -> String {
        let comment =
            self.source.split_once("{#").and_then(|(_, rest)| rest.split_once("#}")).map_or("", |(comment, _)| comment);
        comment.trim().lines().map(str::trim).collect::<Vec<_>>().join("\n")
    }

    /// The slots for texts from data, sorted by name.
    pub fn data_slots(&self) -> Vec<&'static str> {
        let mut names: Vec<&str> = self.data.iter().map(|slot| slot.name).collect();
        names.sort_unstable();
        names
    }

    /// The slots for settings, sorted by name.
    pub fn settings(&self) -> Vec<String> {
        // Read from the template instead of a separate list, so that no slot is missed.
        let used = variables(self.source).unwrap_or_default();
        used.into_iter().filter(|name| self.data.iter().all(|slot| slot.name != name)).collect()
    }
}

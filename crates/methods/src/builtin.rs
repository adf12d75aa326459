//! Prompts that ship with probity.

use sha2::{Digest, Sha256};

use crate::template::variables;

/// The most texts that a list may hold: the lines around so many are guarded.
pub const MAX_LIST: usize = 32;

/// A slot for text from data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataSlot {
    /// The variable in the template.
    pub name: &'static str,
    /// The template must use it; otherwise it may be absent from a sample, and the template says `{% if name %}`.
    pub required: bool,
    /// It holds a list of texts, at most [`MAX_LIST`], and the template says `{% for one in name %}`.
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

/// A prompt that ships with probity, which a file of the user's can take the place of.
#[derive(Debug, Clone, Copy)]
pub struct Builtin {
    /// Its name within the method.
    pub name: &'static str,
    /// The template.
    pub source: &'static str,
    /// What is filled in from data; all else are settings. A file in its place has the same.
    pub data: &'static [DataSlot],
}

impl Builtin {
    /// The name, as it is given on the command line.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The file: a Jinja template that begins with a comment about itself.
    pub fn source(&self) -> &'static str {
        self.source
    }

    /// SHA-256 of the file, in hex, as in signatures.
    pub fn sha256(&self) -> String {
        format!("{:x}", Sha256::digest(self.source.as_bytes()))
    }

    /// What the file's first comment says, each line without its indentation.
    pub fn about(&self) -> String {
        let comment =
            self.source.split_once("{#").and_then(|(_, rest)| rest.split_once("#}")).map_or("", |(comment, _)| comment);
        comment.trim().lines().map(str::trim).collect::<Vec<_>>().join("\n")
    }

    /// The slots that hold texts from data, in the order of their names.
    pub fn data_slots(&self) -> Vec<&'static str> {
        let mut names: Vec<&str> = self.data.iter().map(|slot| slot.name).collect();
        names.sort_unstable();
        names
    }

    /// The slots that this file has for settings, in the order of their names.
    pub fn settings(&self) -> Vec<String> {
        // Read off the file and not listed beside it, so that a slot cannot be forgotten.
        let used = variables(self.source).unwrap_or_default();
        used.into_iter().filter(|name| self.data.iter().all(|slot| slot.name != name)).collect()
    }
}

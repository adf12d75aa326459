//! Splits a growing text into thoughts and answer.

use crate::ThinkingStyle;
use crate::thinking::without_cut_mark;

/// A part of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TextPart {
    /// Of a thought.
    Thought(String),
    /// Of the answer.
    Answer(String),
}

/// Splits a text that comes in pieces into a thought at its beginning and the answer after it. White space beside the
/// marks belongs to neither.
#[derive(Debug, Clone)]
pub struct ThoughtReader {
    open: String,
    /// Marks that end a thought, the longest first.
    closes: Vec<String>,
    section: Section,
    /// Text that may begin a mark, and white space that may end a thought.
    pending: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Section {
    /// At the beginning, where a thought may open.
    Start,
    Thought,
    /// After a thought, before the answer's first character.
    AfterThought,
    Answer,
}

impl ThoughtReader {
    /// A reader for a model's texts. `is_open`: the prompt ends within a thought.
    pub fn new(style: &ThinkingStyle, is_open: bool) -> Self {
        let mut closes = style.stops();
        closes.sort_by_key(|close| std::cmp::Reverse(close.len()));
        let section = if is_open { Section::Thought } else { Section::Start };
        Self { open: style.open.trim().to_owned(), closes, section, pending: String::new() }
    }

    /// The parts that are certain after this piece.
    pub fn push(&mut self, piece: &str) -> Vec<TextPart> {
        self.pending.push_str(piece);
        let mut parts = Vec::new();
        while self.step(false, &mut parts) {}
        parts
    }

    /// The remaining parts when the text is complete.
    pub fn finish(mut self) -> Vec<TextPart> {
        if self.section == Section::Thought {
            self.pending = without_cut_mark(&self.pending, &self.closes).trim_end().to_owned();
        }
        let mut parts = Vec::new();
        while self.step(true, &mut parts) {}
        parts
    }

    /// The thought, if there is one, and the answer of a complete text.
    pub fn split(mut self, text: &str) -> (Option<String>, String) {
        let mut parts = self.push(text);
        parts.extend(self.finish());
        let (mut thought, mut answer) = (String::new(), String::new());
        for part in parts {
            match part {
                TextPart::Thought(text) => thought.push_str(&text),
                TextPart::Answer(text) => answer.push_str(&text),
            }
        }
        ((!thought.is_empty()).then_some(thought), answer)
    }

    /// One step on the pending text; `false` if more text is needed, or none is left.
    fn step(&mut self, is_last: bool, parts: &mut Vec<TextPart>) -> bool {
        match self.section {
            Section::Start => {
                let text = self.pending.trim_start();
                if !self.open.is_empty() && text.starts_with(&self.open) {
                    self.pending = text[self.open.len()..].to_owned();
                    self.section = Section::Thought;
                } else if let Some(close) = self.closes.iter().map(|one| mark(one)).find(|one| text.starts_with(one)) {
                    // No thought at all.
                    self.pending = text[close.len()..].to_owned();
                    self.section = Section::AfterThought;
                } else if is_last || !(text.is_empty() || self.begins_mark(text)) {
                    self.section = Section::Answer;
                } else {
                    return false;
                }
                true
            }
            Section::Thought => {
                let found = self.closes.iter().filter_map(|close| Some((self.pending.find(close)?, close.len())));
                if let Some((at, length)) = found.min_by_key(|(at, length)| (*at, std::cmp::Reverse(*length))) {
                    let thought = self.pending[..at].trim_end().to_owned();
                    self.pending.drain(..at + length);
                    self.section = Section::AfterThought;
                    parts.extend((!thought.is_empty()).then_some(TextPart::Thought(thought)));
                    return true;
                }
                let sure = if is_last { self.pending.len() } else { self.sure() };
                let text = self.take(sure);
                parts.extend(text.clone().map(TextPart::Thought));
                text.is_some()
            }
            Section::AfterThought => {
                self.pending = self.pending.trim_start().to_owned();
                self.section = if self.pending.is_empty() { Section::AfterThought } else { Section::Answer };
                self.section == Section::Answer
            }
            Section::Answer => {
                let text = self.take(self.pending.len());
                parts.extend(text.clone().map(TextPart::Answer));
                text.is_some()
            }
        }
    }

    fn begins_mark(&self, text: &str) -> bool {
        self.open.starts_with(text) || self.closes.iter().any(|close| mark(close).starts_with(text))
    }

    /// Length of the pending text that begins no closing mark and no white space before one.
    fn sure(&self) -> usize {
        let text = &self.pending;
        let begins = |at: usize| self.closes.iter().any(|close| close.starts_with(&text[at..]));
        let end = text.char_indices().map(|(at, _)| at).find(|at| begins(*at)).unwrap_or(text.len());
        text[..end].trim_end().len()
    }

    fn take(&mut self, length: usize) -> Option<String> {
        (length > 0).then(|| self.pending.drain(..length).collect())
    }
}

/// A closing text without the role before its mark, which the prompt may have written.
fn mark(close: &str) -> &str {
    close.find(['<', '[', '◁']).map_or(close, |start| &close[start..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OpenedBy;

    fn style(open: &str, close: &str) -> ThinkingStyle {
        ThinkingStyle {
            opened_by: OpenedBy::Model,
            open: open.to_owned(),
            close: close.to_owned(),
            off: None,
            on: None,
        }
    }

    /// Split as a whole, and letter by letter.
    fn split(style: &ThinkingStyle, is_open: bool, text: &str) -> (Option<String>, String) {
        let whole = ThoughtReader::new(style, is_open).split(text);
        let mut reader = ThoughtReader::new(style, is_open);
        let mut parts: Vec<TextPart> = text.chars().flat_map(|letter| reader.push(&letter.to_string())).collect();
        parts.extend(reader.finish());
        let (mut thought, mut answer) = (String::new(), String::new());
        for part in parts {
            match part {
                TextPart::Thought(text) => thought.push_str(&text),
                TextPart::Answer(text) => answer.push_str(&text),
            }
        }
        assert_eq!((whole.0.clone().unwrap_or_default(), whole.1.clone()), (thought, answer), "{text}");
        whole
    }

    #[test]
    fn thought_and_answer_are_apart_wherever_the_text_is_cut() {
        let qwen = style("<think>\n", "\n</think>\n\n");
        let thought = |thought: &str, answer: &str| (Some(thought.to_owned()), answer.to_owned());
        let none = |answer: &str| (None, answer.to_owned());
        for (is_open, text, expected) in [
            (false, "<think>\nWhy not?\n</think>\n\nYes.\n", thought("\nWhy not?", "Yes.\n")),
            (true, "Why not?\n</think>\n\nYes.", thought("Why not?", "Yes.")),
            (false, "Yes.", none("Yes.")),
            (false, "<thin ice", none("<thin ice")),
            (false, "Yes, <think> is a mark.", none("Yes, <think> is a mark.")),
            (true, "Still thinking </thin", thought("Still thinking", "")),
            (false, "<think>\n\n</think>\n\nYes.", none("Yes.")),
            (true, "", none("")),
        ] {
            assert_eq!(split(&qwen, is_open, text), expected, "{text}");
        }
        let harmony = style("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>");
        let text = "<|channel|>analysis<|message|>The assistant asks.assistant<|channel|>final<|message|>Yes.";
        assert_eq!(split(&harmony, false, text), thought("The assistant asks.", "Yes."));
        assert_eq!(split(&harmony, false, "<|channel|>final<|message|>Yes."), none("Yes."));
        let cut = "<|channel|>analysis<|message|>A banana.assistant<|channel|>f";
        assert_eq!(split(&harmony, false, cut), thought("A banana.", ""));
        assert_eq!(split(&harmony, false, "<|channel|>analysis<|message|>A banana"), thought("A banana", ""));
    }
}

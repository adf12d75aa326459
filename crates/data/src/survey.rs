//! Streaming statistics of a file of samples.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::line_error::excerpt;
use crate::{Preference, Sample};

/// Texts with more characters than this cause a warning.
pub const LONG_TEXT: usize = 100_000;

/// Counts over samples. Memory use depends on the number of attributes, not of samples.
#[derive(Debug, Default, Serialize)]
pub struct SampleSurvey {
    /// Number of samples.
    pub samples: usize,
    /// Number of candidates in all samples.
    pub candidates: usize,
    /// Number of references in all samples.
    pub references: usize,
    /// Number of samples with an instruction.
    pub instructions: usize,
    /// Number of samples with a preferred candidate.
    pub preferences: usize,
    /// Number of samples whose preference is a tie.
    pub ties: usize,
    /// Length of the longest text, in characters.
    pub longest_text: usize,
    /// Gold scores by attribute.
    pub attributes: BTreeMap<String, ScoreSurvey>,
    /// Number of warnings of each kind.
    pub warnings: BTreeMap<WarningKind, usize>,
    /// The first warnings.
    #[serde(rename = "first_warnings")]
    pub kept: Vec<SampleWarning>,
    #[serde(skip)]
    keep: usize,
}

/// Gold scores of one attribute.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct ScoreSurvey {
    /// Number of candidates with a score.
    pub candidates: usize,
    /// Lowest score.
    pub lowest: f64,
    /// Highest score.
    pub highest: f64,
}

/// Possible defect of a valid sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WarningKind {
    /// A candidate without text: methods return the outcome `empty` for it.
    EmptyCandidate,
    /// Neither context nor instruction.
    EmptyContext,
    /// Two candidates with the same text.
    IdenticalCandidates,
    /// Only one candidate, so nothing to compare.
    SingleCandidate,
    /// A text of more than [`LONG_TEXT`] characters.
    LongText,
    /// A control character, one that reorders or hides text, or the replacement character.
    OddCharacter,
}

impl WarningKind {
    /// Description for users.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::EmptyCandidate => "empty candidate",
            Self::EmptyContext => "neither context nor instruction",
            Self::IdenticalCandidates => "identical candidates",
            Self::SingleCandidate => "a single candidate",
            Self::LongText => "very long text",
            Self::OddCharacter => "control, invisible or undecodable character",
        }
    }
}

/// A warning and its location.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SampleWarning {
    /// Number of the line or row, in the unit of the file.
    pub line: usize,
    /// Path of the field.
    pub field: String,
    /// Kind of warning.
    pub kind: WarningKind,
    /// Further detail; may be empty.
    pub detail: String,
}

impl fmt::Display for SampleWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "field `{}`: {}", self.field, self.kind.as_str())?;
        if self.detail.is_empty() { Ok(()) } else { write!(f, ", {}", self.detail) }
    }
}

impl SampleSurvey {
    /// An empty survey that keeps at most `warnings` warnings.
    pub fn keeping(warnings: usize) -> Self {
        Self { keep: warnings, ..Self::default() }
    }

    /// Counts a sample on `line`.
    pub fn add(&mut self, line: usize, sample: &Sample) {
        self.samples += 1;
        self.candidates += sample.candidates.len();
        self.references += sample.references.len();
        self.instructions += usize::from(sample.instruction.is_some());
        match &sample.preference {
            Some(Preference::Candidate(_)) => self.preferences += 1,
            Some(Preference::Tie) => self.ties += 1,
            None => {}
        }
        for (attribute, &score) in sample.candidates.iter().flat_map(|candidate| &candidate.scores) {
            let none = ScoreSurvey { candidates: 0, lowest: score, highest: score };
            let scores = self.attributes.entry(attribute.clone()).or_insert(none);
            scores.candidates += 1;
            scores.lowest = scores.lowest.min(score);
            scores.highest = scores.highest.max(score);
        }
        self.look_at(line, sample);
    }

    fn look_at(&mut self, line: usize, sample: &Sample) {
        let instruction = sample.instruction.as_deref().unwrap_or_default();
        if sample.context.trim().is_empty() && instruction.trim().is_empty() {
            self.warn(line, "context".into(), WarningKind::EmptyContext, String::new());
        }
        if sample.candidates.len() == 1 {
            self.warn(line, "candidates".into(), WarningKind::SingleCandidate, String::new());
        }
        self.text(line, || "context".into(), &sample.context);
        self.text(line, || "instruction".into(), instruction);
        let mut first_of_text = BTreeMap::new();
        for (index, candidate) in sample.candidates.iter().enumerate() {
            let field = || format!("candidates[{index}].text");
            if candidate.text.trim().is_empty() {
                self.warn(line, field(), WarningKind::EmptyCandidate, format!("`{}`", excerpt(&candidate.id)));
            } else if let Some(first) = first_of_text.insert(&*candidate.text, &candidate.id) {
                let detail = format!("`{}` and `{}`", excerpt(first), excerpt(&candidate.id));
                self.warn(line, field(), WarningKind::IdenticalCandidates, detail);
            }
            self.text(line, field, &candidate.text);
        }
        for (index, reference) in sample.references.iter().enumerate() {
            self.text(line, || format!("references[{index}]"), reference);
        }
    }

    fn text(&mut self, line: usize, field: impl Fn() -> String, text: &str) {
        let characters = text.chars().count();
        self.longest_text = self.longest_text.max(characters);
        if characters > LONG_TEXT {
            self.warn(line, field(), WarningKind::LongText, format!("{characters} characters"));
        }
        if let Some(odd) = text.chars().find(|&c| is_odd(c)) {
            self.warn(line, field(), WarningKind::OddCharacter, format!("U+{:04X}", u32::from(odd)));
        }
    }

    fn warn(&mut self, line: usize, field: String, kind: WarningKind, detail: String) {
        *self.warnings.entry(kind).or_default() += 1;
        // Further warnings are only counted: a broken export may have one on every line.
        if self.kept.len() < self.keep {
            self.kept.push(SampleWarning { line, field, kind, detail });
        }
    }
}

fn is_odd(c: char) -> bool {
    let bidirectional =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    // The last range are tag characters: whole ASCII texts that no font shows.
    let invisible =
        matches!(c, '\u{200b}' | '\u{2028}' | '\u{2029}' | '\u{2060}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}');
    (c.is_control() && !matches!(c, '\n' | '\r' | '\t')) || bidirectional || invisible || c == '\u{fffd}'
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Candidate, KEPT};

    fn sample(context: &str, texts: &[&str]) -> Sample {
        let candidate = |(i, text): (usize, &&str)| Candidate {
            id: format!("c{i}"),
            text: (*text).to_owned().into(),
            scores: BTreeMap::from([("f".to_owned(), i as f64)]),
        };
        Sample {
            id: "s".into(),
            context: context.into(),
            instruction: None,
            texts: BTreeMap::new(),
            candidates: texts.iter().enumerate().map(candidate).collect(),
            references: vec!["r".into()],
            preference: Some(Preference::Tie),
        }
    }

    #[test]
    fn what_there_is_is_counted() {
        let mut survey = SampleSurvey::keeping(KEPT);
        survey.add(1, &sample("good", &["a", "b"]));
        survey.add(2, &sample("good", &["a", "b", "longest"]));
        assert_eq!(
            (survey.samples, survey.candidates, survey.references, survey.ties, survey.longest_text),
            (2, 5, 2, 2, 7)
        );
        let scores = survey.attributes["f"];
        assert_eq!((scores.candidates, scores.lowest, scores.highest), (5, 0.0, 2.0));
        assert!(survey.warnings.is_empty());
    }

    #[test]
    fn each_kind_of_warning_says_where() {
        let mut survey = SampleSurvey::keeping(KEPT);
        survey.add(7, &sample(" ", &["same\u{202e}", "same\u{202e}", ""]));
        survey.add(8, &sample(&"x".repeat(LONG_TEXT + 1), &["y"]));
        let told: Vec<String> = survey.kept.iter().map(|w| format!("{}: {w}", w.line)).collect();
        assert_eq!(
            told,
            [
                "7: field `context`: neither context nor instruction",
                "7: field `candidates[0].text`: control, invisible or undecodable character, U+202E",
                "7: field `candidates[1].text`: identical candidates, `c0` and `c1`",
                "7: field `candidates[1].text`: control, invisible or undecodable character, U+202E",
                "7: field `candidates[2].text`: empty candidate, `c2`",
                "8: field `candidates`: a single candidate",
                "8: field `context`: very long text, 100001 characters",
            ]
        );
    }

    #[test]
    fn warnings_are_kept_up_to_a_thousand_and_counted_beyond() {
        let mut survey = SampleSurvey::keeping(KEPT);
        (1..=KEPT + 5).for_each(|line| survey.add(line, &sample("c", &["a", ""])));
        assert_eq!((survey.kept.len(), survey.warnings[&WarningKind::EmptyCandidate]), (KEPT, KEPT + 5));
    }
}

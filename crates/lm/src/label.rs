//! Labels of a verdict and their surface forms as disjoint token sequences.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A label and its surface forms.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Label {
    /// Name in results.
    pub name: String,
    /// Surface forms. The label's probability is the sum over those with distinct tokens.
    pub variants: Vec<String>,
}

/// Whether a label's probability includes the end of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Termination {
    /// P(answer *starts with* the variant). Rejects a variant that is a token prefix of another label's.
    #[default]
    Open,
    /// P(answer *is* the variant), including the model's end-of-turn token. Allows both `1` and `10` as labels.
    EndOfTurn,
}

/// A set of labels, checked by [`LabelSet::new`] as far as possible without a tokenizer.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct LabelSet {
    labels: Vec<Label>,
    termination: Termination,
}

/// A deserialised [`LabelSet`] before validation.
#[derive(Deserialize)]
struct Unchecked {
    labels: Vec<Label>,
    termination: Termination,
}

impl TryFrom<Unchecked> for LabelSet {
    type Error = LabelError;

    fn try_from(read: Unchecked) -> Result<Self, LabelError> {
        // Sets can come from files of other programs, so they pass the same checks as those built here.
        Ok(Self::new(read.labels)?.with_termination(read.termination))
    }
}

/// Why a label set is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
pub enum LabelError {
    /// The set is empty.
    #[error("a label set needs at least one label")]
    NoLabels,
    /// Two labels have the same name.
    #[error("duplicate label `{0}`")]
    DuplicateName(String),
    /// A label has no variant.
    #[error("label `{0}` has no variants")]
    NoVariants(String),
    /// A variant is empty.
    #[error("label `{0}` has an empty variant")]
    EmptyVariant(String),
    /// A variant has no tokens.
    #[error("variant `{variant}` of label `{label}` has no tokens of its own after the prompt")]
    NoTokens {
        /// The label's name.
        label: String,
        /// The surface form.
        variant: String,
    },
    /// Two labels share a token sequence, so no answer can tell them apart.
    #[error("labels `{first}` and `{second}` share the tokens of `{variant}`")]
    #[diagnostic(help("choose label words that differ in their first token"))]
    SameTokens {
        /// The first of the two labels in the set.
        first: String,
        /// The other label.
        second: String,
        /// The first label's variant. The other's may be a different text with the same tokens.
        variant: String,
    },
    /// One label's tokens are a prefix of another's, so an answer that starts with them is ambiguous. Does not occur
    /// with terminated labels.
    #[error(
        "variant `{short}` of label `{short_label}` is a prefix of variant `{long}` of label `{long_label}` in this \
         model's tokens"
    )]
    #[diagnostic(help("choose label words that differ in their first token"))]
    Prefix {
        /// Label of the shorter variant.
        short_label: String,
        /// The shorter variant.
        short: String,
        /// Label of the longer variant.
        long_label: String,
        /// The longer variant.
        long: String,
    },
}

impl LabelSet {
    /// Checks names and variants. [`resolve_variants`] checks token prefixes once a tokenizer is available.
    pub fn new(labels: Vec<Label>) -> Result<Self, LabelError> {
        if labels.is_empty() {
            return Err(LabelError::NoLabels);
        }
        let mut names = BTreeSet::new();
        for label in &labels {
            if !names.insert(&label.name) {
                return Err(LabelError::DuplicateName(label.name.clone()));
            }
            if label.variants.is_empty() {
                return Err(LabelError::NoVariants(label.name.clone()));
            }
            if label.variants.iter().any(String::is_empty) {
                return Err(LabelError::EmptyVariant(label.name.clone()));
            }
        }
        Ok(Self { labels, termination: Termination::Open })
    }

    /// Labels with two variants: the word alone and the word after a space. `A` becomes `["A", " A"]`.
    pub fn from_words<S: AsRef<str>>(words: impl IntoIterator<Item = S>) -> Result<Self, LabelError> {
        // Which of the two a model writes depends on its tokenizer and on the preceding text. With `A` alone, the mass
        // of ` A` would be lost.
        let label = |word: &str| Label { name: word.to_owned(), variants: vec![word.to_owned(), format!(" {word}")] };
        Self::new(words.into_iter().map(|word| label(word.as_ref())).collect())
    }

    /// The same labels with another [`Termination`].
    #[must_use]
    pub fn with_termination(mut self, termination: Termination) -> Self {
        self.termination = termination;
        self
    }

    /// The labels in their original order.
    pub fn labels(&self) -> &[Label] {
        &self.labels
    }

    /// How the labels end.
    pub fn termination(&self) -> Termination {
        self.termination
    }
}

/// Resolves a label set into disjoint token sequences. `sequences[l][v]` holds the tokens of variant `v` of label `l`.
///
/// Within a label, variants with equal tokens count once, and a variant that starts with another is dropped. Between
/// labels, equal tokens or a prefix make the verdict ambiguous and return an error with both variants.
pub fn resolve_variants(set: &LabelSet, sequences: &[Vec<Vec<u32>>]) -> Result<Vec<Vec<Vec<u32>>>, LabelError> {
    let label = |l: usize| &set.labels[l];
    let mut all: Vec<(&[u32], usize, usize)> = Vec::new();
    for (l, variants) in sequences.iter().enumerate() {
        all.extend(variants.iter().enumerate().map(|(v, tokens)| (tokens.as_slice(), l, v)));
    }
    if let Some(&(_, l, v)) = all.iter().find(|(tokens, ..)| tokens.is_empty()) {
        return Err(LabelError::NoTokens { label: label(l).name.clone(), variant: label(l).variants[v].clone() });
    }
    // After sorting, a sequence is directly followed by those it is a prefix of. Equal sequences keep their order.
    all.sort_unstable();
    let mut kept: Vec<(&[u32], usize, usize)> = Vec::new();
    for (tokens, l, v) in all {
        match kept.last() {
            // An answer that starts with the longer variant also starts with the shorter one, so adding both would
            // count it twice.
            Some(&(begun, of, _)) if tokens.starts_with(begun) && of == l => {}
            Some(&(begun, of, by)) if tokens.starts_with(begun) => {
                let (first, second) = (label(of).name.clone(), label(l).name.clone());
                let (short, long) = (label(of).variants[by].clone(), label(l).variants[v].clone());
                return Err(if begun.len() == tokens.len() {
                    LabelError::SameTokens { first, second, variant: short }
                } else {
                    LabelError::Prefix { short_label: first, short, long_label: second, long }
                });
            }
            _ => kept.push((tokens, l, v)),
        }
    }
    // Restores the original order.
    kept.sort_unstable_by_key(|&(_, l, v)| (l, v));
    let mut distinct = vec![Vec::new(); sequences.len()];
    for (tokens, l, _) in kept {
        distinct[l].push(tokens.to_vec());
    }
    Ok(distinct)
}

/// Normalises log-probabilities to probabilities: P(k) / Σ P, relative to the largest to avoid underflow. `None` if
/// every entry is −∞ or any is NaN.
pub fn normalise(logprobs: &[f64]) -> Option<Vec<f64>> {
    let max = logprobs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    // `f64::max` ignores NaN, so NaN is checked separately.
    if !max.is_finite() || logprobs.iter().any(|l| l.is_nan()) {
        return None;
    }
    // libm's exponential instead of the system's, for the same bits on every machine.
    let sum: f64 = logprobs.iter().map(|l| libm::exp(l - max)).sum();
    Some(logprobs.iter().map(|l| libm::exp(l - max) / sum).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(variants: &[&[&str]]) -> LabelSet {
        let label = |(i, v): (usize, &&[&str])| Label {
            name: format!("l{i}"),
            variants: v.iter().map(|s| (*s).to_owned()).collect(),
        };
        LabelSet::new(variants.iter().enumerate().map(label).collect()).expect("valid labels")
    }

    #[test]
    fn label_prefix_of_another_is_refused_with_both_shown() {
        let set = set(&[&["1"], &["10"]]);
        let error = resolve_variants(&set, &[vec![vec![5]], vec![vec![5, 9]]]).expect_err("prefix");
        assert!(error.to_string().contains("`1`") && error.to_string().contains("`10`"), "{error}");
    }

    #[test]
    fn same_tokens_in_two_labels_are_refused() {
        let error = resolve_variants(&set(&[&["q"], &["q"]]), &[vec![vec![5]], vec![vec![5]]]).expect_err("the same");
        assert_eq!(error.to_string(), "labels `l0` and `l1` share the tokens of `q`");
    }

    #[test]
    fn variants_with_the_same_tokens_count_once() {
        let resolved = resolve_variants(&set(&[&["A", " A", "AB"]]), &[vec![vec![5], vec![5], vec![5, 6]]]);
        assert_eq!(resolved, Ok(vec![vec![vec![5]]]));
    }

    /// Checks each pair of sequences independently.
    #[test]
    fn whatever_is_kept_begins_no_other_and_every_sequence_begins_with_one_of_its_label() {
        let mut state = 7_u32;
        let mut next = |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) % below
        };
        let mut refused = 0;
        for _ in 0..2_000 {
            let sequences: Vec<Vec<Vec<u32>>> = (0..=next(2))
                .map(|_| (0..=next(2)).map(|_| (0..=next(2)).map(|_| next(4)).collect()).collect())
                .collect();
            let labels = sequences.iter().enumerate().map(|(i, variants)| Label {
                name: i.to_string(),
                variants: (0..variants.len()).map(|v| format!("{i}{v}")).collect(),
            });
            let set = LabelSet::new(labels.collect()).expect("valid labels");
            let of = |l: usize| sequences[l].iter();
            let pairs = (0..sequences.len()).flat_map(|a| (0..sequences.len()).map(move |b| (a, b)));
            let alike = |(a, b): (usize, usize)| a != b && of(a).any(|x| of(b).any(|y| y.starts_with(x)));
            let Ok(kept) = resolve_variants(&set, &sequences) else {
                refused += 1;
                assert!(pairs.into_iter().any(alike), "{sequences:?}");
                continue;
            };
            assert!(!pairs.into_iter().any(alike), "{sequences:?}");
            for (variants, kept) in sequences.iter().zip(&kept) {
                let begins = |x: &Vec<u32>| kept.iter().filter(|k| x.starts_with(k)).count() == 1;
                assert!(
                    variants.iter().all(begins) && kept.iter().all(|k| variants.contains(k)),
                    "{variants:?}: {kept:?}"
                );
            }
        }
        assert!((200..1_900).contains(&refused), "{refused}");
    }

    #[test]
    fn a_label_without_tokens_is_refused() {
        assert!(matches!(resolve_variants(&set(&[&["x"]]), &[vec![vec![]]]), Err(LabelError::NoTokens { .. })));
    }

    #[test]
    fn malformed_sets_are_refused() {
        let label = |name: &str, variants: &[&str]| Label {
            name: name.into(),
            variants: variants.iter().map(|v| (*v).to_owned()).collect(),
        };
        assert_eq!(LabelSet::new(vec![]), Err(LabelError::NoLabels));
        assert_eq!(LabelSet::new(vec![label("A", &[])]), Err(LabelError::NoVariants("A".into())));
        assert_eq!(LabelSet::new(vec![label("A", &[""])]), Err(LabelError::EmptyVariant("A".into())));
        let twice = vec![label("A", &["a"]), label("A", &["b"])];
        assert_eq!(LabelSet::new(twice), Err(LabelError::DuplicateName("A".into())));
    }

    #[test]
    fn normalising_survives_tiny_probabilities_and_refuses_none_at_all() {
        let p = normalise(&[-1000.0, -1000.0 + 3f64.ln()]).expect("finite");
        assert!((p[0] - 0.25).abs() < 1e-12 && (p[1] - 0.75).abs() < 1e-12);
        assert_eq!(normalise(&[f64::NEG_INFINITY; 2]), None);
    }
}

//! Labels: what a verdict may be, and how its surface forms become disjoint token sequences.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A verdict and the surface forms that express it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Label {
    /// The name in results.
    pub name: String,
    /// Surface forms; the label's probability is the sum over those that differ in tokens.
    pub variants: Vec<String>,
}

/// Whether a label's probability includes that the answer ends there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Termination {
    /// P(answer *starts with* the variant). A variant that is a token prefix of another label's is refused.
    #[default]
    Open,
    /// P(answer *is* the variant): the model's end-of-turn token is charged to it. Lets `1` and `10` stand side by
    /// side.
    EndOfTurn,
}

/// Labels that answer one question. Built by [`LabelSet::new`], which checks what can be checked without a tokenizer.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct LabelSet {
    labels: Vec<Label>,
    termination: Termination,
}

/// A [`LabelSet`] as it is read.
#[derive(Deserialize)]
struct Unchecked {
    labels: Vec<Label>,
    termination: Termination,
}

impl TryFrom<Unchecked> for LabelSet {
    type Error = LabelError;

    fn try_from(read: Unchecked) -> Result<Self, LabelError> {
        // Sets are also read from files that others made, so they pass the same checks as those that are built here.
        Ok(Self::new(read.labels)?.with_termination(read.termination))
    }
}

/// Why a set of labels cannot be asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
pub enum LabelError {
    /// No label at all.
    #[error("a label set needs at least one label")]
    NoLabels,
    /// Two labels of one name.
    #[error("label `{0}` is given twice")]
    DuplicateName(String),
    /// A label without a variant.
    #[error("label `{0}` has no variants")]
    NoVariants(String),
    /// A variant without text.
    #[error("label `{0}` has an empty variant")]
    EmptyVariant(String),
    /// A variant that the tokenizer turns into nothing.
    #[error("variant `{variant}` of label `{label}` has no tokens of its own after the prompt")]
    NoTokens {
        /// The label's name.
        label: String,
        /// The surface form.
        variant: String,
    },
    /// Two labels share a sequence of tokens: no answer can tell them apart.
    #[error("labels `{first}` and `{second}` share the tokens of `{variant}`")]
    #[diagnostic(help("choose label words that differ in their first token"))]
    SameTokens {
        /// The label that comes first in the set.
        first: String,
        /// The other label.
        second: String,
        /// The first label's variant; the other's may be another text with the same tokens.
        variant: String,
    },
    /// One label's tokens begin another's: an answer that begins so could be either. Terminated labels can be told
    /// apart.
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
    /// Checks names and variants; token prefixes are checked by [`resolve_variants`] when a tokenizer is at hand.
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

    /// Labels whose variants are the word itself and the word after a space: `A` becomes `["A", " A"]`.
    pub fn words<S: AsRef<str>>(words: impl IntoIterator<Item = S>) -> Result<Self, LabelError> {
        // Which of the two a model writes depends on its tokenizer and on what stands before. To look for `A` alone
        // misses the mass of ` A`.
        let label = |word: &str| Label { name: word.to_owned(), variants: vec![word.to_owned(), format!(" {word}")] };
        Self::new(words.into_iter().map(|word| label(word.as_ref())).collect())
    }

    /// The same labels with another [`Termination`].
    #[must_use]
    pub fn with_termination(mut self, termination: Termination) -> Self {
        self.termination = termination;
        self
    }

    /// The labels in the order given.
    pub fn labels(&self) -> &[Label] {
        &self.labels
    }

    /// How the labels end.
    pub fn termination(&self) -> Termination {
        self.termination
    }
}

/// Makes the events of a label set disjoint: `sequences[l][v]` holds the tokens of variant `v` of label `l`, the result
/// the distinct ones.
///
/// Variants of one label that share their tokens count once, and one that another of the same label is a prefix of adds
/// nothing and goes. Between labels a prefix, or the same tokens, makes the verdict ambiguous and is refused with both
/// variants shown.
pub fn resolve_variants(set: &LabelSet, sequences: &[Vec<Vec<u32>>]) -> Result<Vec<Vec<Vec<u32>>>, LabelError> {
    let label = |l: usize| &set.labels[l];
    let mut all: Vec<(&[u32], usize, usize)> = Vec::new();
    for (l, variants) in sequences.iter().enumerate() {
        all.extend(variants.iter().enumerate().map(|(v, tokens)| (tokens.as_slice(), l, v)));
    }
    if let Some(&(_, l, v)) = all.iter().find(|(tokens, ..)| tokens.is_empty()) {
        return Err(LabelError::NoTokens { label: label(l).name.clone(), variant: label(l).variants[v].clone() });
    }
    // What begins with a sequence stands right behind it in their order, and of equal ones the first comes first.
    all.sort_unstable();
    let mut kept: Vec<(&[u32], usize, usize)> = Vec::new();
    for (tokens, l, v) in all {
        match kept.last() {
            // An answer that begins with the longer variant begins with the shorter one too: to add both would count it
            // twice.
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
    // In the order given again.
    kept.sort_unstable_by_key(|&(_, l, v)| (l, v));
    let mut distinct = vec![Vec::new(); sequences.len()];
    for (tokens, l, _) in kept {
        distinct[l].push(tokens.to_vec());
    }
    Ok(distinct)
}

/// Probabilities that sum to one from log-probabilities: P(k) / Σ P, computed from the largest so that nothing
/// underflows. `None` where every entry is −∞ or one is not a number.
pub fn normalise(logprobs: &[f64]) -> Option<Vec<f64>> {
    let max = logprobs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    // `f64::max` passes over what is no number, so that is looked for by itself.
    if !max.is_finite() || logprobs.iter().any(|l| l.is_nan()) {
        return None;
    }
    // libm's exponential, not the system's: a probability has the same bits on every machine.
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

    /// What every pair of sequences says, by itself.
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

//! Token weights.

use probity_lm::Framed;
use rustc_hash::{FxHashMap, FxHashSet};

/// Document frequency of each token.
#[derive(Debug, Default)]
pub(crate) struct Frequencies {
    texts: usize,
    counts: FxHashMap<u32, usize>,
}

impl Frequencies {
    /// Counts each text, including repetitions.
    pub(crate) fn from_texts<'a>(texts: impl IntoIterator<Item = &'a Framed>) -> Self {
        let mut frequencies = Self::default();
        for text in texts {
            frequencies.texts += 1;
            // Document frequency: a token counts once per text.
            for id in text.ids.iter().copied().collect::<FxHashSet<_>>() {
                *frequencies.counts.entry(id).or_default() += 1;
            }
        }
        frequencies
    }

    /// ln((texts + 1) / (texts with the token + 1)): zero for tokens in every text, such as `[CLS]` and `[SEP]`.
    pub(crate) fn weight(&self, id: u32) -> f64 {
        let with = self.counts.get(&id).copied().unwrap_or(0);
        libm::log((self.texts + 1) as f64 / (with + 1) as f64)
    }
}

/// Weighting of tokens.
#[derive(Debug)]
pub(crate) enum Weighting {
    /// Inverse document frequency.
    Idf(Frequencies),
    /// Weight 1 for every token of the text, and `frame` for the special tokens around it.
    Equal {
        /// Weight of `[CLS]` and `[SEP]`.
        frame: f64,
    },
}

impl Weighting {
    /// The weight of each token of a text.
    pub(crate) fn token_weights(&self, text: &Framed) -> Vec<f64> {
        match self {
            Self::Idf(frequencies) => text.ids.iter().map(|&id| frequencies.weight(id)).collect(),
            Self::Equal { frame } => {
                (0..text.ids.len()).map(|at| if text.from_text.contains(&at) { 1.0 } else { *frame }).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(text: &[u32]) -> Framed {
        probity_lm::Framing { before: vec![1], after: vec![2], mask: None }.frame(text, None)
    }

    #[test]
    fn a_token_counts_once_a_text_and_unseen_ones_most() {
        let texts = [framed(&[7, 7, 8]), framed(&[7])];
        let idf = Weighting::Idf(Frequencies::from_texts(&texts));
        let rare = libm::log(1.5);
        assert_eq!(idf.token_weights(&framed(&[7, 8, 9])), [0.0, 0.0, rare, libm::log(3.0), 0.0]);
        assert_eq!(Weighting::Equal { frame: 0.0 }.token_weights(&framed(&[7, 9])), [0.0, 1.0, 1.0, 0.0]);
    }
}

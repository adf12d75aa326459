//! Encodes texts: each distinct text once, in batches, keeping hidden states only while they are needed.

mod blocks;
mod weights;

use probity_lm::{EncoderError, Framed, HiddenStates, ModelDescription, TextEncoder};
use rayon::prelude::*;
use rustc_hash::FxHashMap;

use crate::{MetricError, MetricItem, MetricSettings, Watch};

pub(crate) use weights::{Frequencies, Weighting};

/// Maximum bytes of hidden states in memory.
const BUDGET: usize = 256 << 20;

/// The distinct texts of a list, in order of first occurrence.
#[derive(Default)]
pub(crate) struct DistinctTexts<'a> {
    texts: Vec<&'a str>,
    index: FxHashMap<&'a str, usize>,
}

impl<'a> DistinctTexts<'a> {
    /// The trimmed texts of candidates and references, and for each item the indices of its candidate and its
    /// references.
    pub(crate) fn from_items(items: &[MetricItem<'a>]) -> (Self, Vec<Vec<usize>>) {
        Self::from_lists(items.iter().map(|item| [&[item.candidate][..], &item.references].concat()))
    }

    /// Same as [`DistinctTexts::from_items`] for any texts by item.
    pub(crate) fn from_lists(items: impl Iterator<Item = Vec<&'a str>>) -> (Self, Vec<Vec<usize>>) {
        let mut distinct = Self::default();
        // As in bert-score; otherwise a trailing space would make a separate text.
        let mut position = |text: &'a str| distinct.position(text.trim());
        let uses = items.map(|texts| texts.into_iter().map(&mut position).collect()).collect();
        (distinct, uses)
    }

    /// The index of the text.
    fn position(&mut self, text: &'a str) -> usize {
        *self.index.entry(text).or_insert_with(|| {
            self.texts.push(text);
            self.texts.len() - 1
        })
    }

    /// All texts in the encoder's form, truncated to its maximum length.
    pub(crate) fn read(&self, encoder: &dyn TextEncoder) -> Result<Vec<Framed>, EncoderError> {
        let limit = encoder.config().description.context_length;
        let spaced: Vec<String>;
        let texts = match encoder.tokenizer().word_start() {
            "" => self.texts.clone(),
            // If spaces are parts of words, the first word would differ from the same word further on.
            start => {
                spaced = self
                    .texts
                    .iter()
                    .map(|text| if text.is_empty() { String::new() } else { format!("{start}{text}") })
                    .collect();
                spaced.iter().map(String::as_str).collect()
            }
        };
        Ok(encoder
            .tokenizer()
            .tokenize(&texts)?
            .iter()
            .map(|ids| encoder.tokenizer().framing().frame(ids, limit))
            .collect())
    }
}

/// Items to compare by the encodings of their texts.
pub(crate) struct EncodedItems<'a> {
    /// Name of the metric, for errors.
    pub(crate) metric: &'static str,
    pub(crate) encoder: &'a dyn TextEncoder,
    /// The distinct texts.
    pub(crate) texts: &'a [Framed],
    /// The layers of the hidden states.
    pub(crate) layers: &'a [usize],
    /// Indices of each item's texts; items with the same last text are processed together.
    pub(crate) uses: &'a [Vec<usize>],
}

impl EncodedItems<'_> {
    /// Calls `compare` for each item, in order, with the results of `prepare` for its texts' hidden states. `prepare`
    /// is called once per distinct text, as long as all texts still needed fit into memory.
    pub(crate) fn run<T: Send + Sync, R: Send>(
        &self,
        prepare: impl Fn(HiddenStates) -> T + Sync,
        compare: impl Fn(usize, &[&T]) -> R + Sync,
        watch: Watch<'_>,
    ) -> Result<Vec<R>, MetricError> {
        let width = self.encoder.config().hidden_size * self.layers.len() * size_of::<f32>();
        let sizes: Vec<usize> = self.texts.iter().map(|text| text.ids.len() * width).collect();
        let mut held: Vec<Option<T>> = self.texts.iter().map(|_| None).collect();
        let mut results: Vec<Option<R>> = self.uses.iter().map(|_| None).collect();
        for block in blocks::plan(self.uses, &sizes, BUDGET) {
            self.read(&block.read, &prepare, &mut held)?;
            let of = |text: &usize| held[*text].as_ref().expect("a block reads what its items use");
            let score = |&item: &usize| (item, compare(item, &self.uses[item].iter().map(of).collect::<Vec<_>>()));
            let scored: Vec<(usize, R)> = block.items.par_iter().map(score).collect();
            for (item, result) in scored {
                results[item] = Some(result);
            }
            // Drop before the next block is read, to stay within the budget.
            for text in block.forget {
                held[text] = None;
            }
            watch(block.items.len()).map_err(MetricError::Stopped)?;
        }
        Ok(results.into_iter().map(|result| result.expect("each item stands in one block")).collect())
    }

    fn read<T: Send>(
        &self,
        texts: &[usize],
        prepare: &(impl Fn(HiddenStates) -> T + Sync),
        held: &mut [Option<T>],
    ) -> Result<(), MetricError> {
        let sequences: Vec<&[u32]> = texts.iter().map(|&text| self.texts[text].ids.as_slice()).collect();
        let take = &mut |index: usize, states| {
            held[texts[index]] = Some(prepare(states));
            Ok(())
        };
        self.encoder.hidden_states(&sequences, self.layers, take).map_err(|source| failed(self.metric, source))?;
        Ok(())
    }
}

/// Signature settings of the encoder.
pub(crate) fn settings(description: &ModelDescription) -> MetricSettings {
    let fingerprint = description.fingerprint.chars().take(12).collect();
    vec![
        ("model", description.name.clone()),
        ("fingerprint", fingerprint),
        ("precision", description.precision.as_str().to_owned()),
        ("device", description.device.clone()),
    ]
}

/// Converts an encoder error to a metric error.
pub(crate) fn failed(metric: &str, source: EncoderError) -> MetricError {
    MetricError::Model { metric: metric.to_owned(), source: Box::new(source) }
}

/// Scales each row of `width` numbers to length one. False if a row has zero or infinite length, or contains NaN.
pub(crate) fn normalise_rows(rows: &mut [f32], width: usize) -> bool {
    rows.chunks_exact_mut(width).all(|row| {
        let norm = row.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt();
        for x in &mut *row {
            *x = (f64::from(*x) / norm) as f32;
        }
        norm.is_finite() && norm > 0.0
    })
}

/// The inner product of two rows of equal length. Its bits depend only on them.
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    const LANES: usize = 16;
    // Sixteen sums, joined in a fixed order: any vector width computes the same bits.
    let mut sums = [0.0_f32; LANES];
    let (a_blocks, a_rest) = a.as_chunks::<LANES>();
    let (b_blocks, b_rest) = b.as_chunks::<LANES>();
    for (a, b) in a_blocks.iter().zip(b_blocks) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use probity_lm::ScriptedEncoder;

    use super::*;

    #[test]
    fn each_distinct_text_is_read_once_and_items_come_in_order() {
        let read = std::sync::Arc::new(Mutex::new(Vec::new()));
        let log = read.clone();
        let encoder = ScriptedEncoder::new(&["a", "b", "c"], 1, 1, move |ids, _| {
            log.lock().expect("no panic").push(ids.to_vec());
            ids.iter().map(|&id| id as f32).collect()
        });
        let items =
            ["a b", "c ", "a a", "c"].map(|candidate| MetricItem { candidate, references: vec!["b"], source: None });
        let (distinct, uses) = DistinctTexts::from_items(&items);
        let texts = distinct.read(&encoder).expect("scripted");
        let job = EncodedItems { metric: "m", encoder: &encoder, texts: &texts, layers: &[1], uses: &uses };
        let sums = job.run(|states| states.values.iter().sum::<f32>(), |_, sums| *sums[0] - *sums[1], &|_| Ok(()));
        assert_eq!(sums.expect("scripted"), [4.0, 1.0, 3.0, 1.0]);
        assert_eq!(read.lock().expect("no panic").len(), 4, "a b, b, c and a a");
    }

    #[test]
    fn rows_without_length_are_told() {
        let mut rows = [3.0, 4.0, 0.0, 2.0];
        assert!(normalise_rows(&mut rows, 2));
        assert_eq!(rows, [0.6, 0.8, 0.0, 1.0]);
        assert!(!normalise_rows(&mut [1.0, 0.0, 0.0, 0.0], 2));
        assert!(!normalise_rows(&mut [f32::NAN, 0.0], 2));
        assert!(!normalise_rows(&mut [f32::INFINITY, 0.0], 2));
    }

    #[test]
    fn inner_products_take_all_numbers() {
        let a: Vec<f32> = (0..37).map(|i| i as f32).collect();
        assert_eq!(dot(&a, &[1.0; 37]), 666.0);
    }
}

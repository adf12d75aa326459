//! `BETS` (Zhao, Durmus and Yeung 2023): meaning preservation and simplicity of replaced words.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use probity_lm::{HiddenStates, TextEncoder};
use safetensors::{Dtype, SafeTensors};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::MetricError;
use crate::bleu::Tokens;
use crate::encoded::{self, DistinctTexts, EncodedItems, dot, failed};
use crate::metric::{
    Definition, Metric, MetricItem, MetricModels, MetricScores, MetricSettings, Need, Needs, Score, Watch,
};
use crate::text::{split_words, tokenized};

/// Options of `BETS`.
#[derive(Debug, Clone, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct BetsOptions {
    /// Trained comparator of words, as safetensors
    #[schemars(extend("form" = "FILE"))]
    comparator: Option<PathBuf>,
    /// Tokenizer
    #[default(Tokens::V13a)]
    tok: Tokens,
    /// Weight of simplicity
    #[default(1.0)]
    alpha: f64,
    /// Weight of meaning
    #[default(1.0)]
    beta: f64,
}

/// `BETS`; see [`Definition::LONG_ABOUT`].
pub(crate) struct Bets {
    encoder: Arc<dyn TextEncoder>,
    options: BetsOptions,
    comparator: Option<Comparator>,
}

/// Reason for an undefined score.
const EMPTY: &str = "the candidate is empty";
const NO_DIRECTION: &str = "a hidden state has no direction";

impl Definition for Bets {
    type Options = BetsOptions;
    const NAME: &'static str = "bets";
    const ABOUT: &'static str = "Meaning kept and words simplified, by an encoder (BETS)";
    const LONG_ABOUT: &'static str = "\
Meaning kept and words simplified, by an encoder (BETS).

Zhao et al. 2023. The score is alpha · simplicity + beta · meaning, as in the authors' script. Meaning is the mean \
over the source's tokens, including the special tokens around the text, of the cosine with the nearest token of the \
candidate, by the encoder's last layer. For simplicity, each word that only the candidate has is paired with the most \
similar word that only the source has. Words are compared in lower case, each read separately, and similarity is the \
greatest cosine between their tokens, special tokens included. A comparator rates how much simpler the new word is, \
from -1 to 1 by its training, and the greatest of these ratings counts. It is a perceptron over the two words' mean \
states and their difference, with tanh between its layers, trained on Simple PPDB++. Its file has \
`classification.N.weight` and `classification.N.bias` of the linear layers as safetensors, to be written from the \
authors' checkpoint with torch. --encoder must be the comparator's encoder; if it was fine-tuned, write it to a \
separate folder.

Without a comparator the score is the meaning alone, and the signature has `comparator:none`: scores with and without \
one are not comparable. If no word was exchanged, simplicity is 0; the script fails there. The script tokenizes with \
nltk's word_tokenize: for its exact values, pass texts tokenized that way, with tok=none. Text beyond the model's \
context is omitted. The score of all items is the mean.";
    const PARTS: &'static [&'static str] = &["meaning", "simplicity"];
    const NEEDS: Needs = &[Need::Source, Need::Encoder];
    const MEAN: bool = true;

    fn build(options: BetsOptions, models: &MetricModels) -> Result<Box<dyn Metric>, MetricError> {
        let encoder = models.encoder(Self::NAME)?;
        let comparator = options.comparator.as_deref().map(|path| {
            Comparator::read(path, encoder.config().hidden_size).map_err(|why| MetricError::Option {
                metric: Self::NAME.into(),
                why: format!("{}: {why}", path.display()),
                hint:
                    "give the state of the trained comparator as safetensors, for the encoder that it was trained with"
                        .into(),
            })
        });
        Ok(Box::new(Self { encoder, comparator: comparator.transpose()?, options }))
    }
}

impl Metric for Bets {
    fn settings(&self) -> MetricSettings {
        let mut settings = encoded::settings(&self.encoder.config().description);
        let comparator = self.comparator.as_ref().map_or("none", |comparator| comparator.hash.as_str());
        settings.push(("comparator", comparator.to_owned()));
        if self.comparator.is_some() {
            settings.push(("tok", self.options.tok.name().to_owned()));
            settings.push(("alpha", self.options.alpha.to_string()));
            settings.push(("beta", self.options.beta.to_string()));
        }
        settings
    }

    fn score(&self, items: &[MetricItem<'_>], watch: Watch<'_>) -> Result<MetricScores, MetricError> {
        // Simplicity takes as long as meaning, but progress is reported only for meaning.
        let meaning = self.meaning(items, watch)?;
        let simplicity = match &self.comparator {
            Some(comparator) => self.simplicity(comparator, items)?,
            None => vec![Score::Undefined("no comparator was given"); items.len()],
        };
        let row = |(meaning, simplicity): (Score, Score)| {
            let score = match (meaning, simplicity) {
                (Score::Value(meaning), Score::Value(simplicity)) => {
                    Score::Value(self.options.alpha * simplicity + self.options.beta * meaning)
                }
                (undefined @ Score::Undefined(_), _) => undefined,
                (meaning, _) if self.comparator.is_none() => meaning,
                (_, undefined) => undefined,
            };
            vec![score, meaning, simplicity]
        };
        Ok(MetricScores::with_means(meaning.into_iter().zip(simplicity).map(row).collect()))
    }
}

impl Bets {
    /// For each item, the mean over the source's tokens of the highest cosine with a token of the candidate.
    fn meaning(&self, items: &[MetricItem<'_>], watch: Watch<'_>) -> Result<Vec<Score>, MetricError> {
        let texts = items.iter().map(|item| vec![item.candidate, item.source.unwrap_or_default()]);
        self.compared(texts, watch, |item, read| {
            if items[item].candidate.trim().is_empty() {
                return Score::Undefined(EMPTY);
            }
            let [Some(candidate), Some(source)] = read else { return Score::Undefined(NO_DIRECTION) };
            let nearest = source.rows().map(|row| greatest(candidate.rows().map(|other| dot(row, other))));
            Score::mean(nearest.map(|cosine| Score::Value(f64::from(cosine))))
        })
    }

    /// For each item, the gain in simplicity of the replaced words.
    fn simplicity(&self, comparator: &Comparator, items: &[MetricItem<'_>]) -> Result<Vec<Score>, MetricError> {
        let cut = |text: &str| -> Vec<String> {
            split_words(&tokenized(self.options.tok, true, text)).map(str::to_owned).collect()
        };
        let exchanged: Vec<[Vec<String>; 2]> = items
            .iter()
            .map(|item| {
                let (new, old) = (cut(item.candidate), cut(item.source.unwrap_or_default()));
                let only =
                    |of: &[String], other: &[String]| of.iter().filter(|word| !other.contains(word)).cloned().collect();
                [only(&new, &old), only(&old, &new)]
            })
            .collect();
        let texts = exchanged.iter().map(|[new, old]| new.iter().chain(old).map(String::as_str).collect());
        self.compared(texts, &|_| Ok(()), |item, read| {
            let (new, old) = read.split_at(exchanged[item][0].len());
            if new.is_empty() || old.is_empty() {
                return Score::Value(0.0);
            }
            let mut best = f64::NEG_INFINITY;
            for word in new {
                let Some(word) = word else { return Score::Undefined(NO_DIRECTION) };
                let mut nearest: Option<(f32, &WordStates)> = None;
                for other in old {
                    let Some(other) = other else { return Score::Undefined(NO_DIRECTION) };
                    let cosine = greatest(word.rows().flat_map(|row| other.rows().map(|other| dot(row, other))));
                    if nearest.is_none_or(|(known, _)| cosine >= known) {
                        nearest = Some((cosine, other));
                    }
                }
                let (_, old) = nearest.expect("there is one");
                best = best.max(comparator.simpler(&old.mean, &word.mean));
            }
            if best.is_finite() { Score::Value(best) } else { Score::Undefined("the comparator gave no number") }
        })
    }

    /// Applies `compare` to the hidden states of each item's texts.
    fn compared<'a>(
        &self,
        texts: impl Iterator<Item = Vec<&'a str>>,
        watch: Watch<'_>,
        compare: impl Fn(usize, &[&Option<WordStates>]) -> Score + Sync,
    ) -> Result<Vec<Score>, MetricError> {
        let (distinct, uses) = DistinctTexts::from_lists(texts);
        let texts = distinct.read(&*self.encoder).map_err(|source| failed(Self::NAME, source))?;
        let layer = self.encoder.config().layers;
        let job =
            EncodedItems { metric: Self::NAME, encoder: &*self.encoder, texts: &texts, layers: &[layer], uses: &uses };
        job.run(WordStates::from_hidden_states, compare, watch)
    }
}

fn greatest(cosines: impl Iterator<Item = f32>) -> f32 {
    cosines.fold(f32::NEG_INFINITY, f32::max)
}

/// Unit hidden states of a text's tokens, and their mean.
struct WordStates {
    directions: HiddenStates,
    mean: Vec<f64>,
}

impl WordStates {
    /// `None` if a state has no direction.
    fn from_hidden_states(mut states: HiddenStates) -> Option<Self> {
        let width = states.hidden_size;
        let mut mean = vec![0.0; width];
        for row in states.values.chunks_exact(width) {
            mean.iter_mut().zip(row).for_each(|(sum, value)| *sum += f64::from(*value));
        }
        for sum in &mut mean {
            *sum /= states.tokens as f64;
        }
        encoded::normalise_rows(&mut states.values, width).then_some(Self { directions: states, mean })
    }

    fn rows(&self) -> impl Iterator<Item = &[f32]> {
        self.directions.values.chunks_exact(self.directions.hidden_size)
    }
}

/// A perceptron that predicts how much simpler one word is than another.
struct Comparator {
    layers: Vec<BetsLinear>,
    /// The first twelve digits of its file's SHA-256.
    hash: String,
}

struct BetsLinear {
    /// Keyed by output.
    weights: Vec<Vec<f64>>,
    bias: Vec<f64>,
}

/// Invalid comparator file.
#[derive(Debug, thiserror::Error)]
enum ComparatorError {
    #[error("it cannot be read: {0}")]
    Read(#[from] std::io::Error),
    #[error("it is no safetensors file: {0}")]
    Format(#[from] safetensors::SafeTensorError),
    #[error("it has no tensor `classification.N.weight`")]
    NoLayer,
    #[error("`{0}` is missing")]
    Missing(String),
    #[error("`{0}` is {1:?}, and F32 is wanted")]
    Type(String, Dtype),
    #[error("`{name}` is {found:?}, and behind the layer before it {wanted} columns are wanted")]
    Shape { name: String, found: Vec<usize>, wanted: usize },
    #[error("the last layer has {0} outputs, and one is wanted")]
    Outputs(usize),
}

impl Comparator {
    /// Reads the linear layers in the order of their numbers.
    fn read(path: &Path, hidden_size: usize) -> Result<Self, ComparatorError> {
        let bytes = std::fs::read(path)?;
        let file = SafeTensors::deserialize(&bytes)?;
        let mut numbers: Vec<usize> = file
            .names()
            .into_iter()
            .filter_map(|name| name.strip_prefix("classification.")?.strip_suffix(".weight")?.parse().ok())
            .collect();
        numbers.sort_unstable();
        let mut width = 3 * hidden_size;
        let mut layers = Vec::new();
        for number in numbers {
            let name = format!("classification.{number}.weight");
            let (shape, values) = floats(&file, &name)?;
            let [rows, columns] = shape[..] else {
                return Err(ComparatorError::Shape { name, found: shape, wanted: width });
            };
            if columns != width || rows == 0 {
                return Err(ComparatorError::Shape { name, found: shape, wanted: width });
            }
            let name = format!("classification.{number}.bias");
            let (shape, bias) = floats(&file, &name)?;
            if shape != [rows] {
                return Err(ComparatorError::Shape { name, found: shape, wanted: rows });
            }
            layers.push(BetsLinear { weights: values.chunks_exact(columns).map(<[f64]>::to_vec).collect(), bias });
            width = rows;
        }
        match layers.last() {
            None => Err(ComparatorError::NoLayer),
            Some(last) if last.bias.len() != 1 => Err(ComparatorError::Outputs(last.bias.len())),
            Some(_) => Ok(Self { layers, hash: hash(&bytes) }),
        }
    }

    /// How much simpler the second word is than the first, from their mean states.
    fn simpler(&self, old: &[f64], new: &[f64]) -> f64 {
        let apart = old.iter().zip(new).map(|(a, b)| (a - b).abs());
        let mut values: Vec<f64> = old.iter().chain(new).copied().chain(apart).collect();
        for (number, layer) in self.layers.iter().enumerate() {
            let sums = layer.weights.iter().zip(&layer.bias).map(|(weights, bias)| {
                weights.iter().zip(&values).map(|(weight, value)| weight * value).sum::<f64>() + bias
            });
            let is_last = number + 1 == self.layers.len();
            values = sums.map(|sum| if is_last { sum } else { libm::tanh(sum) }).collect();
        }
        values[0]
    }
}

fn floats(file: &SafeTensors<'_>, name: &str) -> Result<(Vec<usize>, Vec<f64>), ComparatorError> {
    let tensor = file.tensor(name).map_err(|_| ComparatorError::Missing(name.to_owned()))?;
    if tensor.dtype() != Dtype::F32 {
        return Err(ComparatorError::Type(name.to_owned(), tensor.dtype()));
    }
    let values = tensor.data().as_chunks::<4>().0.iter().map(|bytes| f64::from(f32::from_le_bytes(*bytes)));
    Ok((tensor.shape().to_vec(), values.collect()))
}

/// The first twelve digits of the SHA-256.
fn hash(bytes: &[u8]) -> String {
    use sha2::{Digest as _, Sha256};
    format!("{:x}", Sha256::digest(bytes)).chars().take(12).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use probity_lm::ScriptedEncoder;
    use safetensors::tensor::TensorView;

    use super::*;
    use crate::choose;

    /// Words are directions in the plane; special tokens are far from all.
    fn models() -> MetricModels {
        let encoder = ScriptedEncoder::new(&["use", "utilise", "mill", "nought"], 2, 3, |ids, _| {
            let state = |id: &u32| match id {
                4 => [2.0, 0.0, 0.0],
                5 => [0.5, 0.75_f32.sqrt(), 0.0],
                6 => [0.0, 3.0, 0.0],
                7 => [0.0, 0.0, 0.0],
                _ => [0.0, 0.0, -1.0],
            };
            ids.iter().flat_map(state).collect()
        });
        MetricModels { encoder: Some(Arc::new(encoder.with_context_length(8))), ..MetricModels::default() }
    }

    fn scored(metric: &str, pairs: &[(&str, &str)]) -> Result<MetricScores, MetricError> {
        let items: Vec<MetricItem<'_>> = pairs
            .iter()
            .map(|(candidate, source)| MetricItem { candidate, references: Vec::new(), source: Some(source) })
            .collect();
        choose(metric)?[0].build(&models())?.score(&items, &|_| Ok(()))
    }

    /// Writes layers with these weights by output, and zero biases except for the last.
    fn comparator(folder: &Path, layers: &[(usize, usize, Vec<f32>)], bias: f32) -> String {
        let path = folder.join("comparator.safetensors");
        let bytes = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        let mut data: BTreeMap<String, (Vec<usize>, Vec<u8>)> = BTreeMap::new();
        for (place, (rows, columns, weights)) in layers.iter().enumerate() {
            // Numbers skip layers without weights.
            let name = format!("classification.{}", 2 * place);
            let last = if place + 1 == layers.len() { bias } else { 0.0 };
            data.insert(format!("{name}.weight"), (vec![*rows, *columns], bytes(weights)));
            data.insert(format!("{name}.bias"), (vec![*rows], bytes(&vec![last; *rows])));
        }
        let views = data.iter().map(|(name, (shape, bytes))| {
            (name.as_str(), TensorView::new(Dtype::F32, shape.clone(), bytes).expect("a tensor"))
        });
        safetensors::serialize_to_file(views, None, &path).expect("written");
        path.display().to_string()
    }

    #[test]
    fn meaning_is_what_of_the_source_is_near_something_in_the_candidate() {
        let scores = scored("bets", &[("use mill", "utilise mill"), ("use", "use"), ("", "use"), ("nought", "use")])
            .expect("scored");
        // Two special tokens surround each text; utilise is closer to mill than to use, mill is in both, and special
        // tokens match themselves.
        let expected = (1.0 + f64::from(0.75_f32.sqrt()) + 1.0 + 1.0) / 4.0;
        let value = |row: &[Score], place: usize| row[place].value();
        assert!((value(&scores.items[0], 0).expect("some") - expected).abs() < 1e-6, "{:?}", scores.items[0]);
        assert_eq!(value(&scores.items[0], 0), value(&scores.items[0], 1));
        assert!((value(&scores.items[1], 0).expect("some") - 1.0).abs() < 1e-6);
        assert_eq!(scores.items[0][2], Score::Undefined("no comparator was given"));
        assert_eq!(scores.items[2][0], Score::Undefined(EMPTY));
        assert_eq!(scores.items[3][0], Score::Undefined(NO_DIRECTION));
    }

    #[test]
    fn the_comparator_sees_both_words_and_their_difference() {
        let folder = tempfile::tempdir().expect("temporary folder");
        // tanh of the second component of the difference, twice, plus an eighth.
        let mut weights = vec![0.0; 9];
        weights[7] = 1.0;
        let file = comparator(folder.path(), &[(1, 9, weights), (1, 1, vec![2.0])], 0.125);
        let metric = format!("bets:comparator={file},alpha=0.5,beta=2");
        let scores = scored(&metric, &[("use mill", "utilise mill"), ("mill use", "use mill")]).expect("scored");
        // Means are over a word's token and the two special tokens.
        let simplicity = 2.0 * (f64::from(0.75_f32.sqrt()) / 3.0).tanh() + 0.125;
        let meaning = (3.0 + f64::from(0.75_f32.sqrt())) / 4.0;
        let value = |row: &[Score], place: usize| row[place].value().expect("some");
        assert!((value(&scores.items[0], 2) - simplicity).abs() < 1e-6, "{:?}", scores.items[0]);
        assert!((value(&scores.items[0], 0) - (0.5 * simplicity + 2.0 * meaning)).abs() < 1e-6);
        // No word was replaced.
        assert_eq!(scores.items[1][2], Score::Value(0.0));
    }

    #[test]
    fn a_file_that_is_no_comparator_is_refused() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let refused = |file: &str| {
            scored(&format!("bets:comparator={file}"), &[("use", "mill")]).expect_err("refused").to_string()
        };
        let narrow = comparator(folder.path(), &[(1, 6, vec![0.0; 6])], 0.0);
        assert!(refused(&narrow).contains("9 columns are wanted"), "{}", refused(&narrow));
        let wide = comparator(folder.path(), &[(2, 9, vec![0.0; 18])], 0.0);
        assert!(refused(&wide).contains("2 outputs"));
        let none = comparator(folder.path(), &[], 0.0);
        assert!(refused(&none).contains("has no tensor"));
        std::fs::write(folder.path().join("x"), "no tensors").expect("written");
        assert!(refused(&folder.path().join("x").display().to_string()).contains("no safetensors file"));
        assert!(refused("/nowhere").contains("cannot be read"));
    }
}

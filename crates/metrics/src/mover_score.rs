//! `MoverScore` (Zhao et al. 2019), equal to `word_mover_score` of the package moverscore.

use std::sync::Arc;

use probity_lm::{Framed, HiddenStates, TextEncoder};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::MetricError;
use crate::encoded::{self, DistinctTexts, EncodedItems, Frequencies, Weighting, dot, failed, normalise_rows};
use crate::metric::{
    Definition, Metric, MetricItem, MetricModels, MetricScores, MetricSettings, Need, Needs, Score, Watch,
};
use crate::transport::transport_cost;

/// Options of `MoverScore`.
#[derive(Debug, Clone, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct MoverScoreOptions {
    /// Number of consecutive pieces to move as one
    #[schemars(range(min = 1, max = 8))]
    #[default(1)]
    n: u8,
    /// Weight all pieces equally
    no_idf: bool,
    /// Keep the pieces that continue a word
    subwords: bool,
    /// Pieces to omit (stop words), separated by spaces
    stop: String,
}

/// `MoverScore`; see [`Definition::LONG_ABOUT`].
pub(crate) struct MoverScore {
    encoder: Arc<dyn TextEncoder>,
    options: MoverScoreOptions,
    layers: Vec<usize>,
}

/// Number of last layers that are pooled.
const POOLED: usize = 5;

impl Definition for MoverScore {
    type Options = MoverScoreOptions;
    const NAME: &'static str = "mover-score";
    const ABOUT: &'static str = "One minus the cost of moving tokens (MoverScore)";
    const LONG_ABOUT: &'static str = "\
One minus the cost of moving tokens (MoverScore).

Zhao et al. 2019. The cost is that of moving a candidate's hidden states to a reference's. Equal to word_mover_score \
of the package moverscore (its module moverscore, the paper's; moverscore_v2 is another metric). Each piece is the \
minimum, mean and maximum of its unit-length states in the last five layers. Pieces are weighted by inverse document \
frequency, of candidates over all candidates and of references over all references; no-idf turns this off. Punctuation \
is omitted, and so are all pieces of a word except the first, unless `subwords` keeps them. N-grams are weighted \
means, and the cost of moving is the squared Euclidean distance between directions.

The earth mover's distance is exact here. The tool's solver rounds masses and costs to a millionth of the largest, and \
its divisions have guards of a hundred-thousandth: together a few hundred-thousandths. With several references the \
mean counts, as in the tool's examples. An empty candidate or reference, for which the tool compares [CLS] and [SEP], \
is undefined. Scores are comparable only under the same model, which the signature names. Text beyond the model's \
context is omitted as in the tool; `left-out` counts such tokens of candidate and references. The score of all items \
is the mean.";
    const PARTS: &'static [&'static str] = &["left-out"];
    const NEEDS: Needs = &[Need::References, Need::Encoder];
    const MEAN: bool = true;

    fn build(options: MoverScoreOptions, models: &MetricModels) -> Result<Box<dyn Metric>, MetricError> {
        let encoder = models.encoder(Self::NAME)?;
        let last = encoder.config().layers;
        // From 1: the tool never pools the embeddings, even for models with fewer than five layers.
        let layers = (1..=last).skip(last.saturating_sub(POOLED)).collect();
        Ok(Box::new(Self { encoder, options, layers }))
    }
}

impl Metric for MoverScore {
    fn settings(&self) -> MetricSettings {
        let mut settings = encoded::settings(&self.encoder.config().description);
        let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
        let last = self.encoder.config().layers;
        settings.push(("layers", format!("{}-{last}", self.layers.first().unwrap_or(&last))));
        settings.push(("n", self.options.n.to_string()));
        settings.push(("idf", yes(!self.options.no_idf)));
        settings.push(("subwords", yes(self.options.subwords)));
        settings.push(("stop", self.options.stop.split_whitespace().collect::<Vec<_>>().join("+")));
        settings
    }

    fn score(&self, items: &[MetricItem<'_>], watch: Watch<'_>) -> Result<MetricScores, MetricError> {
        let (distinct, uses) = DistinctTexts::from_items(items);
        let texts = distinct.read(&*self.encoder).map_err(|source| failed(Self::NAME, source))?;
        let weighting = |of: &mut dyn Iterator<Item = usize>| {
            if self.options.no_idf {
                // The tool gives weight one to every token of its list, which includes [CLS] and [SEP]; under idf their
                // weight is 0.
                Weighting::Equal { frame: 1.0 }
            } else {
                Weighting::Idf(Frequencies::from_texts(of.map(|text| &texts[text])))
            }
        };
        let candidates = weighting(&mut uses.iter().map(|uses| uses[0]));
        let references = weighting(&mut uses.iter().flat_map(|uses| uses[1..].iter().copied()));
        let job = EncodedItems {
            metric: Self::NAME,
            encoder: &*self.encoder,
            texts: &texts,
            layers: &self.layers,
            uses: &uses,
        };
        let compare = |item: usize, read: &[&Option<Vec<f32>>]| {
            let texts: Vec<&Framed> = uses[item].iter().map(|&text| &texts[text]).collect();
            let left_out: usize = texts.iter().map(|text| text.left_out).sum();
            let candidate = self.grams(texts[0], read[0].as_deref(), &candidates);
            let against = |at: usize| match (&candidate, self.grams(texts[at], read[at].as_deref(), &references)) {
                (Ok(candidate), Ok(reference)) => Score::Value(1.0 - distance(candidate, &reference)),
                (Err(why), _) => Score::Undefined(why),
                (_, Err(why)) => Score::Undefined(why),
            };
            let scores: Vec<Score> = (1..texts.len()).map(against).collect();
            // A mean without values says only that it is empty; the first reference's reason is more helpful.
            let why = scores.iter().copied().find(|score| score.value().is_none());
            let mean = Score::mean(scores);
            vec![if mean.value().is_some() { mean } else { why.unwrap_or(mean) }, Score::Value(left_out as f64)]
        };
        Ok(MetricScores::with_means(job.run(pooled, compare, watch)?))
    }
}

/// Directions with their shares of the total mass.
struct WeightedGrams {
    directions: Vec<Vec<f32>>,
    masses: Vec<f64>,
}

/// `(tokens, 3 · hidden_size)`: the minimum, mean and maximum over layers of normalised states; `None` if a state has
/// no direction.
fn pooled(mut states: HiddenStates) -> Option<Vec<f32>> {
    let (width, layers) = (states.hidden_size, states.values.len() / (states.tokens * states.hidden_size));
    if !normalise_rows(&mut states.values, width) {
        return None;
    }
    let mut pooled = Vec::with_capacity(states.tokens * 3 * width);
    for token in 0..states.tokens {
        let rows: Vec<&[f32]> = (0..layers).map(|layer| &states.layer(layer)[token * width..][..width]).collect();
        let column = |at: usize| rows.iter().map(move |row| row[at]);
        pooled.extend((0..width).map(|at| column(at).fold(f32::INFINITY, f32::min)));
        pooled.extend((0..width).map(|at| column(at).sum::<f32>() / layers as f32));
        pooled.extend((0..width).map(|at| column(at).fold(f32::NEG_INFINITY, f32::max)));
    }
    Some(pooled)
}

impl MoverScore {
    /// The n-grams of a text, from its [`pooled`] states.
    fn grams(
        &self,
        text: &Framed,
        states: Option<&[f32]>,
        weighting: &Weighting,
    ) -> Result<WeightedGrams, &'static str> {
        if text.from_text.is_empty() {
            return Err("candidate or reference is empty");
        }
        let states = states.ok_or("a hidden state has no direction")?;
        let width = states.len() / text.ids.len();
        let weights = weighting.token_weights(text);
        let kept: Vec<usize> = (0..text.ids.len()).filter(|&at| self.is_kept(text, at)).collect();
        let (mut directions, mut masses) = (Vec::new(), Vec::new());
        // A text with fewer tokens is one n-gram.
        for gram in kept.windows(usize::from(self.options.n).min(kept.len()).max(1)) {
            let mass: f64 = gram.iter().map(|&at| weights[at]).sum();
            // Tokens in every text have weight 0 under idf; a weighted mean would divide by 0.
            if mass == 0.0 {
                continue;
            }
            let mean = |column: usize| {
                gram.iter().map(|&at| weights[at] / mass * f64::from(states[at * width + column])).sum::<f64>() as f32
            };
            let mut direction: Vec<f32> = (0..width).map(mean).collect();
            if !normalise_rows(&mut direction, width) {
                return Err("a hidden state has no direction");
            }
            directions.push(direction);
            masses.push(mass);
        }
        let whole: f64 = masses.iter().sum();
        if masses.is_empty() {
            Err("nothing has any weight")
        } else {
            Ok(WeightedGrams { directions, masses: masses.iter().map(|m| m / whole).collect() })
        }
    }

    /// Special tokens are kept; under idf their weight is 0.
    fn is_kept(&self, text: &Framed, at: usize) -> bool {
        if !text.from_text.contains(&at) {
            return true;
        }
        let piece = self.encoder.tokenizer().piece(text.ids[at]);
        let continues = piece.continues_word && at > text.from_text.start;
        let is_punctuation =
            !continues && piece.text.len() == 1 && piece.text.chars().all(|c| c.is_ascii_punctuation());
        let is_stopped = !continues && self.options.stop.split_whitespace().any(|word| word == piece.text);
        !is_punctuation && !is_stopped && (self.options.subwords || !continues)
    }
}

/// The earth mover's distance with squared Euclidean distances.
fn distance(candidate: &WeightedGrams, reference: &WeightedGrams) -> f64 {
    let costs = reference.directions.iter().flat_map(|from| {
        // For unit vectors: |a − b|² = 2 − 2 a·b.
        candidate.directions.iter().map(move |to| (2.0 - 2.0 * f64::from(dot(from, to))).max(0.0))
    });
    transport_cost(&reference.masses, &candidate.masses, &costs.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use probity_lm::ScriptedEncoder;

    use super::*;
    use crate::choose;

    /// Words are directions in the plane, special tokens are orthogonal to it; layers before the last five are garbage
    /// and must not be used.
    fn models() -> MetricModels {
        let encoder = ScriptedEncoder::new(&["right", "up", "left", "##ward", ".", "the"], 7, 3, |ids, layer| {
            assert!(layer > 2, "layer {layer} is pooled");
            let state = |id: &u32| match id {
                4 | 7 => [2.0, 0.0, 0.0],
                5 => [0.0, 1.0, 0.0],
                6 => [-1.0, 0.0, 0.0],
                _ => [0.0, 0.0, 3.0],
            };
            ids.iter().flat_map(state).collect()
        });
        MetricModels { encoder: Some(Arc::new(encoder)), ..MetricModels::default() }
    }

    fn scored(metric: &str, pairs: &[(&str, &[&str])]) -> Vec<Score> {
        let items: Vec<MetricItem<'_>> = pairs
            .iter()
            .map(|(candidate, references)| MetricItem { candidate, references: references.to_vec(), source: None })
            .collect();
        let metric = choose(metric).expect("well formed")[0].build(&models()).expect("suits");
        metric.score(&items, &|_| Ok(())).expect("scripted").items.into_iter().map(|row| row[0]).collect()
    }

    fn near(score: Score, expected: f64) {
        assert!(score.value().is_some_and(|value| (value - expected).abs() < 1e-6), "{score:?} is not {expected}");
    }

    #[test]
    fn what_differs_is_moved_and_the_frame_counts_without_idf() {
        // One of four tokens moves by a right angle: ¼ · 2.
        near(scored("mover-score:no-idf=yes", &[("right up", &["right right"])])[0], 0.5);
        // Under idf special tokens have weight 0, and so has `right`, which all candidates contain.
        let scores = scored("mover-score", &[("right up", &["right left"]), ("right right", &["up left"])]);
        // The first candidate is only `up`. Its reference is `right` and `left` with weights ln 3/2 and ln 3/3 = 0: all
        // mass moves by a right angle.
        near(scores[0], -1.0);
        assert_eq!(scores[1], Score::Undefined("nothing has any weight"));
    }

    #[test]
    fn punctuation_stop_words_and_ends_of_words_are_left_out() {
        near(scored("mover-score:no-idf=yes", &[("upward .", &["up"])])[0], 1.0);
        assert!(
            scored("mover-score:no-idf=yes,subwords=yes", &[("upward .", &["up"])])[0]
                .value()
                .is_some_and(|score| score < 0.9)
        );
        near(scored("mover-score:no-idf=yes,stop=the", &[("the up", &["up"])])[0], 1.0);
    }

    #[test]
    fn grams_are_means_by_weight() {
        // `[CLS] right` stays, `right up` moves by 45 degrees to `right right`, `up [SEP]` by 60 to `right [SEP]`: 2 −
        // √2 and 1 with weight ⅓ each.
        let scores =
            scored("mover-score:no-idf=yes,n=2", &[("right up", &["right right"]), ("right up", &["right up"])]);
        near(scores[0], 2_f64.sqrt() / 3.0);
        near(scores[1], 1.0);
        let short = scored("mover-score:no-idf=yes,n=8", &[("right", &["right"])]);
        near(short[0], 1.0);
    }

    #[test]
    fn several_references_are_averaged_and_empty_texts_are_undefined() {
        let empty = Score::Undefined("candidate or reference is empty");
        let scores = scored(
            "mover-score:no-idf=yes",
            &[("right", &["right", "up"]), ("", &["up"]), ("up", &[" "]), ("up", &["", "up"])],
        );
        near(scores[0], 1.0 - 2.0 / 3.0 / 2.0);
        assert_eq!(scores[1..3], [empty; 2]);
        near(scores[3], 1.0);
    }
}

//! `BERTScore` (Zhang et al. 2020), equal to the package bert-score.

use std::path::PathBuf;
use std::sync::Arc;

use probity_lm::{Framed, HiddenStates, TextEncoder};
use probity_options::read_text;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::MetricError;
use crate::encoded::{self, DistinctTexts, EncodedItems, Frequencies, Weighting, dot, failed};
use crate::metric::{
    Definition, Metric, MetricItem, MetricModels, MetricScores, MetricSettings, Need, Needs, Score, Watch,
};

/// Options of `BERTScore`.
#[derive(Debug, Clone, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct BertScoreOptions {
    /// Layer to compare, 0: embeddings [default: last]
    layer: Option<usize>,
    /// Weight tokens by inverse document frequency
    idf: bool,
    /// Baseline file of bert-score, to rescale scores
    #[schemars(extend("form" = "FILE"))]
    baseline: Option<PathBuf>,
}

/// `BERTScore`; see [`Definition::LONG_ABOUT`].
pub(crate) struct BertScore {
    encoder: Arc<dyn TextEncoder>,
    layer: usize,
    idf: bool,
    baseline: Option<Triple>,
}

/// A value each for precision, recall and F1.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Triple {
    precision: f64,
    recall: f64,
    f1: f64,
}

const EMPTY: Score = Score::Undefined("the candidate is empty");
const NO_WEIGHT: &str = "no token has any weight";

impl Definition for BertScore {
    type Options = BertScoreOptions;
    const NAME: &'static str = "bert-score";
    const ABOUT: &'static str = "F1 of the most similar tokens by an encoder (BERTScore)";
    const LONG_ABOUT: &'static str = "\
F1 of the most similar tokens by an encoder (BERTScore).

Zhang et al. 2020. Precision is the mean over the candidate's tokens of the cosine with the nearest token of the \
reference, by the hidden states of the encoder; recall is the reverse. Equal to the package bert-score, except for \
rounding in f32: [CLS] and [SEP] have no weight but can be matched. idf is computed over all references, each counted \
as often as it occurs. With several references precision, recall and F1 are each the highest. `baseline` rescales \
last: (score - baseline) / (1 - baseline), with the layer's row of a file of the form LAYER,P,R,F. Scores are \
comparable only under the same model and layer, which the signature names. Where bert-score warns and returns 0, the \
score is undefined: an empty candidate or reference. Text beyond the model's context is omitted as in bert-score; \
`left-out` counts such tokens of candidate and references. The score of all items is the mean.";
    const PARTS: &'static [&'static str] = &["precision", "recall", "left-out"];
    const NEEDS: Needs = &[Need::References, Need::Encoder];
    const MEAN: bool = true;

    fn build(options: BertScoreOptions, models: &MetricModels) -> Result<Box<dyn Metric>, MetricError> {
        let encoder = models.encoder(Self::NAME)?;
        let layers = encoder.config().layers;
        let layer = options.layer.unwrap_or(layers);
        let refuse =
            |why: String, hint: &str| MetricError::Option { metric: Self::NAME.into(), why, hint: hint.into() };
        if layer > layers {
            let why = format!("there is no layer {layer} in `{}`", encoder.config().description.name.escape_debug());
            return Err(refuse(why, &format!("choose one from 0 (the embeddings) to {layers}")));
        }
        let baseline = options.baseline.map(|path| {
            let text = read_text(&path).map_err(BaselineError::Read);
            let found = text.and_then(|text| baseline_of(&text, layer));
            found.map_err(|why| {
                refuse(
                    format!("{}: {why}", path.display()),
                    "give a file with a line LAYER,P,R,F and then one line for each layer",
                )
            })
        });
        Ok(Box::new(Self { encoder, layer, idf: options.idf, baseline: baseline.transpose()? }))
    }
}

/// Invalid baseline file.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
enum BaselineError {
    #[error("{0}")]
    Read(#[source] std::io::Error),
    #[error("line 1 is not `{HEADER}`")]
    Header,
    #[error("line {line} is not a layer with three numbers between -1 and 1")]
    Row { line: usize },
    #[error("there is no line for layer {layer}")]
    Layer { layer: usize },
}

/// The header of a baseline file.
const HEADER: &str = "LAYER,P,R,F";

/// The row of `layer` in a baseline file.
fn baseline_of(text: &str, layer: usize) -> Result<Triple, BaselineError> {
    let mut lines = text.lines().enumerate();
    let header = lines.next().map(|(_, line)| line.trim());
    if header != Some(HEADER) {
        return Err(BaselineError::Header);
    }
    for (index, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let number = |at: usize| {
            fields.get(at).and_then(|field| field.parse::<f64>().ok()).filter(|number| *number < 1.0 && *number > -1.0)
        };
        let row = (fields.first().and_then(|field| field.parse::<usize>().ok()), number(1), number(2), number(3));
        let (Some(found), Some(precision), Some(recall), Some(f1)) = row else {
            return Err(BaselineError::Row { line: index + 1 });
        };
        if found == layer {
            return Ok(Triple { precision, recall, f1 });
        }
    }
    Err(BaselineError::Layer { layer })
}

impl Metric for BertScore {
    fn settings(&self) -> MetricSettings {
        let mut settings = encoded::settings(&self.encoder.config().description);
        settings.push(("layer", self.layer.to_string()));
        settings.push(("idf", if self.idf { "yes" } else { "no" }.to_owned()));
        let baseline = self.baseline.map(|b| format!("{},{},{}", b.precision, b.recall, b.f1));
        settings.push(("baseline", baseline.unwrap_or_else(|| "none".to_owned())));
        settings
    }

    fn score(&self, items: &[MetricItem<'_>], watch: Watch<'_>) -> Result<MetricScores, MetricError> {
        let (distinct, uses) = DistinctTexts::from_items(items);
        let texts = distinct.read(&*self.encoder).map_err(|source| failed(Self::NAME, source))?;
        let references = uses.iter().flat_map(|uses| &uses[1..]).map(|&text| &texts[text]);
        // Only references: bert-score computes idf from the list of references, including repetitions.
        let weighting = if self.idf {
            Weighting::Idf(Frequencies::from_texts(references))
        } else {
            Weighting::Equal { frame: 0.0 }
        };
        let job = EncodedItems {
            metric: Self::NAME,
            encoder: &*self.encoder,
            texts: &texts,
            layers: &[self.layer],
            uses: &uses,
        };
        let compare = |item: usize, read: &[&Option<HiddenStates>]| {
            let texts: Vec<&Framed> = uses[item].iter().map(|&text| &texts[text]).collect();
            self.row(&texts, read, &weighting)
        };
        Ok(MetricScores::with_means(job.run(unit_states, compare, watch)?))
    }
}

/// Hidden states scaled to length one; `None` if one has no direction.
fn unit_states(mut states: HiddenStates) -> Option<HiddenStates> {
    let width = states.hidden_size;
    encoded::normalise_rows(&mut states.values, width).then_some(states)
}

impl BertScore {
    /// The row of a candidate (the first of `texts`) and its references.
    fn row(&self, texts: &[&Framed], states: &[&Option<HiddenStates>], weighting: &Weighting) -> Vec<Score> {
        let left_out: usize = texts.iter().map(|text| text.left_out).sum();
        let triple =
            best(texts, states, weighting).map(|best| self.baseline.map_or(best, |baseline| best.rescaled(baseline)));
        let scores = match triple {
            Ok(best) => [best.f1, best.precision, best.recall].map(Score::Value),
            Err(why) => [why; 3],
        };
        scores.into_iter().chain([Score::Value(left_out as f64)]).collect()
    }
}

/// The scores with the best reference.
fn best(texts: &[&Framed], states: &[&Option<HiddenStates>], weighting: &Weighting) -> Result<Triple, Score> {
    // bert-score warns and returns 0, which would count as the worst of all texts.
    if texts[0].from_text.is_empty() {
        return Err(EMPTY);
    }
    let weighed = |at: usize| {
        let states = states[at].as_ref().ok_or(Score::Undefined("a hidden state has no direction"))?;
        let weights = shares(weighting.token_weights(texts[at])).ok_or(Score::Undefined(NO_WEIGHT))?;
        Ok((states, weights))
    };
    let (candidate, candidate_weights) = weighed(0)?;
    let mut best: Option<Triple> = None;
    for at in (1..texts.len()).filter(|&at| !texts[at].from_text.is_empty()) {
        let (reference, reference_weights) = weighed(at)?;
        let (nearest, nearest_back) = nearest(candidate, reference);
        let triple = Triple::new(weighted(&nearest, &candidate_weights), weighted(&nearest_back, &reference_weights));
        // bert-score takes each maximum separately, so F1 may be of another reference than precision.
        best = Some(best.map_or(triple, |best| best.highest(triple)));
    }
    best.ok_or(Score::Undefined("every reference is empty"))
}

impl Triple {
    fn new(precision: f64, recall: f64) -> Self {
        let sum = precision + recall;
        // The cosines may cancel out exactly; F1 is then 0.
        let f1 = if sum == 0.0 { 0.0 } else { 2.0 * precision * recall / sum };
        Self { precision, recall, f1 }
    }

    fn highest(self, other: Self) -> Self {
        Self {
            precision: self.precision.max(other.precision),
            recall: self.recall.max(other.recall),
            f1: self.f1.max(other.f1),
        }
    }

    fn rescaled(self, baseline: Self) -> Self {
        let rescale = |score: f64, baseline: f64| (score - baseline) / (1.0 - baseline);
        Self {
            precision: rescale(self.precision, baseline.precision),
            recall: rescale(self.recall, baseline.recall),
            f1: rescale(self.f1, baseline.f1),
        }
    }
}

/// Weights divided by their sum; `None` if the sum is 0.
fn shares(mut weights: Vec<f64>) -> Option<Vec<f64>> {
    let sum: f64 = weights.iter().sum();
    for weight in &mut weights {
        *weight /= sum;
    }
    (sum > 0.0).then_some(weights)
}

fn weighted(values: &[f32], shares: &[f64]) -> f64 {
    values.iter().zip(shares).map(|(value, share)| f64::from(*value) * share).sum()
}

/// For each token of both sides, the highest cosine with a token of the other side.
fn nearest(candidate: &HiddenStates, reference: &HiddenStates) -> (Vec<f32>, Vec<f32>) {
    // Both directions in one pass, because the cosines are expensive.
    let mut forth = vec![f32::NEG_INFINITY; candidate.tokens];
    let mut back = vec![f32::NEG_INFINITY; reference.tokens];
    for (a, best) in candidate.values.chunks_exact(candidate.hidden_size).zip(&mut forth) {
        for (b, best_back) in reference.values.chunks_exact(reference.hidden_size).zip(&mut back) {
            let cosine = dot(a, b);
            *best = best.max(cosine);
            *best_back = best_back.max(cosine);
        }
    }
    (forth, back)
}

#[cfg(test)]
mod tests {
    use probity_lm::ScriptedEncoder;

    use super::*;
    use crate::choose;
    use crate::error::hint_of;

    /// Words are directions in the plane: `right` and `up` are orthogonal, `between` is at 60 and 30 degrees from them,
    /// and special tokens are far from all.
    fn models() -> MetricModels {
        let encoder = ScriptedEncoder::new(&["right", "up", "between", "nought"], 2, 3, |ids, layer| {
            let state = |id: &u32| match id {
                4 => [2.0, 0.0, 0.0],
                5 => [0.0, 3.0, 0.0],
                6 => [0.5, 0.75_f32.sqrt(), 0.0],
                7 => [0.0, 0.0, 0.0],
                _ => [0.0, 0.0, -1.0],
            };
            let turned = |s: [f32; 3]| if layer == 1 { [s[1], s[1], s[2]] } else { s };
            ids.iter().flat_map(|id| turned(state(id))).collect()
        });
        MetricModels { encoder: Some(Arc::new(encoder.with_context_length(6))), ..MetricModels::default() }
    }

    fn scored(metric: &str, pairs: &[(&str, &[&str])]) -> MetricScores {
        let items: Vec<MetricItem<'_>> = pairs
            .iter()
            .map(|(candidate, references)| MetricItem { candidate, references: references.to_vec(), source: None })
            .collect();
        let metric = choose(metric).expect("well formed")[0].build(&models()).expect("suits");
        metric.score(&items, &|_| Ok(())).expect("scripted")
    }

    fn near(row: &[Score], expected: [f64; 3]) {
        for (score, expected) in row.iter().zip(expected) {
            assert!(score.value().is_some_and(|value| (value - expected).abs() < 1e-6), "{row:?} is not {expected:?}");
        }
    }

    #[test]
    fn each_token_takes_its_nearest() {
        let scores = scored("bert-score", &[("right up", &["between"]), ("between", &["between"])]);
        let cos30 = 0.75_f64.sqrt();
        let precision = f64::midpoint(0.5, cos30);
        near(&scores.items[0], [2.0 * precision * cos30 / (precision + cos30), precision, cos30]);
        near(&scores.items[1], [1.0, 1.0, 1.0]);
        assert_eq!(scores.items[1][3], Score::Value(0.0));
        // With layer 1 both words of the first candidate that have a direction are equal.
        let scores = scored("bert-score:layer=1", &[("up", &["between"])]);
        near(&scores.items[0], [1.0, 1.0, 1.0]);
    }

    #[test]
    fn of_several_references_each_number_is_the_highest() {
        let scores = scored("bert-score", &[("right", &["right up", "between"])]);
        // P 1, R ½, F ⅔ with the first; ½, ½, ½ with the second.
        near(&scores.items[0], [2.0 / 3.0, 1.0, 0.5]);
    }

    #[test]
    fn idf_counts_references_and_not_candidates() {
        // `right` is in both references and has weight ln(3/3) = 0, `up` is in one: ln(3/2); the candidate's `between`
        // is in none: ln 3.
        let scores = scored("bert-score:idf=yes", &[("between up", &["right up"]), ("right", &["right"])]);
        let (up, between) = (1.5_f64.ln(), 3_f64.ln());
        let precision = (between * 0.75_f64.sqrt() + up) / (between + up);
        near(&scores.items[0], [2.0 * precision / (precision + 1.0), precision, 1.0]);
        assert_eq!(scores.items[1][0], Score::Undefined(NO_WEIGHT));
    }

    #[test]
    fn what_cannot_be_compared_is_undefined() {
        let scores = scored("bert-score", &[(" ", &["up"]), ("up", &[""]), ("up", &["", "up"]), ("nought", &["up"])]);
        assert_eq!(scores.items[0][..3], [EMPTY; 3]);
        assert_eq!(scores.items[1][0], Score::Undefined("every reference is empty"));
        near(&scores.items[2], [1.0, 1.0, 1.0]);
        assert_eq!(scores.items[3][0], Score::Undefined("a hidden state has no direction"));
        assert_eq!(scores.corpus[0], Score::Value(1.0), "the mean of what is defined");
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let scores = scored("bert-score", &[("up up up up right right", &["up up up up up"])]);
        near(&scores.items[0], [1.0, 1.0, 1.0]);
        assert_eq!(scores.items[0][3], Score::Value(3.0));
    }

    #[test]
    fn baselines_rescale_by_their_layer() {
        let text = "LAYER,P,R,F\n0,0.5,0.5,0.5\n1,0.25,0.5,0.75\n";
        let baseline = baseline_of(text, 1).expect("well formed");
        assert_eq!(
            Triple { precision: 1.0, recall: 0.5, f1: 0.25 }.rescaled(baseline),
            Triple { precision: 1.0, recall: 0.0, f1: -2.0 }
        );
        assert!(matches!(baseline_of(text, 2), Err(BaselineError::Layer { layer: 2 })));
        assert!(matches!(baseline_of("P,R,F", 2), Err(BaselineError::Header)));
        assert!(baseline_of("LAYER,P,R,F\n0,1,0,0", 0).is_err(), "1 would divide by nothing");
    }

    #[test]
    fn a_layer_that_is_not_there_is_refused() {
        let choice = &choose("bert-score:layer=3").expect("well formed")[0];
        let error = choice.build(&models()).err().expect("refused");
        assert_eq!(error.to_string(), "bert-score: there is no layer 3 in `scripted`");
        assert_eq!(hint_of(&error), "choose one from 0 (the embeddings) to 2");
        let error = choice.build(&MetricModels::default()).err().expect("refused");
        assert!(hint_of(&error).starts_with("name one with --encoder"), "{error:?}");
    }
}

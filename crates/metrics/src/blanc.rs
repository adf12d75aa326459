//! BLANC-help (Vasilyev et al. 2020), equal to the package blanc for the same sentences.

use std::sync::Arc;

use probity_lm::{Framing, MaskedSequence, Piece, TextEncoder};
use rustc_hash::FxHashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;
use unicode_normalization::UnicodeNormalization;
use unicode_segmentation::UnicodeSegmentation;

use crate::MetricError;
use crate::encoded::{self, failed};
use crate::metric::{
    Definition, Metric, MetricItem, MetricModels, MetricScores, MetricSettings, Need, Needs, Score, Watch,
};

/// Options of BLANC-help.
#[derive(Debug, Clone, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct BlancOptions {
    /// Mask one in N tokens at a time; the paper uses 6
    #[schemars(range(min = 1))]
    #[default(2)]
    gap: u8,
    /// How to count helped and hindered tokens
    #[default(BlancMeasure::Relative)]
    measure: BlancMeasure,
    /// Shortest one-piece word to mask, in characters
    #[default(4)]
    min_normal: usize,
    /// Shortest first piece of a split word to mask
    #[default(2)]
    min_lead: usize,
    /// Shortest later piece of a split word to mask
    #[default(100)]
    min_followup: usize,
}

/// Measure of the tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum BlancMeasure {
    /// (helped - hindered) / all
    Relative,
    /// helped / (all - hindered)
    Improve,
}

/// BLANC-help; see [`Definition::LONG_ABOUT`].
pub(crate) struct Blanc {
    encoder: Arc<dyn TextEncoder>,
    options: BlancOptions,
    mask: u32,
    filler: u32,
}

/// The tool's limit on input tokens.
const MOST_TOKENS: usize = 512;
/// A sentence is shortened to this many tokens before the summary is shortened.
const SENTENCE_KEEPS: usize = 100;
/// Number of tokens of masked sequences in memory.
// Each document is masked in many ways, so its sequences are many times its length: they are processed in blocks.
const BLOCK_TOKENS: usize = 1 << 21;

impl Definition for Blanc {
    type Options = BlancOptions;
    const NAME: &'static str = "blanc";
    const ABOUT: &'static str = "Gain from a summary when filling masked words (BLANC-help)";
    const LONG_ABOUT: &'static str = "\
Gain from a summary when filling masked words (BLANC-help).

Vasilyev et al. 2020. Each sentence of the document is read twice: after the summary, and after as many full stops as \
the summary has tokens. Every gap-th token that is long enough is masked, in gap ways. `relative` is (helped - \
hindered) / all masked tokens, from -1 to 1; `improve` is helped / (all - hindered). Equal to the package blanc, which \
also truncates a sentence and its summary if together they exceed 512 tokens or the model's context. Only sentence \
ends differ: here by Unicode's rules (UAX #29), there by nltk's trained splitter. `masked` is the number of tokens \
predicted. If there are none, the score is undefined (0 in the package), and so it is for an empty summary. Scores are \
comparable only under the same model, which the signature names. The score of all items is the mean.";
    const PARTS: &'static [&'static str] = &["masked"];
    const NEEDS: Needs = &[Need::Source, Need::Encoder];
    const MEAN: bool = true;

    fn build(options: BlancOptions, models: &MetricModels) -> Result<Box<dyn Metric>, MetricError> {
        let encoder = models.encoder(Self::NAME)?;
        let unfit = |why: &str| MetricError::Option {
            metric: Self::NAME.into(),
            why: format!("`{}` {why}", encoder.config().description.name.escape_debug()),
            hint: "choose another --encoder, one whose config.json says \"…ForMaskedLM\"".into(),
        };
        let mask = encoder.tokenizer().framing().mask.ok_or_else(|| unfit("has no token for masks"))?;
        let filler = encoder.tokenizer().tokenize(&["."]).map_err(|source| failed(Self::NAME, source))?;
        // The filler must have as many tokens as the summary, or later positions would differ.
        let [filler] = *filler[0].as_slice() else { return Err(unfit("has no full stop of one token")) };
        Ok(Box::new(Self { encoder, options, mask, filler }))
    }
}

impl Metric for Blanc {
    fn settings(&self) -> MetricSettings {
        let o = &self.options;
        let measure = match o.measure {
            BlancMeasure::Relative => "relative",
            BlancMeasure::Improve => "improve",
        };
        let mut settings = encoded::settings(&self.encoder.config().description);
        settings.push(("gap", o.gap.to_string()));
        settings.push(("measure", measure.to_owned()));
        settings.push(("min", format!("{},{},{}", o.min_normal, o.min_lead, o.min_followup)));
        settings.push(("sentences", "uax29".to_owned()));
        settings
    }

    fn score(&self, items: &[MetricItem<'_>], watch: Watch<'_>) -> Result<MetricScores, MetricError> {
        let mut rows = Vec::with_capacity(items.len());
        let mut block = MaskedBlock::default();
        let mut done = 0;
        for item in items {
            block.add(self.masked(item)?);
            if block.tokens >= BLOCK_TOKENS {
                rows.extend(self.judge(std::mem::take(&mut block))?);
                watch(rows.len() - done).map_err(MetricError::Stopped)?;
                done = rows.len();
            }
        }
        rows.extend(self.judge(block)?);
        watch(rows.len() - done).map_err(MetricError::Stopped)?;
        Ok(MetricScores::with_means(rows))
    }
}

/// One masking of one sentence, after the summary and after the filler.
struct Masking {
    helped: MaskedSequence,
    filled: MaskedSequence,
    /// The masked tokens.
    answers: Vec<u32>,
}

/// Helped and filled sequence of an item in a block, and the masked tokens. Equal sequences of a block, such as the
/// filled ones of summaries of equal length, are computed once.
type PlacedMasks = (usize, usize, Vec<u32>);

#[derive(Default)]
struct MaskedBlock {
    sequences: Vec<MaskedSequence>,
    index: FxHashMap<MaskedSequence, usize>,
    items: Vec<Result<Vec<PlacedMasks>, &'static str>>,
    tokens: usize,
}

impl MaskedBlock {
    fn add(&mut self, item: Result<Vec<Masking>, &'static str>) {
        let item = item.map(|maskings| {
            maskings
                .into_iter()
                .map(|masking| (self.position(masking.helped), self.position(masking.filled), masking.answers))
                .collect()
        });
        self.items.push(item);
    }

    fn position(&mut self, sequence: MaskedSequence) -> usize {
        if let Some(at) = self.index.get(&sequence) {
            return *at;
        }
        self.tokens += sequence.ids.len();
        self.sequences.push(sequence.clone());
        self.index.insert(sequence, self.sequences.len() - 1);
        self.sequences.len() - 1
    }
}

impl Blanc {
    /// All maskings of an item, or why there are none.
    fn masked(&self, item: &MetricItem<'_>) -> Result<Result<Vec<Masking>, &'static str>, MetricError> {
        let summary = self.sentences(item.candidate)?;
        if summary.iter().all(Vec::is_empty) {
            return Ok(Err("the candidate is empty"));
        }
        let framing = self.encoder.tokenizer().framing();
        let limit = self
            .encoder
            .config()
            .description
            .context_length
            // The tool truncates at 512 even if the model accepts more; a longer context would change scores.
            .map_or(MOST_TOKENS, |limit| limit.min(MOST_TOKENS))
            .saturating_sub(framing.len());
        let document = self.sentences(item.source.unwrap_or_default())?;
        let maskings = document.iter().flat_map(|sentence| {
            let (sentence, help) = fit(sentence, &summary, limit);
            self.maskings(framing, sentence, &help)
        });
        Ok(Ok(maskings.collect()))
    }

    /// The tokens of each sentence.
    fn sentences(&self, text: &str) -> Result<Vec<Vec<u32>>, MetricError> {
        // The tool's normalisation before sentence splitting.
        let text: String = text.nfkd().collect();
        let sentences: Vec<&str> =
            text.split_sentence_bounds().map(str::trim).filter(|sentence| !sentence.is_empty()).collect();
        self.encoder.tokenizer().tokenize(&sentences).map_err(|source| failed(Self::NAME, source))
    }

    fn maskings(&self, framing: &Framing, sentence: &[u32], help: &[u32]) -> Vec<Masking> {
        let pieces: Vec<Piece> = sentence.iter().map(|&id| self.encoder.tokenizer().piece(id)).collect();
        let continues = |at: usize| at > 0 && pieces.get(at).is_some_and(|piece| piece.continues_word);
        let is_long_enough = |at: usize| {
            let least = match (continues(at), continues(at + 1)) {
                (true, _) => self.options.min_followup,
                (_, true) => self.options.min_lead,
                _ => self.options.min_normal,
            };
            pieces[at].text.chars().count() >= least
        };
        let gap = usize::from(self.options.gap).min(sentence.len());
        let filler = vec![self.filler; help.len()];
        let masking = |first: usize| {
            let masks: Vec<usize> = (first..sentence.len()).step_by(gap).filter(|&at| is_long_enough(at)).collect();
            let answers = masks.iter().map(|&at| sentence[at]).collect();
            let behind = |help: &[u32]| {
                let mut ids = [&framing.before, help, sentence, &framing.after].concat();
                let positions: Vec<usize> = masks.iter().map(|at| framing.before.len() + help.len() + at).collect();
                for &at in &positions {
                    ids[at] = self.mask;
                }
                MaskedSequence { ids, positions }
            };
            (!masks.is_empty()).then(|| Masking { helped: behind(help), filled: behind(&filler), answers })
        };
        (0..gap).filter_map(masking).collect()
    }

    fn judge(&self, block: MaskedBlock) -> Result<Vec<Vec<Score>>, MetricError> {
        let mut predicted: Vec<Vec<u32>> = vec![Vec::new(); block.sequences.len()];
        let take = &mut |index: usize, ids| {
            predicted[index] = ids;
            Ok(())
        };
        self.encoder.predict_masked(&block.sequences, take).map_err(|source| failed(Self::NAME, source))?;
        Ok(block.items.into_iter().map(|item| self.row(item, &predicted)).collect())
    }

    fn row(&self, item: Result<Vec<PlacedMasks>, &'static str>, predicted: &[Vec<u32>]) -> Vec<Score> {
        let maskings = match item {
            Ok(maskings) => maskings,
            Err(why) => return vec![Score::Undefined(why); 2],
        };
        let (mut all, mut helped, mut hindered) = (0_u32, 0_u32, 0_u32);
        for (with, without, answers) in &maskings {
            for ((answer, with), without) in answers.iter().zip(&predicted[*with]).zip(&predicted[*without]) {
                all += 1;
                helped += u32::from(with == answer && without != answer);
                hindered += u32::from(with != answer && without == answer);
            }
        }
        let share = |part: f64, whole: u32| match whole {
            // The tool returns 0, the score of a summary that helps as often as it hinders.
            0 => Score::Undefined("no token of the source was masked and not hindered"),
            whole => Score::Value(part / f64::from(whole)),
        };
        let score = match self.options.measure {
            BlancMeasure::Relative => share(f64::from(helped) - f64::from(hindered), all),
            BlancMeasure::Improve => share(f64::from(helped), all - hindered),
        };
        vec![score, Score::Value(f64::from(all))]
    }
}

/// A sentence and the preceding summary tokens, truncated to `limit` tokens like the tool: first the end of the
/// sentence, down to [`SENTENCE_KEEPS`], then the last sentences of the summary, and finally the end of its first
/// sentence.
fn fit<'a>(sentence: &'a [u32], summary: &[Vec<u32>], limit: usize) -> (&'a [u32], Vec<u32>) {
    let help = summary.concat();
    let excess = (help.len() + sentence.len()).saturating_sub(limit);
    if excess == 0 {
        return (sentence, help);
    }
    let cut = excess.min(sentence.len().saturating_sub(SENTENCE_KEEPS));
    // Models with a shorter context shorten the sentence further.
    let sentence = &sentence[..(sentence.len() - cut).min(limit)];
    let room = limit - sentence.len();
    if help.len() <= room {
        return (sentence, help);
    }
    let mut kept = 0;
    let whole = summary.iter().take_while(|sentence| {
        kept += sentence.len();
        kept <= room
    });
    let whole: Vec<u32> = whole.flatten().copied().collect();
    let first = &summary[0];
    (sentence, if whole.is_empty() { first[first.len().saturating_sub(room)..].to_vec() } else { whole })
}

#[cfg(test)]
mod tests {
    use probity_lm::ScriptedEncoder;

    use super::*;
    use crate::choose;

    const VOCABULARY: [&str; 8] = [".", "green", "house", "hou", "##ses", "a", "##s", "white"];

    /// Predicts `house` if `green` occurs before the mask, `green` if `white` does, otherwise `white`.
    fn models() -> MetricModels {
        let encoder = ScriptedEncoder::new(&VOCABULARY, 1, 1, |_, _| Vec::new()).with_masked(|sequence| {
            let sees = |id: u32, at: usize| sequence.ids[..at].contains(&id);
            let said = |&at: &usize| match (sees(5, at), sees(11, at)) {
                (true, _) => 6,
                (_, true) => 5,
                _ => 11,
            };
            sequence.positions.iter().map(said).collect()
        });
        MetricModels { encoder: Some(Arc::new(encoder)), ..MetricModels::default() }
    }

    fn scored(metric: &str, pairs: &[(&str, &str)]) -> Vec<Vec<Score>> {
        let items: Vec<MetricItem<'_>> = pairs
            .iter()
            .map(|&(source, candidate)| MetricItem { candidate, references: Vec::new(), source: Some(source) })
            .collect();
        choose(metric).expect("well formed")[0]
            .build(&models())
            .expect("suits")
            .score(&items, &|_| Ok(()))
            .expect("scripted")
            .items
    }

    #[test]
    fn a_summary_helps_where_it_makes_a_word_known() {
        // One mask at a time: `house` twice, predicted only after `green`. `a` is too short.
        let rows = scored(
            "blanc",
            &[("a house a house", "green"), ("a house a house", "house"), ("white house white", "green")],
        );
        assert_eq!(rows[0], [Score::Value(1.0), Score::Value(2.0)]);
        assert_eq!(rows[1], [Score::Value(0.0), Score::Value(2.0)]);
        // After the filler both `white` are predicted, and after `green` only `house`.
        assert_eq!(rows[2], [Score::Value(-1.0 / 3.0), Score::Value(3.0)]);
        assert_eq!(scored("blanc:measure=improve", &[("white house white", "green")])[0][0], Score::Value(1.0));
    }

    #[test]
    fn words_are_masked_by_the_length_of_their_pieces() {
        let masked = |metric, source| scored(metric, &[(source, "green")])[0][1];
        assert_eq!(
            masked("blanc", "houses as a green"),
            Score::Value(2.0),
            "`hou` leads, `as` is two pieces of which one leads, but too short"
        );
        assert_eq!(masked("blanc:min-lead=1", "houses as a green"), Score::Value(3.0));
        assert_eq!(masked("blanc:min-followup=1", "houses as a green"), Score::Value(4.0));
        assert_eq!(masked("blanc:min-normal=1,gap=6", "houses as a green"), Score::Value(3.0));
    }

    #[test]
    fn nothing_to_ask_or_to_help_with_is_undefined() {
        let rows = scored("blanc", &[("a a", "green"), ("green", ""), ("", "green")]);
        assert!(rows.iter().all(|row| row[0].value().is_none()), "{rows:?}");
        assert_eq!((rows[0][1], rows[2][1]), (Score::Value(0.0), Score::Value(0.0)));
    }

    #[test]
    fn what_is_too_long_is_cut_as_the_tool_does() {
        let sentence: Vec<u32> = (0..150).collect();
        let summary = [vec![1; 30], vec![2; 30], vec![3; 30]];
        assert_eq!(fit(&sentence, &summary, 240), (&sentence[..], summary.concat()));
        assert_eq!(fit(&sentence, &summary, 200), (&sentence[..110], summary.concat()));
        assert_eq!(fit(&sentence, &summary, 165), (&sentence[..100], summary[..2].concat()));
        let first: Vec<u32> = (0..200).collect();
        assert_eq!(fit(&sentence[..50], &[first.clone(), vec![7]], 100), (&sentence[..50], first[150..].to_vec()));
        assert_eq!(fit(&sentence, &[vec![1]], 60), (&sentence[..60], Vec::new()));
    }
}

//! METEOR (Banerjee and Lavie 2005; Lavie and Agarwal 2007), equal to nltk.

mod wordnet;

use std::collections::HashMap;
use std::path::PathBuf;

use rustc_hash::FxBuildHasher;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::MetricError;
use crate::bleu::Tokens;
use crate::metric::{
    Definition, Metric, MetricItem, MetricModels, MetricScores, MetricSettings, Need, Needs, Score, Watch, each,
};
use crate::stem::porter;
use crate::text::{split_words, tokenized, word_settings};
use wordnet::WordNet;

/// Options of METEOR.
#[derive(Debug, Clone, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct MeteorOptions {
    /// Tokenizer
    #[default(Tokens::V13a)]
    tok: Tokens,
    /// Folder with the `WordNet` files, for synonyms
    #[schemars(extend("form" = "DIR"))]
    wordnet: Option<PathBuf>,
    /// Weight of recall against precision, 0 to 1
    #[default(0.9)]
    #[schemars(range(min = 0, max = 1))]
    alpha: f64,
    /// Exponent of the penalty for scattered matches
    #[default(3.0)]
    #[schemars(extend("exclusiveMinimum" = 0))]
    beta: f64,
    /// Largest penalty for scattered matches, 0 to 1
    #[default(0.5)]
    #[schemars(range(min = 0, max = 1))]
    gamma: f64,
}

const SINGLE: &str = "the candidate is a single word, which has the full penalty for scattered matches";

/// METEOR; see [`Definition::LONG_ABOUT`].
pub(crate) struct Meteor {
    options: MeteorOptions,
    wordnet: Option<WordNet>,
}

impl Definition for Meteor {
    type Options = MeteorOptions;
    const NAME: &'static str = "meteor";
    const ABOUT: &'static str = "Word matches by form, stem and synonym, 0 to 1";
    const LONG_ABOUT: &'static str = "\
Word matches by form, stem and synonym, 0 to 1.

Banerjee and Lavie 2005. Equal to nltk's meteor_score, in the form of Lavie and Agarwal (2007), which is the formula \
of 2005 for alpha 0.9, beta 3 and gamma 0.5. Lower-case words are matched one to one: first equal words, then words \
with equal Porter stems, then words whose stem is in a WordNet synset of the candidate's stem. The last step needs \
`wordnet`, a folder with WordNet's files (index.noun, data.noun, noun.exc, …). Each step starts at the candidate's end \
and takes the last reference word that fits.

With m matches, P = m / words of the candidate, R = m / words of the reference and chunks = runs of consecutive \
matches in both texts, the score is (1 - gamma (chunks / m)^beta) P R / (alpha P + (1 - alpha) R). Without a match it \
is 0. alpha 0 is precision alone, alpha 1 recall alone. With several references the highest score counts; the corpus \
score is the mean over items. nltk expects tokenized text, and gives the same score for the same words (Hugging Face's \
evaluate uses nltk's word_tokenize: pass texts tokenized that way, with tok=none). If neither text has a word, there \
is no score (nltk: 0).";
    const NEEDS: Needs = &[Need::References];
    const MEAN: bool = true;

    fn build(options: MeteorOptions, _: &MetricModels) -> Result<Box<dyn Metric>, MetricError> {
        let wordnet =
            options.wordnet.as_deref().map(WordNet::read).transpose().map_err(|error| MetricError::Option {
                metric: Self::NAME.to_owned(),
                why: error.to_string(),
                hint:
                    "give the folder `dict` of WordNet's database files, with index, data and exc files of noun, verb, \
                   adj and adv"
                        .to_owned(),
            })?;
        Ok(Box::new(Self { options, wordnet }))
    }
}

impl Metric for Meteor {
    fn settings(&self) -> MetricSettings {
        let MeteorOptions { tok, alpha, beta, gamma, .. } = &self.options;
        let wordnet = self.wordnet.as_ref().map_or("no", |wordnet| wordnet.version());
        let mut settings = word_settings(*tok, true);
        settings.extend([
            ("stem", "porter-nltk".to_owned()),
            ("wordnet", wordnet.to_owned()),
            ("alpha", alpha.to_string()),
            ("beta", beta.to_string()),
            ("gamma", gamma.to_string()),
        ]);
        settings
    }

    fn note_without_spaces(&self) -> Option<&'static str> {
        self.options.tok.note_without_spaces()
    }

    fn score(&self, items: &[MetricItem<'_>], watch: Watch<'_>) -> Result<MetricScores, MetricError> {
        Ok(MetricScores::with_means(each(items, watch, || (), |(), item| vec![self.item(item)])?))
    }
}

impl Meteor {
    fn item(&self, item: &MetricItem<'_>) -> Score {
        // Lower-cased after tokenization, word by word, as in nltk.
        let cut =
            |text| split_words(&tokenized(self.options.tok, false, text)).map(str::to_lowercase).collect::<Vec<_>>();
        let candidate = cut(item.candidate);
        let references: Vec<_> = item.references.iter().map(|text| cut(text)).collect();
        if candidate.is_empty() && references.iter().all(Vec::is_empty) {
            return Score::Undefined("neither the candidate nor a reference has a word");
        }
        let stems: Vec<String> = candidate.iter().map(|word| porter(word)).collect();
        let scores = references.iter().map(|reference| self.single(&candidate, &stems, reference));
        let score = scores.fold(0.0, f64::max);
        let is_single = candidate.len() == 1 && score > 0.0 && self.options.gamma > 0.0;
        Score::Value(score).noted(is_single.then_some(SINGLE))
    }

    /// The score against one reference.
    fn single(&self, candidate: &[String], stems: &[String], reference: &[String]) -> f64 {
        let matches = Matches::new(candidate, stems, reference, self.wordnet.as_ref());
        let (count, chunks) = (matches.count() as f64, matches.chunks() as f64);
        if count == 0.0 {
            return 0.0;
        }
        let MeteorOptions { alpha, beta, gamma, .. } = self.options;
        let (precision, recall) = (count / candidate.len() as f64, count / reference.len() as f64);
        let mean = precision * recall / (alpha * precision + (1.0 - alpha) * recall);
        (1.0 - gamma * (chunks / count).powf(beta)) * mean
    }
}

/// For each word of the candidate, the matched word of the reference.
struct Matches(Vec<Option<usize>>);

impl Matches {
    fn new(candidate: &[String], stems: &[String], reference: &[String], wordnet: Option<&WordNet>) -> Self {
        let mut matches = Self(vec![None; candidate.len()]);
        let mut open: Vec<bool> = vec![true; reference.len()];
        let mut words = WordPositions::new(reference.iter().map(String::as_str).zip(0..));
        matches.stage(&mut open, |i| words.last(candidate[i].as_str()).map(|(_, word)| words.take(word)));
        // No word is left for a stem or synonym match.
        if matches.count() == candidate.len().min(reference.len()) {
            return matches;
        }
        let reference_stems: Vec<(String, usize)> =
            // Only unmatched words: each word is matched once.
            (0..reference.len()).filter(|j| open[*j]).map(|j| (porter(&reference[j]), j)).collect();
        let mut words = WordPositions::new(reference_stems.iter().map(|(stem, j)| (stem.as_str(), *j)));
        matches.stage(&mut open, |i| words.last(stems[i].as_str()).map(|(_, stem)| words.take(stem)));
        if let Some(wordnet) = wordnet {
            // nltk passes stems instead of words to its last stage. A stem itself has no unmatched equal.
            matches.stage(&mut open, |i| {
                let best = wordnet.synonyms(&stems[i]).into_iter().filter_map(|synonym| words.last(synonym)).max();
                best.map(|(_, stem)| words.take(stem))
            });
        }
        matches
    }

    /// Matches the remaining words of the candidate, from its end.
    fn stage(&mut self, open: &mut [bool], mut find: impl FnMut(usize) -> Option<usize>) {
        for (i, matched) in self.0.iter_mut().enumerate().rev().filter(|(_, matched)| matched.is_none()) {
            *matched = find(i);
            if let Some(j) = *matched {
                open[j] = false;
            }
        }
    }

    fn count(&self) -> usize {
        self.0.iter().flatten().count()
    }

    /// Number of runs of matches that are contiguous in both texts.
    fn chunks(&self) -> usize {
        let follows = |pair: &&[Option<usize>]| matches!(pair, [Some(a), Some(b)] if a + 1 == *b);
        self.count() - self.0.windows(2).filter(follows).count()
    }
}

/// Positions of the unmatched words.
struct WordPositions<'w>(HashMap<&'w str, Vec<usize>, FxBuildHasher>);

impl<'w> WordPositions<'w> {
    /// Words with their positions in ascending order.
    fn new(words: impl Iterator<Item = (&'w str, usize)>) -> Self {
        let mut positions: HashMap<&str, Vec<usize>, FxBuildHasher> = HashMap::default();
        for (word, position) in words {
            positions.entry(word).or_default().push(position);
        }
        Self(positions)
    }

    /// The last position of a word, and the word.
    fn last(&self, word: &str) -> Option<(usize, &'w str)> {
        let (word, positions) = self.0.get_key_value(word)?;
        Some((*positions.last()?, word))
    }

    /// Removes and returns the last position of a word that has one.
    fn take(&mut self, word: &str) -> usize {
        self.0.get_mut(word).and_then(Vec::pop).expect("the word has a place")
    }
}

//! ROUGE (Lin 2004), equal to Google's `rouge_score`, which is validated against ROUGE-1.5.5.

use std::collections::HashMap;
use std::sync::LazyLock;

use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;
use unicode_segmentation::UnicodeSegmentation as _;

use crate::MetricError;
use crate::lcs::Lcs;
use crate::metric::{
    Definition, Metric, MetricItem, MetricModels, MetricScores, MetricSettings, Need, Needs, Score, Watch, each,
};
use crate::ngrams::{Interner, Ngrams, total};
use crate::stem::porter;

/// Options of ROUGE.
#[derive(Debug, Clone, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct RougeOptions {
    /// Stem words of more than three letters
    stem: bool,
    /// Tokenizer: rouge (ASCII) or unicode (any script)
    #[default(RougeTokens::Rouge)]
    tok: RougeTokens,
}

/// Where words end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum RougeTokens {
    Rouge,
    Unicode,
}

const UNREAD: &str =
    "the texts have no word of ASCII letters or digits, and tok=rouge reads no others; tok=unicode does";
const MOSTLY_UNREAD: &str = "most letters of the texts are outside ASCII, and tok=rouge does not read them; \
                             tok=unicode \
                             does";
const NO_NGRAM: &str = "a text has fewer words than the n-grams that are counted";

/// Unit of overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RougeUnit {
    /// N-grams of this order.
    Ngrams(usize),
    /// The longest common subsequence.
    Sequence,
    /// Longest common subsequences of lines, joined for each line of the reference.
    Lines,
}

const PARTS: &[&str] = &["precision", "recall"];

/// Defines a metric of the family.
macro_rules! rouge {
    ($type:ident, $name:literal, $unit:expr, $about:literal, $more:literal) => {
        #[doc = concat!("`", $name, "`; see [`Definition::LONG_ABOUT`].")]
        pub(crate) struct $type;

        impl Definition for $type {
            type Options = RougeOptions;
            const NAME: &'static str = $name;
            const ABOUT: &'static str = $about;
            const LONG_ABOUT: &'static str = concat!(
                $about,
                ".\n\n",
                $more,
                "Equal to Google's rouge_score: texts are lower-cased, and words are runs of ASCII letters and \
                 digits. Texts in other scripts are undefined, where rouge_score gives 0. tok=unicode reads them: it \
                 splits words by UAX #29, and each Chinese character, kana and emoji is a word. `stem` is Porter's \
                 stemmer (1980) with nltk's additions. With several references the best F counts. The score of all \
                 items is the mean, which rouge_score's bootstrap estimates as `mid`."
            );
            const PARTS: &'static [&'static str] = PARTS;
            const NEEDS: Needs = &[Need::References];
            const MEAN: bool = true;

            fn build(options: RougeOptions, _: &MetricModels) -> Result<Box<dyn Metric>, MetricError> {
                Ok(Box::new(Rouge { options, unit: $unit }))
            }
        }
    };
}

rouge!(Rouge1, "rouge-1", RougeUnit::Ngrams(1), "F1 of common words, 0 to 1", "Lin 2004. ");
rouge!(Rouge2, "rouge-2", RougeUnit::Ngrams(2), "F1 of common pairs of words, 0 to 1", "Lin 2004. ");
rouge!(RougeL, "rouge-l", RougeUnit::Sequence, "F1 of the longest common subsequence of words, 0 to 1", "Lin 2004. ");
rouge!(
    RougeLsum,
    "rouge-lsum",
    RougeUnit::Lines,
    "F1 of common subsequences of words, by line, 0 to 1",
    "Lin 2004, section 3.2. Put a line break after each sentence. For each line of the reference, its common \
     subsequences with the candidate's lines are joined; no word counts more often than it occurs. Texts of one line \
     have the score of rouge-l.\n\n"
);

struct Rouge {
    options: RougeOptions,
    unit: RougeUnit,
}

/// Scratch memory, reused between items.
struct RougeScratch {
    ngrams: Ngrams,
    lcs: Lcs,
    stems: HashMap<String, String, rustc_hash::FxBuildHasher>,
}

impl Metric for Rouge {
    fn settings(&self) -> MetricSettings {
        let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
        vec![
            ("case", "lc".to_owned()),
            ("tok", if self.options.tok == RougeTokens::Rouge { "rouge" } else { "unicode" }.to_owned()),
            ("stem", yes(self.options.stem)),
            ("refs", "best".to_owned()),
        ]
    }

    fn score(&self, items: &[MetricItem<'_>], watch: Watch<'_>) -> Result<MetricScores, MetricError> {
        let start = || RougeScratch { ngrams: Ngrams::new(), lcs: Lcs::default(), stems: HashMap::default() };
        let rows = each(items, watch, start, |scratch, item| {
            let all = item.references.iter().map(|text| (self.compare(item.candidate, text, scratch), *text));
            let defined = all.filter(|(overlap, text)| self.can_read(overlap, item.candidate, text));
            // The first of equals.
            let best = defined.reduce(|best, next| if next.0.f() > best.0.f() { next } else { best });
            let Some((best, reference)) = best else { return vec![Score::Undefined(UNREAD); 1 + PARTS.len()] };
            let note = self.note(&best, item.candidate, reference);
            [best.f(), best.precision(), best.recall()].map(|score| Score::Value(score).noted(note)).to_vec()
        })?;
        Ok(MetricScores::with_means(rows))
    }
}

/// Size of the overlap and of both texts.
#[derive(Debug, Clone, Copy, Default)]
struct NgramOverlap {
    hits: usize,
    candidate: usize,
    reference: usize,
    /// Whether each text contains a word.
    has_words: [bool; 2],
}

impl NgramOverlap {
    fn precision(&self) -> f64 {
        // rouge_score divides by 1 if a text is empty: the score is 0 and not undefined.
        self.hits as f64 / self.candidate.max(1) as f64
    }

    fn recall(&self) -> f64 {
        self.hits as f64 / self.reference.max(1) as f64
    }

    fn f(&self) -> f64 {
        let (precision, recall) = (self.precision(), self.recall());
        if self.hits > 0 { 2.0 * precision * recall / (precision + recall) } else { 0.0 }
    }
}

impl Rouge {
    fn compare(&self, candidate: &str, reference: &str, scratch: &mut RougeScratch) -> NgramOverlap {
        let [candidate, reference] = [candidate, reference].map(|text| self.lines(text, &mut scratch.stems));
        let mut interner = Interner::default();
        let [candidate, reference] = [&candidate, &reference]
            .map(|lines| lines.iter().map(|line| interner.ids(line_words(line))).collect::<Vec<_>>());
        let kinds = interner.len();
        let has_words = [&candidate, &reference].map(|lines| lines.iter().any(|line| !line.is_empty()));
        let overlap = match self.unit {
            RougeUnit::Ngrams(order) => {
                common_ngrams(&candidate.concat(), &reference.concat(), order, &mut scratch.ngrams)
            }
            RougeUnit::Sequence => {
                let (candidate, reference) = (candidate.concat(), reference.concat());
                let hits = scratch.lcs.length(&reference, &candidate, kinds);
                NgramOverlap { hits, candidate: candidate.len(), reference: reference.len(), ..NgramOverlap::default() }
            }
            RougeUnit::Lines => common_lines(&candidate, &reference, kinds, &mut scratch.lcs),
        };
        NgramOverlap { has_words, ..overlap }
    }

    /// Whether the comparison is meaningful: not if both texts have ignored characters and one has no word.
    fn can_read(&self, overlap: &NgramOverlap, candidate: &str, reference: &str) -> bool {
        let has_unread = |text: &str| self.options.tok == RougeTokens::Rouge && unread(text).next().is_some();
        overlap.has_words == [true; 2] || !(has_unread(candidate) && has_unread(reference))
    }

    fn note(&self, overlap: &NgramOverlap, candidate: &str, reference: &str) -> Option<&'static str> {
        let is_mostly_unread = |text: &str| {
            let read = text.chars().filter(char::is_ascii_alphabetic).count();
            self.options.tok == RougeTokens::Rouge && !text.is_ascii() && unread(text).count() > read
        };
        let has_words = overlap.has_words == [true; 2];
        if has_words && is_mostly_unread(candidate) && is_mostly_unread(reference) {
            return Some(MOSTLY_UNREAD);
        }
        let has_ngrams = overlap.candidate > 0 && overlap.reference > 0;
        (has_words && !has_ngrams).then_some(NO_NGRAM)
    }

    /// The words of each line, separated by spaces; the text is one line unless lines count.
    fn lines(&self, text: &str, stems: &mut HashMap<String, String, rustc_hash::FxBuildHasher>) -> Vec<String> {
        let lowered = text.to_lowercase();
        let mut normal = |line: &str| {
            // After lower-casing, as in rouge_score: some non-ASCII capitals have ASCII lower-case letters (the Kelvin
            // sign).
            let line = match self.options.tok {
                RougeTokens::Rouge => line.replace(|c: char| !c.is_ascii_alphanumeric(), " "),
                RougeTokens::Unicode => {
                    line.split_word_bounds().filter(|segment| is_word(segment)).collect::<Vec<_>>().join(" ")
                }
            };
            if self.options.stem { stemmed(&line, stems) } else { line }
        };
        if self.unit == RougeUnit::Lines { lowered.split('\n').map(normal).collect() } else { vec![normal(&lowered)] }
    }
}

/// Letters, marks, digits and symbols outside ASCII.
fn unread(text: &str) -> impl Iterator<Item = regex::Match<'_>> {
    static UNREAD: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"[[\p{L}\p{M}\p{N}\p{S}]--[\x00-\x7f]]").expect("a valid pattern"));
    UNREAD.find_iter(text)
}

/// Whether a segment between word boundaries is a word, not punctuation or white space.
fn is_word(segment: &str) -> bool {
    segment.contains(|c: char| c.is_ascii_alphanumeric()) || unread(segment).next().is_some()
}

fn line_words(line: &str) -> impl Iterator<Item = &str> {
    line.split(' ').filter(|word| !word.is_empty())
}

fn stemmed(line: &str, stems: &mut HashMap<String, String, rustc_hash::FxBuildHasher>) -> String {
    let mut out = String::with_capacity(line.len());
    for word in line_words(line) {
        // rouge_score's rule: `was` and `its` stay. The stemmer is for English.
        if word.len() <= 3 || !word.is_ascii() {
            out.push_str(word);
        } else if let Some(stem) = stems.get(word) {
            out.push_str(stem);
        } else {
            let stem = porter(word);
            out.push_str(&stem);
            stems.insert(word.to_owned(), stem);
        }
        out.push(' ');
    }
    out
}

fn common_ngrams(candidate: &[u32], reference: &[u32], order: usize, ngrams: &mut Ngrams) -> NgramOverlap {
    ngrams.read([reference], order);
    let mut matches = vec![0; order];
    ngrams.matches(candidate, &mut matches);
    let hits = matches.last().map_or(0, |matches| *matches as usize);
    let [candidate, reference] = [candidate, reference].map(|words| total(words.len(), order));
    NgramOverlap { hits, candidate, reference, ..NgramOverlap::default() }
}

fn common_lines(candidate: &[Vec<u32>], reference: &[Vec<u32>], kinds: usize, lcs: &mut Lcs) -> NgramOverlap {
    let tally = |lines: &[Vec<u32>]| {
        let mut counts = vec![0_usize; kinds];
        lines.iter().flatten().for_each(|token| counts[*token as usize] += 1);
        counts
    };
    let (mut left, mut wanted) = (tally(candidate), tally(reference));
    let mut hits = 0;
    for line in reference {
        let mut common = vec![false; line.len()];
        for other in candidate {
            for position in lcs.positions(line, other, kinds) {
                common[position] = true;
            }
        }
        for (token, _) in line.iter().zip(common).filter(|(_, common)| *common) {
            let (left, wanted) = (&mut left[*token as usize], &mut wanted[*token as usize]);
            // A word shared by several lines counts at most as often as in either text, as in rouge_score.
            if *left > 0 && *wanted > 0 {
                (*left, *wanted, hits) = (*left - 1, *wanted - 1, hits + 1);
            }
        }
    }
    let len = |lines: &[Vec<u32>]| lines.iter().map(Vec::len).sum();
    NgramOverlap { hits, candidate: len(candidate), reference: len(reference), ..NgramOverlap::default() }
}

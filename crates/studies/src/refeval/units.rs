//! Knowledge units: the statements of passages, with their weights.

use std::collections::BTreeSet;

use probity_data::{Document, from_value, passage_tokens, passages};
use probity_lm::{EncoderError, GenerateRequest, GenerateResult, LabelSet, LanguageModel, TextTokenizer};
use serde::Deserialize;
use serde_json::{Value, json};

use super::options::RefEvalParams;
use super::prompts::WEIGHTS;
use super::words::{count_words, has_half_of, telling_words};
use crate::answer::ChoiceFields;
use crate::figures::TokenCounts;
use crate::listed::{ListedOutcome, list_text, listed, whole_lines};
use crate::prompt_set::ReadyPrompt;
use crate::query::{ChoiceReadout, Query, QueryStage, Readout};
use crate::written::{WrittenOutcome, dry_text};
use crate::{MethodError, RowError, row};

/// The stage that reads passages, and its table.
pub(super) const UNITS: &str = "units";
/// The stage that weights units, and its table.
pub(super) const WEIGHTED: &str = "weights";

/// Tokens of a short unit with its line end; stand-ins are no shorter.
const SHORT_UNIT: usize = 10;

/// A part of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Passage {
    /// The document's id.
    pub(super) document: String,
    /// Its number in the document, from 1.
    pub(super) number: usize,
    pub(super) text: String,
}

impl Passage {
    /// Splits documents into passages.
    pub(super) fn all(
        documents: &[Document],
        params: &RefEvalParams,
        tokenizer: &dyn TextTokenizer,
    ) -> Result<Vec<Self>, EncoderError> {
        let (size, overlap) = (params.passage_tokens as usize, params.overlap as usize);
        let mut all = Vec::new();
        for Document { id, text } in documents {
            let count = |texts: &[&str]| -> Result<Vec<usize>, EncoderError> {
                let counts = tokenizer.tokenize(texts)?;
                Ok(texts.iter().zip(counts).map(|(text, ids)| passage_tokens(text, ids.len())).collect())
            };
            let found = passages(text, size, overlap, count)?.into_iter().enumerate();
            all.extend(found.map(|(place, text)| Self { document: id.clone(), number: place + 1, text }));
        }
        Ok(all)
    }

    /// `document/number`.
    pub(super) fn id(&self) -> String {
        format!("{}/{}", self.document, self.number)
    }
}

/// The units of a passage, or why there are none.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PassageUnits {
    /// Each with its weight, if provided.
    pub(super) units: Vec<(String, Option<bool>)>,
    pub(super) ended: ListedOutcome,
    /// Omitted lines with too many words.
    pub(super) wordy: usize,
    /// Omitted lines with most of their words missing from the passage, which therefore probably does not state them.
    pub(super) ungrounded: usize,
    /// Duplicate lines.
    pub(super) repeated: usize,
    pub(super) counts: TokenCounts,
}

/// The outcome of a passage without units of the allowed length.
const NO_UNITS: &str = "no_units";

impl PassageUnits {
    fn parse(result: &GenerateResult, words: usize, passage: &str) -> Self {
        let written = WrittenOutcome::from_result(result);
        let is_cut = written == WrittenOutcome::Truncated;
        let (lines, repeated) = listed(whole_lines(&list_text(result), is_cut));
        let lines: Vec<String> = lines.into_iter().filter(|line| !is_none(line)).collect();
        let all = lines.len();
        let known = telling_words(passage);
        let (lines, strange): (Vec<String>, Vec<String>) =
            lines.into_iter().partition(|line| has_half_of(&known, line));
        let units: Vec<_> =
            lines.into_iter().filter(|line| count_words(line) <= words).map(|line| (line, None)).collect();
        let ungrounded = strange.len();
        let ended = ListedOutcome::new(written, units.len(), NO_UNITS);
        let wordy = all - ungrounded - units.len();
        Self { wordy, ungrounded, units, ended, repeated, counts: result.into() }
    }
}

/// Whether a line states that there is nothing to list.
fn is_none(line: &str) -> bool {
    line.trim_matches(|c: char| !c.is_alphanumeric()).eq_ignore_ascii_case("none")
}

/// The stage that reads passages: one row per unit.
pub(super) fn units_stage<'a>(
    passages: &'a [Passage],
    prompt: &'a ReadyPrompt,
    params: &'a RefEvalParams,
    model: &'a dyn LanguageModel,
    inputs: Vec<String>,
) -> QueryStage<'a, UnitsReadout<'a>> {
    let query = |passage: &'a Passage| {
        let Passage { document, number, text } = passage;
        let identity = json!({ "document": document, "passage": number });
        Query::new(format!("{}/{UNITS}", passage.id()), passage.id(), identity, prompt, vec![("passage", text)])
    };
    let queries = passages.iter().map(query).collect();
    let readout = UnitsReadout { passages, params };
    QueryStage::new(UNITS, model, queries, readout, inputs)
}

/// Reads the units of a passage, one per line.
pub(super) struct UnitsReadout<'a> {
    passages: &'a [Passage],
    params: &'a RefEvalParams,
}

impl UnitsReadout<'_> {
    fn max_words(&self) -> usize {
        self.params.unit_words as usize
    }
}

impl Readout for UnitsReadout<'_> {
    type Answer = PassageUnits;
    const ONE_ROW: bool = false;

    fn request(&self, _: usize, request: GenerateRequest) -> GenerateRequest {
        GenerateRequest { max_tokens: self.params.max_tokens as usize, ..request }
    }

    fn read_text(&self, number: usize, result: &GenerateResult) -> PassageUnits {
        PassageUnits::parse(result, self.max_words(), &self.passages[number].text)
    }

    /// A passage without units has one row with the reason.
    fn rows(&self, _: usize, found: &PassageUnits) -> Vec<Value> {
        let row = |place: Option<usize>, unit: Option<&(String, Option<bool>)>| {
            let weight = unit.and_then(|(_, weight)| *weight).map(|weight| WEIGHTS[usize::from(!weight)]);
            row! {
                "number": place, "unit": unit.map(|(text, _)| text), "weight"?: weight, ..found.ended.fields(),
                "wordy": found.wordy, "ungrounded": found.ungrounded, "repeated": found.repeated, ..found.counts,
            }
        };
        if found.units.is_empty() {
            return vec![row(None, None)];
        }
        found.units.iter().enumerate().map(|(place, unit)| row(Some(place + 1), Some(unit))).collect()
    }

    fn read(&self, _: usize, rows: &[Value]) -> Result<PassageUnits, RowError> {
        let Some(first) = rows.first() else {
            return Err("a row is missing before this line".into());
        };
        let given: GivenUnit = from_value(first)?;
        let mut units = Vec::with_capacity(rows.len());
        for row in rows {
            let one: GivenUnit = from_value(row)?;
            if one.number.is_some_and(|number| number != units.len() + 1) {
                return Err(format!("`number` is {}, but this is unit {}", row["number"], units.len() + 1).into());
            }
            let weight = match one.weight.as_deref() {
                None => None,
                Some("vital") => Some(true),
                Some("okay") => Some(false),
                Some(other) => return Err(format!("`weight` is {other:?}; expected vital or okay").into()),
            };
            match one.unit.as_deref().map(str::trim) {
                Some("") => return Err("`unit` is empty".into()),
                Some(unit) if count_words(unit) > self.max_words() => {
                    let (words, most) = (count_words(unit), self.max_words());
                    return Err(format!("`unit` has {words} words, but --unit-words is {most}").into());
                }
                Some(unit) => units.push((unit.to_owned(), weight)),
                None if rows.len() > 1 => return Err("`unit` is missing".into()),
                None => {}
            }
        }
        let ended = ListedOutcome::read(first, "unit", units.len(), NO_UNITS)?;
        let GivenUnit { wordy, ungrounded, repeated, .. } = given;
        let [wordy, ungrounded, repeated] = [wordy, ungrounded, repeated].map(|count| count.unwrap_or(0));
        Ok(PassageUnits { units, ended, wordy, ungrounded, repeated, counts: from_value(first)? })
    }

    /// Short sentences, up to the limit of the list and the number of words in the passage.
    fn stand_in(&self, number: usize) -> PassageUnits {
        let in_passage = (count_words(&self.passages[number].text) / 4).max(1);
        let count = in_passage.min((self.params.max_tokens as usize / SHORT_UNIT).max(1));
        let unit = |place: usize| (dry_text(format_args!("{number}.{place}"), self.max_words() - 1), None);
        let ended = ListedOutcome::Text(WrittenOutcome::Written);
        let units = (0..count).map(unit).collect();
        PassageUnits { units, ended, wordy: 0, ungrounded: 0, repeated: 0, counts: TokenCounts::default() }
    }
}

/// A row written before or provided by the user; the unit is enough.
#[derive(Deserialize)]
struct GivenUnit {
    number: Option<usize>,
    unit: Option<String>,
    weight: Option<String>,
    wordy: Option<usize>,
    ungrounded: Option<usize>,
    repeated: Option<usize>,
}

/// A unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unit {
    /// `document/passage.number`.
    pub(super) id: String,
    /// The position of its passage.
    pub(super) passage: usize,
    pub(super) text: String,
    /// Vital or okay; absent until known.
    pub(super) vital: Option<bool>,
}

impl Unit {
    /// All units of the passages in order, and the number of duplicates: passages overlap, and documents repeat each
    /// other.
    pub(super) fn all(passages: &[Passage], found: &[PassageUnits]) -> (Vec<Self>, usize) {
        let (mut known, mut all, mut again) = (BTreeSet::new(), Vec::new(), 0);
        for (place, (passage, found)) in passages.iter().zip(found).enumerate() {
            for (number, (text, vital)) in found.units.iter().enumerate() {
                if !known.insert(text.to_lowercase().split_whitespace().collect::<Vec<_>>().join(" ")) {
                    again += 1;
                    continue;
                }
                let id = format!("{}.{}", passage.id(), number + 1);
                all.push(Self { id, passage: place, text: text.clone(), vital: *vital });
            }
        }
        (all, again)
    }
}

/// The stage that weights units as vital or okay.
pub(super) fn weights_stage<'a>(
    passages: &'a [Passage],
    units: &'a [Unit],
    prompt: &'a ReadyPrompt,
    model: &'a dyn LanguageModel,
    inputs: Vec<String>,
) -> Result<QueryStage<'a, ChoiceReadout>, MethodError> {
    let query = |unit: &'a Unit| {
        let slots = vec![("passage", passages[unit.passage].text.as_str()), ("unit", unit.text.as_str())];
        Query::new(format!("{}/{WEIGHTED}", unit.id), unit.id.as_str(), json!({ "unit": unit.id }), prompt, slots)
    };
    let readout = ChoiceReadout::new(LabelSet::from_words(WEIGHTS)?, ChoiceFields::binary("weight", WEIGHTS));
    let queries = units.iter().map(query).collect();
    Ok(QueryStage::new(WEIGHTED, model, queries, readout, inputs).with_earlier_fields(&["unit"]))
}

//! Atomic information units (AIUs): the claims that a critique makes.

use probity_data::from_value;
use probity_lm::{GenerateRequest, GenerateResult, LanguageModel};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::figures::TokenCounts;
use crate::listed::{ListedOutcome, list_text, listed, whole_lines};
use crate::prompt_set::ReadyPrompt;
use crate::query::{Query, QueryStage, Readout};
use crate::written::{WrittenOutcome, dry_text};
use crate::{MethodError, RowError, row};

/// The name of the stage and of its table.
pub(super) const AIUS: &str = "aius";

/// Tokens of a short claim with its line end; stand-ins are no shorter.
const SHORT_CLAIM: usize = 8;

/// The claims of a critique, or why there are none.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Aius {
    pub(super) claims: Vec<String>,
    pub(super) ended: ListedOutcome,
    /// Duplicate lines, which count once.
    pub(super) repeated: usize,
    pub(super) counts: TokenCounts,
}

/// The outcome of a critique without claims.
const NO_AIUS: &str = "no_aius";

impl Aius {
    /// Claims from another source.
    pub(super) fn from_claims(claims: Vec<String>) -> Self {
        let ended = ListedOutcome::new(WrittenOutcome::Written, claims.len(), NO_AIUS);
        Self { claims, ended, repeated: 0, counts: TokenCounts::default() }
    }

    fn none(ended: ListedOutcome) -> Self {
        Self { ended, ..Self::from_claims(Vec::new()) }
    }

    /// One claim per line; the last line of a truncated text is incomplete.
    fn parse(result: &GenerateResult, most: usize) -> Self {
        let written = WrittenOutcome::from_result(result);
        let is_cut = written == WrittenOutcome::Truncated;
        let (mut claims, repeated) = listed(whole_lines(&list_text(result), is_cut));
        // A list with too many claims counts as truncated.
        let written = if claims.len() > most { WrittenOutcome::Truncated } else { written };
        let ended = ListedOutcome::new(written, claims.len(), NO_AIUS);
        claims.truncate(most);
        Self { claims, ended, repeated, counts: result.into() }
    }
}

/// A critique to split into claims.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExtractionJob<'a> {
    /// The sample's id.
    pub(super) item: &'a str,
    /// The candidate's id; absent for the reference critique.
    pub(super) candidate: Option<&'a str>,
    pub(super) critique: &'a str,
}

/// The stage that splits critiques: one row per claim.
pub(super) fn stage<'a>(
    jobs: Vec<ExtractionJob<'a>>,
    prompt: &'a ReadyPrompt,
    (tokens, most): (u32, usize),
    model: &'a dyn LanguageModel,
    inputs: Vec<String>,
) -> QueryStage<'a, AiusReadout<'a>> {
    let query = |job: &ExtractionJob<'a>| {
        let ExtractionJob { item, candidate, critique } = *job;
        let identity = match candidate {
            Some(candidate) => json!({ "item": item, "of": "critique", "candidate": candidate }),
            None => json!({ "item": item, "of": "reference" }),
        };
        let id = format!("{item}/{AIUS}/{}", candidate.unwrap_or("(reference)"));
        Query::new(id, item, identity, prompt, vec![("critique", critique)]).unless_empty()
    };
    let queries = jobs.iter().map(query).collect();
    let readout = AiusReadout { jobs, tokens: tokens as usize, most };
    QueryStage::new(AIUS, model, queries, readout, inputs)
}

/// Reads the claims of a critique, one per line.
pub(super) struct AiusReadout<'a> {
    jobs: Vec<ExtractionJob<'a>>,
    tokens: usize,
    most: usize,
}

impl Readout for AiusReadout<'_> {
    type Answer = Aius;
    const ONE_ROW: bool = false;

    fn request(&self, _: usize, request: GenerateRequest) -> GenerateRequest {
        GenerateRequest { max_tokens: self.tokens, ..request }
    }

    fn read_text(&self, _: usize, result: &GenerateResult) -> Aius {
        Aius::parse(result, self.most)
    }

    fn unasked(&self, _: usize, _: bool) -> Result<Option<Aius>, MethodError> {
        Ok(Some(Aius::none(ListedOutcome::Text(WrittenOutcome::Empty))))
    }

    /// A critique without claims has one row with the reason.
    fn rows(&self, _: usize, aius: &Aius) -> Vec<Value> {
        let row = |place: usize, claim: Option<&String>| {
            row! { "number": place, "aiu": claim, ..aius.ended.fields(), "repeated": aius.repeated, ..aius.counts }
        };
        if aius.claims.is_empty() {
            return vec![row(0, None)];
        }
        aius.claims.iter().enumerate().map(|(place, claim)| row(place, Some(claim))).collect()
    }

    fn read(&self, number: usize, rows: &[Value]) -> Result<Aius, RowError> {
        let ExtractionJob { item, candidate, .. } = self.jobs[number];
        let Some(first) = rows.first() else {
            let of = candidate.map_or("the reference critique".to_owned(), |id| format!("the critique `{id}`"));
            return Err(format!("a row is missing before this line: the claims of {of} of sample `{item}`").into());
        };
        let given: GivenAiu = from_value(first)?;
        let mut claims = Vec::with_capacity(rows.len());
        for row in rows {
            let one: GivenAiu = from_value(row)?;
            if one.number.is_some_and(|number| number != claims.len()) {
                return Err(format!("`number` is {}, but this is claim {}", row["number"], claims.len()).into());
            }
            match one.aiu.as_deref().map(str::trim) {
                Some("") => return Err("`aiu` is empty".into()),
                Some(claim) => claims.push(claim.to_owned()),
                None if rows.len() > 1 => return Err("`aiu` is missing".into()),
                None => {}
            }
        }
        let ended = ListedOutcome::read(first, "aiu", claims.len(), NO_AIUS)?;
        if claims.len() > self.most {
            return Err(format!("the critique has {} claims, but --most-aius is {}", claims.len(), self.most).into());
        }
        Ok(Aius { claims, ended, repeated: given.repeated.unwrap_or(0), counts: from_value(first)? })
    }

    fn stand_in(&self, number: usize) -> Aius {
        let claims = self.most.min((self.tokens / SHORT_CLAIM).max(1));
        let words = (self.tokens / claims).saturating_sub(2).max(1);
        let claim = |place: usize| dry_text(format_args!("{number}.{place}"), words);
        Aius::from_claims((0..claims).map(claim).collect())
    }
}

/// A row written before or provided by the user; the claim alone is enough.
#[derive(Deserialize)]
struct GivenAiu {
    number: Option<usize>,
    aiu: Option<String>,
    repeated: Option<usize>,
}

#[cfg(test)]
mod tests {
    use probity_lm::Finish;

    use super::*;
    use crate::testing::generated;

    fn parsed(text: &str, is_cut: bool, most: usize) -> Aius {
        let finish = if is_cut { Finish::Length } else { Finish::EndOfTurn };
        Aius::parse(&GenerateResult { finish: Some(finish), ..generated(text) }, most)
    }

    #[test]
    fn a_list_without_claims_or_with_too_many_says_so() {
        assert_eq!(parsed("  \n", false, 9).ended.name(), "empty");
        assert_eq!(parsed("---", false, 9).ended.name(), "no_aius");
        let cut = parsed("One.\nTwo.\nThr", true, 9);
        assert_eq!((cut.claims.len(), cut.ended.name()), (2, "truncated"));
        let many = parsed("One.\nTwo.\nThree.", false, 2);
        assert_eq!((many.claims.len(), many.ended.name()), (2, "truncated"));
    }
}

//! Texts that the model writes once per attribute before judging: evaluation steps or a checklist.

use probity_lm::{Constraint, Finish, GenerateRequest, GenerateResult, Outcome, Prompt, plain_error};
use serde::Serialize;
use serde_json::{Value, json};

use crate::answer_text::{answer_of, answer_text};
use crate::figures::TokenCounts;
use crate::{MethodError, Run, row};

/// What to generate.
pub(crate) struct WrittenOnce<'a, T> {
    /// The name of the table, of its field with the result, and of the text in errors.
    pub(crate) table: &'static str,
    /// The options that request it, limit it and replace it.
    pub(crate) option: &'static str,
    pub(crate) limit: &'static str,
    pub(crate) instead: &'static str,
    pub(crate) attributes: &'a [String],
    /// One prompt for each attribute.
    pub(crate) prompts: Vec<Prompt>,
    /// The token limit.
    pub(crate) tokens: u32,
    /// The constraint on the text.
    pub(crate) constraint: Option<Constraint>,
    /// Parses a text, or returns why it is unusable.
    pub(crate) read: fn(&str) -> Result<T, String>,
}

impl<T: Serialize> WrittenOnce<'_, T> {
    /// Generates a text for each attribute by greedy decoding; `None` in a dry run. A text that is empty, truncated or
    /// malformed is an error.
    pub(crate) fn write(&self, run: &mut Run<'_>) -> Result<Option<Vec<T>>, MethodError> {
        let requests = self.attributes.iter().zip(&self.prompts).map(|(attribute, prompt)| {
            let id = format!("{}/{attribute}", self.table);
            let request = GenerateRequest::greedy(id, prompt.clone(), self.tokens as usize);
            GenerateRequest { constraint: self.constraint.clone(), ..request }
        });
        run.table(self.table, self.attributes.len())?;
        let mut results: Vec<Option<GenerateResult>> = vec![None; self.attributes.len()];
        run.generate(requests, |index, result, output| {
            let row = self.row(&self.attributes[index], &result).map_err(plain_error)?;
            output.row(self.table, index, row)?;
            results[index] = Some(result);
            Ok(())
        })?;
        let results = results.into_iter().map(|result| result.expect("each is answered"));
        let read = |(attribute, result): (&String, GenerateResult)| self.read(attribute, &result);
        let written: Vec<Option<T>> = self.attributes.iter().zip(results).map(read).collect::<Result<_, _>>()?;
        Ok(written.into_iter().collect())
    }

    /// The row of a text; unparsed text is stored unchanged.
    fn row(&self, attribute: &str, result: &GenerateResult) -> serde_json::Result<Value> {
        let text = result.text.trim();
        let read = answer_of(result).ok().and_then(|answer| (self.read)(answer.trim()).ok());
        let written = read.map_or_else(|| Ok(json!(text)), serde_json::to_value)?;
        Ok(row! {
            ..json!({ "attribute": attribute, self.table: written }), ..&result.outcome, "finish": result.finish,
            ..TokenCounts::from(result),
        })
    }

    fn read(&self, attribute: &str, result: &GenerateResult) -> Result<Option<T>, MethodError> {
        let Self { table, option, limit, instead, tokens, .. } = self;
        let by_hand = format!("write the {table} yourself: {instead}");
        let (why, hint) = match (&result.outcome, result.finish) {
            (Outcome::Empty, None) => return Ok(None),
            (Outcome::TooLong { tokens_needed, limit: fits }, _) => (
                format!("prompt and answer need {tokens_needed} tokens, but only {fits} fit"),
                if tokens_needed.saturating_sub(*tokens as usize) < *fits {
                    format!("lower {limit}")
                } else {
                    "shorten the prompt: --criteria or the template".to_owned()
                },
            ),
            (Outcome::Altered { why } | Outcome::NotFinite { why }, _) => (why.clone(), by_hand),
            (_, Some(Finish::Length)) => {
                (format!("the text was truncated after {tokens} tokens"), format!("raise {limit}, or {by_hand}"))
            }
            _ if result.text.trim().is_empty() => ("the generated text is empty".to_owned(), by_hand),
            _ => match answer_text(&result.text, result.finish) {
                Err(why) => (why.to_string(), by_hand),
                Ok(answer) => match (self.read)(answer.trim()) {
                    Ok(written) => return Ok(Some(written)),
                    Err(why) => (why, by_hand),
                },
            },
        };
        MethodError::refuse(*option, format!("no {table} for `{attribute}`: {why}"), hint)
    }
}

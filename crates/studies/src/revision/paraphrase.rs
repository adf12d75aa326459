//! `ParaPLUIE` of each revision against its original.

use probity_data::from_value;
use probity_lm::{LabelSet, LanguageModel, Outcome, ScoreResult};
use serde::Deserialize;
use serde_json::{Value, json};

use super::pairs::RevisionText;
use crate::answer::{Answer, check_mass};
use crate::para_pluie::log_ratio;
use crate::prompt_set::ReadyPrompt;
use crate::query::{Query, QueryStage, Readout};
use crate::stage::row_outcome;
use crate::{MethodError, RowError, row};

/// A bound on log-probabilities of labels.
const MOST_NATS: f64 = 1e6;

/// The name of the stage and of its table.
pub(super) const PARAPLUIE: &str = "parapluie";

/// log P(Yes) − log P(No) of texts, under each template.
#[derive(Clone, Copy)]
pub(super) struct Paraphrases<'a> {
    pub(super) texts: &'a [RevisionText<'a>],
    pub(super) prompts: &'a [ReadyPrompt],
}

impl<'a> Paraphrases<'a> {
    /// The position of the answer about a revision under a template.
    pub(super) fn part(self, text: usize, template: usize) -> usize {
        text * self.prompts.len() + template
    }

    /// The stage with one question for each text and template.
    pub(super) fn stage(
        self,
        labels: LabelSet,
        model: &'a dyn LanguageModel,
        inputs: Vec<String>,
    ) -> QueryStage<'a, LogRatioReadout> {
        let query = |text: &'a RevisionText<'a>, prompt: &'a ReadyPrompt| {
            let (item, candidate, template) = (text.sample.id.as_str(), text.id(), prompt.name());
            let identity = json!({ "item": item, "candidate": candidate, "template": template });
            let slots = vec![("candidate", text.text()), ("other", &*text.sample.context)];
            let id = format!("{item}/{PARAPLUIE}/{candidate}/{template}");
            Query::new(id, item, identity, prompt, slots).unless_empty()
        };
        let queries = self.texts.iter().flat_map(|text| self.prompts.iter().map(move |prompt| query(text, prompt)));
        let queries = queries.collect();
        let readout = LogRatioReadout(labels);
        QueryStage::new(PARAPLUIE, model, queries, readout, inputs)
    }
}

/// The difference between the log-probabilities of two labels.
pub(super) struct LogRatioReadout(LabelSet);

impl Readout for LogRatioReadout {
    type Answer = Answer<f64>;

    fn labels(&self, _: usize) -> Option<LabelSet> {
        Some(self.0.clone())
    }

    fn read_labels(&self, _: usize, result: &ScoreResult) -> Answer<f64> {
        Answer::from_labels(result, |labels| log_ratio(labels).map(Some))
    }

    fn unasked(&self, _: usize, _: bool) -> Result<Option<Answer<f64>>, MethodError> {
        Ok(Some(Answer::none(Outcome::Empty)))
    }

    fn rows(&self, _: usize, answer: &Answer<f64>) -> Vec<Value> {
        vec![row! { "log_ratio": answer.value, "mass": answer.mass, ..answer.end(false) }]
    }

    fn read(&self, _: usize, rows: &[Value]) -> Result<Answer<f64>, RowError> {
        #[derive(Deserialize)]
        struct Given {
            log_ratio: Option<f64>,
            mass: Option<f64>,
        }
        let Given { log_ratio, mass } = from_value(&rows[0])?;
        let outcome = row_outcome(&rows[0])?;
        if outcome.has_answer() != log_ratio.is_some() {
            let given = json!(log_ratio);
            return Err(format!("`log_ratio` is {given}, but `outcome` is `{}`", outcome.name()).into());
        }
        if log_ratio.is_some_and(|ratio| ratio.abs() > MOST_NATS) {
            let why = "is not a plausible log-ratio";
            return Err(format!("`log_ratio` {why}: beyond {MOST_NATS} nats").into());
        }
        check_mass("mass", mass)?;
        Ok(Answer { value: log_ratio, mass, counts: from_value(&rows[0])?, ..Answer::none(outcome) })
    }
}

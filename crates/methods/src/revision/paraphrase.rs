//! `ParaPLUIE` of each revision against its original.

use probity_data::from_value;
use probity_lm::{Ask, LabelSet, LanguageModel, Outcome, ScoreRequest, ScoreResult};
use serde::Deserialize;
use serde_json::{Value, json};

use super::pairs::RevisionText;
use crate::para_pluie::log_ratio;
use crate::stage::{flatten_into, given_mass, given_outcome};
use crate::template::{PromptLayout, Template};
use crate::{KeepPart, MethodError, MethodStage, RowError, Run};

/// No label of a model is that improbable.
const MOST_NATS: f64 = 1e6;

/// The stage, and its table.
pub(super) const PARAPLUIE: &str = "parapluie";

/// log P(Yes) − log P(No) of a text, or why there is none.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ParaphraseScore {
    pub(super) score: Option<f64>,
    pub(super) mass: Option<f64>,
    pub(super) outcome: Outcome,
    pub(super) prompt_tokens: Option<usize>,
}

impl ParaphraseScore {
    fn none(outcome: Outcome) -> Self {
        Self { score: None, mass: None, outcome, prompt_tokens: None }
    }

    fn of(result: &ScoreResult) -> Self {
        let labels = result.labels();
        let (score, outcome) = match labels.map(|answer| log_ratio(answer).score) {
            Some(Ok(score)) => (Some(score), result.outcome.clone()),
            Some(Err(outcome)) => (None, outcome),
            None => (None, result.outcome.clone()),
        };
        Self { score, mass: labels.map(|a| a.mass), outcome, prompt_tokens: Some(result.prompt_tokens) }
    }
}

/// The stage in which texts are held against their originals: a part, and a row, for each text and template.
pub(super) struct ParaphraseStage<'a> {
    pub(super) texts: &'a [RevisionText<'a>],
    pub(super) templates: &'a [Template],
    pub(super) layout: &'a PromptLayout,
    pub(super) labels: LabelSet,
    pub(super) model: &'a dyn LanguageModel,
    pub(super) inputs: Vec<String>,
}

impl ParaphraseStage<'_> {
    /// The part of a revision under a template.
    pub(super) fn part(&self, text: usize, template: usize) -> usize {
        text * self.templates.len() + template
    }

    fn place(&self, number: usize) -> (&RevisionText<'_>, &Template) {
        let count = self.templates.len();
        (&self.texts[number / count], &self.templates[number % count])
    }

    fn slots(&self, number: usize) -> [(&'static str, &str); 2] {
        let (text, _) = self.place(number);
        [("candidate", text.text()), ("other", &*text.sample.context)]
    }

    fn id(&self, number: usize) -> String {
        let (text, template) = self.place(number);
        format!("{}/{PARAPLUIE}/{}/{}", text.sample.id, text.id(), template.name())
    }
}

impl MethodStage for ParaphraseStage<'_> {
    type Part = ParaphraseScore;
    const NAME: &'static str = PARAPLUIE;

    fn parts(&self) -> usize {
        self.texts.len() * self.templates.len()
    }

    fn inputs(&self) -> Vec<String> {
        self.inputs.clone()
    }

    fn work(&self, run: &mut Run<'_>, keep: &mut KeepPart<'_, ParaphraseScore>) -> Result<(), MethodError> {
        let has_texts = |number: &usize| self.slots(*number).iter().all(|(_, text)| !text.trim().is_empty());
        let (asked, empty): (Vec<usize>, Vec<usize>) = (0..self.parts()).partition(has_texts);
        let render = |number: usize| {
            let (text, template) = self.place(number);
            template.render(&text.sample.id, &self.slots(number))
        };
        for number in &asked {
            run.quotes(render(*number)?.quoted);
        }
        let request = |number: &usize| {
            let prompt = render(*number).expect("it could be rendered before").prompt(self.layout);
            ScoreRequest { id: self.id(*number), prompt, ask: Ask::Labels(self.labels.clone()) }
        };
        run.score_by(self.model, asked.iter().map(request), |position, result, output| {
            keep(asked[position], ParaphraseScore::of(&result), output)
        })?;
        for number in empty {
            keep(number, ParaphraseScore::none(Outcome::Empty), run.output()).map_err(MethodError::Output)?;
        }
        Ok(())
    }

    fn identity(&self, number: usize) -> Value {
        let (text, template) = self.place(number);
        json!({ "item": text.sample.id, "candidate": text.id(), "template": template.name() })
    }

    fn rows(&self, number: usize, said: &ParaphraseScore) -> serde_json::Result<Vec<Value>> {
        let mut row = self.identity(number);
        row["log_ratio"] = json!(said.score);
        row["mass"] = json!(said.mass);
        flatten_into(&mut row, &said.outcome)?;
        row["prompt_tokens"] = json!(said.prompt_tokens);
        Ok(vec![row])
    }

    fn read(&self, _: usize, rows: &[Value]) -> Result<ParaphraseScore, RowError> {
        #[derive(Deserialize)]
        struct Given {
            log_ratio: Option<f64>,
            mass: Option<f64>,
            prompt_tokens: Option<usize>,
        }
        let Given { log_ratio, mass, prompt_tokens } = from_value(&rows[0])?;
        let outcome = given_outcome(&rows[0])?;
        if outcome.has_answer() != log_ratio.is_some() {
            let said = json!(log_ratio);
            return Err(format!("`log_ratio` is {said}, and `outcome` is `{}`", outcome.name()).into());
        }
        if log_ratio.is_some_and(|ratio| ratio.abs() > MOST_NATS) {
            return Err(format!(
                "`log_ratio` is no difference of logarithms of probabilities: beyond {MOST_NATS} nats"
            )
            .into());
        }
        Ok(ParaphraseScore { score: log_ratio, mass: given_mass(mass)?, outcome, prompt_tokens })
    }

    fn stand_in(&self, _: usize) -> ParaphraseScore {
        ParaphraseScore { score: Some(0.0), mass: Some(1.0), ..ParaphraseScore::none(Outcome::Scored) }
    }
}

//! Stages in which the model writes texts: references that are missing, and refined answers.

use std::marker::PhantomData;

use probity_lm::GenerateRequest;
use serde_json::{Value, json};

use crate::prompt_set::{ReadyPrompt, Slots};
use crate::written::WrittenText;
use crate::{KeepPart, MethodError, MethodStage, RowError, Run};

/// Which stage it is.
pub(super) trait WritingName: Sync {
    const NAME: &'static str;
}

/// Reference answers and critiques.
pub(super) struct References;

impl WritingName for References {
    const NAME: &'static str = "references";
}

/// Answers, rewritten as critiques ask for.
pub(super) struct Refined;

impl WritingName for Refined {
    const NAME: &'static str = "refined";
}

/// A text to be written.
pub(super) struct WritingJob<'a> {
    /// The sample's id.
    pub(super) item: &'a str,
    /// What tells it from the sample's others: a field of its row, and the value.
    pub(super) of: (&'static str, &'a str),
    pub(super) prompt: &'a ReadyPrompt,
    /// What is shown; nothing is asked where one of these is empty.
    pub(super) slots: Slots<'a>,
}

impl WritingJob<'_> {
    fn can_be_asked(&self) -> bool {
        self.slots.iter().all(|(_, text)| !text.trim().is_empty())
    }

    fn request(&self, tokens: u32) -> GenerateRequest {
        let id = format!("{}/{}/{}", self.item, self.of.0, self.of.1);
        self.prompt.request(id, self.item, &self.slots, tokens)
    }
}

/// One part, and one row, for each text.
pub(super) struct WritingStage<'a, N> {
    pub(super) jobs: Vec<WritingJob<'a>>,
    pub(super) tokens: u32,
    /// Settings, prompts and model.
    pub(super) inputs: Vec<String>,
    pub(super) name: PhantomData<N>,
}

impl<N: WritingName> MethodStage for WritingStage<'_, N> {
    type Part = WrittenText;
    const NAME: &'static str = N::NAME;

    fn parts(&self) -> usize {
        self.jobs.len()
    }

    fn inputs(&self) -> Vec<String> {
        self.inputs.clone()
    }

    fn work(&self, run: &mut Run<'_>, keep: &mut KeepPart<'_, WrittenText>) -> Result<(), MethodError> {
        let (asked, empty): (Vec<usize>, Vec<usize>) =
            (0..self.jobs.len()).partition(|number| self.jobs[*number].can_be_asked());
        for number in &asked {
            let job = &self.jobs[*number];
            run.quotes(job.prompt.render(job.item, &job.slots)?.quoted);
        }
        let requests = asked.iter().map(|number| self.jobs[*number].request(self.tokens));
        run.generate(requests, |position, result, output| keep(asked[position], WrittenText::of(&result), output))?;
        for number in empty {
            keep(number, WrittenText::nothing(), run.output()).map_err(MethodError::Output)?;
        }
        Ok(())
    }

    fn identity(&self, number: usize) -> Value {
        let WritingJob { item, of: (field, value), .. } = &self.jobs[number];
        json!({ "item": item, *field: value })
    }

    fn rows(&self, number: usize, text: &WrittenText) -> serde_json::Result<Vec<Value>> {
        Ok(vec![text.row(self.identity(number))?])
    }

    fn read(&self, _: usize, rows: &[Value]) -> Result<WrittenText, RowError> {
        WrittenText::read(&rows[0])
    }

    fn stand_in(&self, number: usize) -> WrittenText {
        WrittenText::stand_in(number, self.tokens as usize)
    }
}

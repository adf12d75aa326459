//! A stage in which judges answer questions.

use probity_lm::Outcome;
use serde_json::Value;

use super::judging::{JudgeQuestion, ModelJudge};
use super::verdict::JudgeVerdict;
use crate::{KeepPart, MethodError, MethodStage, RowError, Run, row};

/// A stage with one part, and one row, for each question to each judge.
pub struct JudgeStage<'a> {
    /// The name of the stage and of its table.
    pub name: &'static str,
    /// The judges in answering order, each with its questions.
    pub judges: Vec<(&'a ModelJudge<'a>, &'a [JudgeQuestion<'a>])>,
    /// The fields that identify the row of a part.
    pub identity: Box<dyn Fn(usize) -> Value + Sync + 'a>,
    /// See [`MethodStage::inputs`].
    pub inputs: Vec<String>,
}

impl<'a> JudgeStage<'a> {
    fn judge(&self, number: usize) -> &'a ModelJudge<'a> {
        let mut end = 0;
        let answers = |(_, questions): &&(&ModelJudge<'_>, &[JudgeQuestion<'_>])| {
            end += questions.len();
            number < end
        };
        self.judges.iter().find(answers).expect("each part belongs to a judge").0
    }
}

impl MethodStage for JudgeStage<'_> {
    type Part = JudgeVerdict;
    const MADE_ANEW: &'static [&'static str] = &["precision"];

    fn name(&self) -> &'static str {
        self.name
    }

    fn parts(&self) -> usize {
        self.judges.iter().map(|(_, questions)| questions.len()).sum()
    }

    fn inputs(&self) -> Vec<String> {
        self.inputs.clone()
    }

    fn work(&self, run: &mut Run<'_>, keep: &mut KeepPart<'_, JudgeVerdict>) -> Result<(), MethodError> {
        let mut before = 0;
        for (judge, questions) in &self.judges {
            judge.ask(run, questions, &mut |index, verdict, output| keep(before + index, verdict, output))?;
            before += questions.len();
        }
        Ok(())
    }

    fn identity(&self, number: usize) -> Value {
        (self.identity)(number)
    }

    fn rows(&self, number: usize, verdict: &JudgeVerdict) -> Vec<Value> {
        vec![row! { ..self.identity(number), ..self.judge(number).row(verdict) }]
    }

    fn read(&self, number: usize, rows: &[Value]) -> Result<JudgeVerdict, RowError> {
        self.judge(number).read(&rows[0])
    }

    fn stand_in(&self, _: usize) -> JudgeVerdict {
        JudgeVerdict::none(Outcome::Empty)
    }
}

//! Judges of whole texts: baselines on critiques, and the quality of refined answers.

use probity_data::Sample;
use probity_lm::LanguageModel;
use serde_json::json;

use super::options::MetaCritiqueParams;
use super::prompts::JUDGED;
use super::{ANSWER, QUESTION};
use crate::judge::{JudgeQuestion, JudgeStage, JudgeVerdict, JudgingOptions, Mode, ModelJudge, ShownText, UnitVerdict};
use crate::prompt_set::PromptSet;
use crate::{MethodError, RatingScale};

/// The paper's scale for single critiques.
const SCALE: RatingScale = RatingScale { min: 1, max: 7 };

const OF_CRITIQUES: &str = "Whether what the critique says of the answer is true, whether it finds everything that is \
                            wrong \
                            with the answer or missing from it, and whether one could improve the answer by it.";

const OF_ANSWERS: &str = "Whether the answer is correct, answers the whole question, and gives reasons that hold.";

/// A stage that judges whole texts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Comparison {
    pub(super) name: &'static str,
    mode: Mode,
    /// The judge's prompt in `--prompt`.
    prompt: &'static str,
    /// The noun in the prompt.
    noun: &'static str,
    criteria: &'static str,
    /// Converts a sample to what the judge sees.
    pub(super) shown: fn(&Sample) -> Sample,
}

/// Critiques rated individually.
pub(super) const SINGLE: Comparison = Comparison {
    name: "single",
    mode: Mode::Pointwise,
    prompt: JUDGED[0],
    noun: "critique",
    criteria: OF_CRITIQUES,
    shown: shown_for_critiques,
};

/// Pairs of critiques.
pub(super) const PAIRWISE: Comparison =
    Comparison { name: "pairwise", mode: Mode::Pairwise, prompt: JUDGED[1], ..SINGLE };

/// Pairs of refined answers, including the original answer.
pub(super) const REFINED_PAIRS: Comparison = Comparison {
    name: "refined_pairs",
    prompt: JUDGED[2],
    noun: "answer",
    criteria: OF_ANSWERS,
    shown: shown_for_answers,
    ..PAIRWISE
};

fn shown_for_critiques(sample: &Sample) -> Sample {
    let text = |name: &str| sample.text(name).unwrap_or_default();
    Sample {
        context: format!("Question: {}\n\nAnswer: {}", text(QUESTION), text(ANSWER)).into(),
        instruction: Some("Criticise the answer to the question.".into()),
        references: Vec::new(),
        ..sample.clone()
    }
}

fn shown_for_answers(sample: &Sample) -> Sample {
    let question = sample.text(QUESTION).map(Into::into);
    Sample { context: "".into(), instruction: question, references: Vec::new(), ..sample.clone() }
}

/// The judge of a stage.
pub(super) fn judge<'m>(
    stage: &Comparison,
    params: &MetaCritiqueParams,
    prompts: &PromptSet,
    model: &'m dyn LanguageModel,
) -> Result<ModelJudge<'m>, MethodError> {
    let options = JudgingOptions {
        mode: stage.mode,
        noun: stage.noun.to_owned(),
        criteria: Some(stage.criteria.to_owned()),
        scale: SCALE,
        ties: stage.mode == Mode::Pairwise,
        verdict: params.verdict.verdict_mode(),
        max_tokens: params.rationale_tokens,
        template: prompts.file(stage.prompt).map(str::to_owned),
        layout: params.layout.clone(),
        seed: params.seed,
        ..JudgingOptions::default()
    };
    Ok(ModelJudge::new(&options, model)?.called(format!("/{}", stage.name)))
}

/// One or two texts judged together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ComparedTexts<'a> {
    /// Position of the sample.
    pub(super) item: usize,
    pub(super) first: ShownText<'a>,
    pub(super) second: Option<ShownText<'a>>,
}

/// Units in each of their orders, as questions to a judge.
pub(super) struct ComparedUnits<'a> {
    units: &'a [ComparedTexts<'a>],
    /// The position of the unit, and whether its second text is shown first.
    asked: Vec<(usize, bool)>,
    questions: Vec<JudgeQuestion<'a>>,
}

impl<'a> ComparedUnits<'a> {
    /// The questions of a stage with this name; `samples` are as shown to the judge.
    pub(super) fn new(name: &str, samples: &'a [Sample], units: &'a [ComparedTexts<'a>]) -> Self {
        let orders = |(number, unit): (usize, &ComparedTexts<'_>)| {
            let orders = if unit.second.is_some() { &[false, true][..] } else { &[false] };
            orders.iter().map(move |turned| (number, *turned))
        };
        let asked: Vec<(usize, bool)> = units.iter().enumerate().flat_map(orders).collect();
        let question = |&(unit, turned): &(usize, bool)| {
            let ComparedTexts { item, first, second } = units[unit];
            let mut shown: Vec<ShownText<'a>> = std::iter::once(first).chain(second).collect();
            if turned {
                shown.reverse();
            }
            let sample = &samples[item];
            JudgeQuestion { sample, attribute: 0, shown, references: Vec::new(), tag: name.to_owned() }
        };
        let questions = asked.iter().map(question).collect();
        Self { units, asked, questions }
    }

    /// The stage that answers the questions.
    pub(super) fn stage<'s>(
        &'s self,
        name: &'static str,
        judge: &'s ModelJudge<'s>,
        inputs: Vec<String>,
    ) -> JudgeStage<'s> {
        let identity = |number: usize| {
            let JudgeQuestion { sample, shown, .. } = &self.questions[number];
            let shown: Vec<&str> = shown.iter().map(|text| text.name).collect();
            json!({ "item": sample.id, "shown": shown })
        };
        JudgeStage { name, judges: vec![(judge, &self.questions)], identity: Box::new(identity), inputs }
    }

    /// Combines the verdicts of each unit.
    pub(super) fn settle(&self, verdicts: &[JudgeVerdict], labels: bool) -> Vec<UnitVerdict> {
        let verdicts = self.asked.iter().zip(verdicts).map(|((unit, turned), said)| (*unit, *turned, &said.decided));
        let settled = UnitVerdict::settle(self.units.len(), verdicts, labels);
        settled.into_iter().map(|verdict| verdict.expect("each unit is asked about")).collect()
    }
}

//! Judges of whole texts: the baselines on critiques, and what refined answers are worth.

use std::marker::PhantomData;

use probity_data::Sample;
use probity_lm::{LanguageModel, Outcome};
use serde_json::{Value, json};

use super::options::MetaCritiqueParams;
use super::prompts::JUDGED;
use crate::judge::{JudgeQuestion, JudgeVerdict, JudgingOptions, Mode, ModelJudge, ShownText, UnitVerdict};
use crate::prompt_set::PromptSet;
use crate::{KeepPart, MethodError, MethodStage, RatingScale, RowError, Run};

/// The paper's scale for single critiques.
const SCALE: RatingScale = RatingScale { min: 1, max: 7 };

const OF_CRITIQUES: &str = "Whether what the critique says of the answer is true, whether it finds everything that is wrong \
                            with the answer or missing from it, and whether one could improve the answer by it.";

const OF_ANSWERS: &str = "Whether the answer is correct, answers the whole question, and gives reasons that hold.";

/// Which stage it is.
pub(super) trait ComparisonName: Sync {
    const NAME: &'static str;
    const MODE: Mode;
    /// What `--prompt` calls the judge's prompt.
    const PROMPT: &'static str;
    /// What is compared, in the prompt.
    const NOUN: &'static str;
    const CRITERIA: &'static str;
}

/// Critiques, rated one by one.
pub(super) struct Single;

impl ComparisonName for Single {
    const NAME: &'static str = "single";
    const PROMPT: &'static str = JUDGED[0];
    const MODE: Mode = Mode::Pointwise;
    const NOUN: &'static str = "critique";
    const CRITERIA: &'static str = OF_CRITIQUES;
}

/// Critiques, two at a time.
pub(super) struct Pairwise;

impl ComparisonName for Pairwise {
    const NAME: &'static str = "pairwise";
    const PROMPT: &'static str = JUDGED[1];
    const MODE: Mode = Mode::Pairwise;
    const NOUN: &'static str = "critique";
    const CRITERIA: &'static str = OF_CRITIQUES;
}

/// Refined answers, two at a time, the answer itself among them.
pub(super) struct RefinedPairs;

impl ComparisonName for RefinedPairs {
    const NAME: &'static str = "refined_pairs";
    const PROMPT: &'static str = JUDGED[2];
    const MODE: Mode = Mode::Pairwise;
    const NOUN: &'static str = "answer";
    const CRITERIA: &'static str = OF_ANSWERS;
}

/// The judge of a stage.
pub(super) fn judge<'m, N: ComparisonName>(
    params: &MetaCritiqueParams,
    prompts: &PromptSet,
    model: &'m dyn LanguageModel,
) -> Result<ModelJudge<'m>, MethodError> {
    let options = JudgingOptions {
        mode: N::MODE,
        noun: N::NOUN.to_owned(),
        criteria: Some(N::CRITERIA.to_owned()),
        scale: SCALE,
        ties: N::MODE == Mode::Pairwise,
        verdict: params.verdict.of_judge(),
        max_tokens: params.rationale_tokens,
        template: prompts.file(N::PROMPT).map(str::to_owned),
        layout: params.layout.clone(),
        seed: params.seed,
        ..JudgingOptions::default()
    };
    Ok(ModelJudge::new(&options, model)?.called(format!("/{}", N::NAME)))
}

/// Texts that are judged together: one, or two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ComparedTexts<'a> {
    /// Position of the sample.
    pub(super) item: usize,
    pub(super) first: ShownText<'a>,
    pub(super) second: Option<ShownText<'a>>,
}

/// The stage in which a judge is asked: a part, and a row, for each unit in each order.
pub(super) struct ComparisonStage<'a, N> {
    /// What the judge is shown besides, by the position of the sample.
    pub(super) samples: &'a [Sample],
    units: &'a [ComparedTexts<'a>],
    judge: &'a ModelJudge<'a>,
    /// The position of the unit, and whether its second text is shown first.
    asked: Vec<(usize, bool)>,
    inputs: Vec<String>,
    name: PhantomData<N>,
}

impl<'a, N: ComparisonName> ComparisonStage<'a, N> {
    pub(super) fn new(
        samples: &'a [Sample],
        units: &'a [ComparedTexts<'a>],
        judge: &'a ModelJudge<'a>,
        inputs: Vec<String>,
    ) -> Self {
        let orders = |unit: &ComparedTexts<'_>| if unit.second.is_some() { &[false, true][..] } else { &[false] };
        let asked = units
            .iter()
            .enumerate()
            .flat_map(|(number, unit)| orders(unit).iter().map(move |turned| (number, *turned)).collect::<Vec<_>>());
        let asked = asked.collect();
        Self { samples, units, judge, asked, inputs, name: PhantomData }
    }

    fn shown(&self, number: usize) -> (usize, Vec<ShownText<'a>>) {
        let (unit, turned) = self.asked[number];
        let ComparedTexts { item, first, second } = self.units[unit];
        let mut shown: Vec<ShownText<'a>> = std::iter::once(first).chain(second).collect();
        if turned {
            shown.reverse();
        }
        (item, shown)
    }

    /// What the verdicts come to for each unit.
    pub(super) fn settle(&self, verdicts: &[JudgeVerdict], labels: bool) -> Vec<UnitVerdict> {
        let verdicts = self.asked.iter().zip(verdicts).map(|((unit, turned), said)| (*unit, *turned, &said.decided));
        let settled = UnitVerdict::settle(self.units.len(), verdicts, labels);
        settled.into_iter().map(|verdict| verdict.expect("each unit is asked about")).collect()
    }
}

impl<N: ComparisonName> MethodStage for ComparisonStage<'_, N> {
    type Part = JudgeVerdict;
    const NAME: &'static str = N::NAME;

    fn parts(&self) -> usize {
        self.asked.len()
    }

    fn inputs(&self) -> Vec<String> {
        self.inputs.clone()
    }

    fn work(&self, run: &mut Run<'_>, keep: &mut KeepPart<'_, JudgeVerdict>) -> Result<(), MethodError> {
        let question = |number: usize| {
            let (item, shown) = self.shown(number);
            JudgeQuestion {
                sample: &self.samples[item],
                attribute: 0,
                shown,
                references: Vec::new(),
                tag: N::NAME.to_owned(),
            }
        };
        let questions: Vec<JudgeQuestion<'_>> = (0..self.asked.len()).map(question).collect();
        self.judge.ask(run, &questions, keep)
    }

    fn identity(&self, number: usize) -> Value {
        let (item, shown) = self.shown(number);
        let shown: Vec<&str> = shown.iter().map(|text| text.name).collect();
        json!({ "item": self.samples[item].id, "shown": shown })
    }

    fn rows(&self, number: usize, verdict: &JudgeVerdict) -> serde_json::Result<Vec<Value>> {
        Ok(vec![verdict.row(self.identity(number))?])
    }

    fn read(&self, _: usize, rows: &[Value]) -> Result<JudgeVerdict, RowError> {
        self.judge.read(&rows[0])
    }

    fn stand_in(&self, _: usize) -> JudgeVerdict {
        JudgeVerdict::none(Outcome::Empty)
    }
}

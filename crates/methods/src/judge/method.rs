//! The method `judge`: pairs or single candidates, answered by one judge or a panel.

use probity_data::Sample;
use probity_lm::LanguageModel;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use super::judging::{ModelJudge, TEMPLATES};
use super::options::{JudgingOptions, Mode};
use super::plan::{JudgePlan, UnitVerdict, one_of};
use super::report::{JudgeResults, VerdictDigest};
use super::rows::{self, VERDICTS, verdict_identity};
use super::stage::JudgeStage;
use super::verdict::Decision;
use crate::builtin::Builtin;
use crate::gold;
use crate::question::LayoutOptions;
use crate::{Method, MethodError, MethodReport, RoleModel, Run, Signature, StageSpec};

/// The presentation order of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Orders {
    /// Both orders; disagreement is a tie, probabilities are averaged
    #[default]
    Both,
    /// The order of the data only
    Given,
    /// One order per pair, drawn by --seed
    Seeded,
}

/// The references shown to the judge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReferenceUse {
    /// No references
    #[default]
    None,
    /// The references in the data
    Given,
}

/// How several references are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum References {
    /// All in one prompt, numbered
    #[default]
    Together,
    /// One prompt each; verdicts are combined by majority or mean
    Each,
}

/// Options of the judge.
#[derive(Debug, Clone, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct JudgeParams {
    /// Options of the judge itself.
    #[serde(flatten)]
    pub judging: JudgingOptions,
    /// Presentation order of the candidates of a pair
    pub orders: Orders,
    /// References shown to the judge
    pub reference: ReferenceUse,
    /// How to show several references
    #[schemars(extend("signed_if" = ["reference=given"]))]
    pub references: References,
    /// Further model for a panel of judges; repeatable
    ///
    /// The panel consists of --model and all --panel models. The majority of the verdicts counts, or the mean of the
    /// ratings. Only one model is in memory at a time.
    #[schemars(extend("form" = "NAME|PATH", "signed" = "method"))]
    pub panel: Vec<String>,
    /// Skip comparison with gold scores and preferences
    #[schemars(extend("scores" = false))]
    pub no_gold: bool,
}

/// Language models as judges; see [`Method::LONG_ABOUT`].
pub struct Judge;

impl Method for Judge {
    type Params = JudgeParams;
    const NAME: &'static str = "judge";
    const ABOUT: &'static str = "Judge candidates with one model or a panel";
    const LONG_ABOUT: &'static str = "\
Judge candidates with one model or a panel.

With --mode pairwise the judge sees two candidates and answers [[A]], [[B]] or, with --ties, [[C]]. With --mode \
pointwise it sees one candidate and answers with a rating on --scale, such as [[4]]. --reference given also shows the \
references. --verdict selects how a verdict is obtained: `generate` reads the last [[…]] of the judge's text, and any \
other verdict than those offered is `unparsed`; `rationale-label` lets the judge write, then takes the probabilities \
of all verdicts after the last [[ of the text; `label` takes them without a text. With probabilities a rating is the \
expectation over the scale.

A pair is shown in both orders unless --orders changes that. Its verdict is the one on which the orders agree, else a \
tie; with probabilities it is decided by their mean over references and orders. If one order has no verdict, the pair \
has none. `changed` is the share of pairs whose verdict changes with presentation order. The order gap of \
probabilities is |p − (1 − p′)|: 0 for a judge that ignores the order, 1 for a judge that sees nothing else.

--cycles K samples K answers to each question, --references each judges each reference separately, and --panel judges \
with each model. In all three the majority counts, and a tied vote is a tie. Ratings are averaged, and so are one \
model's probabilities under several references. Missing verdicts are not counted in a vote.

Lines of candidates, contexts and references that resemble the prompt's own lines are quoted with `> `. Verdicts of \
the requested kind inside them are altered: for pairs, [[A]] is shown as [ [A]]. The judge's text is recorded \
unchanged.

Files: `verdicts.jsonl` (a row per question: candidates in the order shown, p or rating, texts, probabilities, \
outcome), `pairs.jsonl` (the result of each pair, by judge and for the panel), `scores.jsonl` (item, candidate, share \
of pairs won or mean rating) and `summary.json`.

Templates: pairwise, pointwise. Your own template is a Jinja file with the slots context, instruction, references (a \
list), candidate_a and candidate_b or candidate, noun, attribute, adjective, comparative, criteria, rubric, rationale, \
and name_a, name_b, ties or min, max.";

    const PROMPTS: &'static [Builtin] = TEMPLATES;

    fn models(params: &JudgeParams) -> Vec<RoleModel> {
        params.panel.iter().map(|name| RoleModel::language("panel", name)).collect()
    }

    const STAGES: &'static [StageSpec] = &[StageSpec { name: VERDICTS, roles: &["model", "panel"] }];

    const JUDGES_CANDIDATES: bool = true;

    fn layout(params: &JudgeParams) -> Option<&LayoutOptions> {
        Some(&params.judging.layout)
    }

    fn run(params: &JudgeParams, samples: &[Sample], run: &mut Run<'_>) -> Result<MethodReport, MethodError> {
        check(params, samples)?;
        let gold = gold::uses(samples, &params.judging.attribute, params.no_gold)?;
        let models: Vec<&dyn LanguageModel> =
            std::iter::once(run.model()).chain(run.other_models().iter().copied()).collect();
        let mut judges = Vec::with_capacity(models.len());
        for (number, model) in models.iter().enumerate() {
            let judge = ModelJudge::new(&params.judging, *model)?;
            judges.push(if number == 0 { judge } else { judge.called(format!("@{}", number + 1)) });
        }
        if models.iter().all(|model| !model.description().classes.is_empty()) {
            params.judging.check_rewards_alone()?;
        }
        let signature = Signature::new(Self::NAME, run.model()).with_other_models(run.other_models());
        // A setting that several judges have is taken from the last, which is the first language-model judge if there
        // is one.
        let mut signing: Vec<&ModelJudge<'_>> = judges.iter().rev().collect();
        signing.sort_by_key(|judge| !judge.is_rewarded());
        let signature = signing.iter().fold(signature.with_options(params), |signature, judge| judge.sign(signature));
        let (plan, names) = (JudgePlan::new(params, samples), names(&models));
        let questions = plan.questions(params, samples);
        let identity = |number: usize| {
            let (judge, index) = (number / questions.len(), number % questions.len());
            let names = [&*names[judge], judges[judge].template()];
            verdict_identity(params, samples, &plan, index, names)
        };
        let stage = JudgeStage {
            name: VERDICTS,
            judges: judges.iter().map(|judge| (judge, questions.as_slice())).collect(),
            identity: Box::new(identity),
            inputs: vec![signature.to_string()],
        };
        let verdicts = run.stage(&stage)?.parts;
        drop(stage);
        let by_judge = || verdicts.chunks_exact(questions.len().max(1));
        let labels = params.judging.verdict.has_labels();
        let settled: Vec<Vec<UnitVerdict>> = by_judge().map(|verdicts| plan.settle(verdicts, labels)).collect();
        let verdicts = JudgeResults {
            params,
            samples,
            panel: (0..plan.units.len()).map(|unit| panel(&settled, unit)).collect(),
            told: by_judge().map(|verdicts| verdicts.iter().map(VerdictDigest::from_verdict).collect()).collect(),
            plan,
            names,
            settled,
        };
        rows::write_pairs(&verdicts, run)?;
        rows::write_scores(&verdicts, run)?;
        Ok(verdicts.report(&gold, signature))
    }
}

fn check(params: &JudgeParams, samples: &[Sample]) -> Result<(), MethodError> {
    let has_reference = |sample: &Sample| sample.references.iter().any(|text| !text.trim().is_empty());
    if params.reference == ReferenceUse::Given && !samples.iter().any(has_reference) {
        let hint = "add \"references\" to the samples, or use --reference none";
        return MethodError::refuse("--reference given", "no sample has references", hint);
    }
    if params.judging.mode == Mode::Pairwise && samples.iter().all(|sample| sample.candidates.len() < 2) {
        let why = "no sample has two candidates";
        let hint = "add a second candidate to the samples, or use --mode pointwise";
        return MethodError::refuse("--mode pairwise", why, hint);
    }
    Ok(())
}

/// The models' names, numbered if equal.
fn names(models: &[&dyn LanguageModel]) -> Vec<String> {
    let mut names: Vec<String> = Vec::with_capacity(models.len());
    for model in models {
        let name = &model.description().name;
        let same = names.iter().filter(|other| *other == name || other.starts_with(&format!("{name} ("))).count();
        names.push(if same == 0 { name.clone() } else { format!("{name} ({})", same + 1) });
    }
    names
}

/// The panel's verdict on a unit; a single judge's own verdict.
fn panel(settled: &[Vec<UnitVerdict>], unit: usize) -> Decision {
    let voices = settled.iter().map(|judge| judge[unit].decided.clone()).collect();
    one_of(voices, Decision::vote).expect("there is a judge")
}

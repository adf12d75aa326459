//! Revisions of scientific text: agreement of judges and metrics with people on pairs (Jourdan et al. 2025).

mod agreement;
mod cascade;
mod evaluators;
mod forms;
mod options;
mod pairs;
mod paraphrase;
mod report;
mod stages;
mod tables;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use probity_data::{LineError, Sample};
use probity_lm::{LabelSet, LanguageModel};
use probity_metrics::{ChosenMetric, Metric};

pub(crate) use options::{RevisionJudge, RevisionParams};

use crate::answer::Answer;
use crate::builtin::{Builtin, DataSlot};
use crate::prompt_set::{PromptSet, ReadyPrompt};
use crate::question::{LayoutOptions, short_hash};
use crate::template::{PromptLayout, Template};
use crate::{Method, MethodError, MethodReport, Needs, Outcomes, RoleModel, Run, Signature, StageSpec, para_pluie};
use evaluators::{AnsweredForms, ScoredMetric};
use forms::{AskedForm, wording};
use pairs::Revisions;
use paraphrase::{PARAPLUIE, Paraphrases};
use report::{FormResults, RevisionFindings};
use stages::{CHOICE, FormKind, LIKERT, QuestionAnswer, answer_stage, form_stage};

const CONTEXT: DataSlot = DataSlot::required("context");
const INSTRUCTION: DataSlot = DataSlot::optional("instruction");
const GOLD: DataSlot = DataSlot::optional("gold");
const QUESTIONS: DataSlot = DataSlot::list("questions");

/// The options that form stages depend on.
const READ: [&str; 2] = ["judge", "one-order"];

const TEMPLATES: &[Builtin] = &[
    Builtin {
        name: CHOICE.name,
        source: include_str!("../prompts/revision_choice.j2"),
        data: &[CONTEXT, INSTRUCTION, GOLD, DataSlot::required("first"), DataSlot::required("second"), QUESTIONS],
    },
    Builtin {
        name: LIKERT.name,
        source: include_str!("../prompts/revision_likert.j2"),
        data: &[CONTEXT, INSTRUCTION, GOLD, DataSlot::required("candidate"), QUESTIONS],
    },
];

/// Which measures of revisions are reliable; see [`Method::LONG_ABOUT`].
pub(crate) struct RevisionStudy;

impl Method for RevisionStudy {
    type Params = RevisionParams;
    const NAME: &'static str = "revision";
    const ABOUT: &'static str = "Compare judges and metrics of text revisions with people";
    const LONG_ABOUT: &'static str = "\
Compare judges and metrics of text revisions with people.

Each sample is an original text (its context), the requested change (its instruction) and two or more revisions (its \
candidates, each two of which are a pair). It may have the author's own revision (its reference) and the preference of \
people. Judges are LLM-Choice (questions about both revisions at once), LLM-Likert (statements about each, graded 1 to \
5), both with and without the author's revision, and ParaPLUIE against the original. Metrics are those of --metric \
(Jourdan et al. 2025).

Forms are filled in as JSON under a schema. The probability of each answer is queried after the answers before it: \
`choice-labels` decides by the most probable answers, `likert-labels` by expected grades. A choice form counts by the \
extended preference: its choice, else the only acceptable revision, else the only one that follows the instruction, \
else a tie. Categories of a sample (its text `categories`) add a question each.

Agreement is the share of pairs with the same verdict, where ties count as a verdict, with Cohen's κ and Cramér's V. \
Scores with many decimals rarely tie, so each is also compared with people while differences up to ε count as a tie; ε \
is fitted on other pairs than those it is tested on. The hybrid uses evaluators in turn, the next one if the previous \
one sees no difference above its threshold; thresholds are fitted in the same way. Pairs of one paragraph (its text \
`paragraph`) are drawn together, in folds and in intervals.

Files: `choice.jsonl`, `choice_labels.jsonl`, `likert.jsonl`, `likert_labels.jsonl`, `parapluie.jsonl` (the stages), \
`scores.jsonl` (item, candidate, metric, score), `decisions.jsonl` (item, by, margin, choice, people's choice) and \
`summary.json`.";

    const PROMPTS: &'static [Builtin] = TEMPLATES;
    const NEEDS: Needs = Needs { without_model: Some("no_judge"), ..Needs::MODEL_AND_SAMPLES };

    fn models(params: &RevisionParams) -> Vec<RoleModel> {
        let other = params.parapluie_model.iter().map(|name| RoleModel::language("paraphrases", name));
        other.chain(params.models.roles()).collect()
    }

    const STAGES: &'static [StageSpec] = &[
        StageSpec { name: CHOICE.name, roles: &["model"] },
        StageSpec { name: CHOICE.labels, roles: &["model"] },
        StageSpec { name: LIKERT.name, roles: &["model"] },
        StageSpec { name: LIKERT.labels, roles: &["model"] },
        StageSpec { name: PARAPLUIE, roles: &["paraphrases"] },
    ];

    fn has_stage(params: &RevisionParams, name: &str) -> bool {
        let has = |judges: [RevisionJudge; 2]| judges.into_iter().any(|judge| params.has(judge));
        let choice = has([RevisionJudge::Choice, RevisionJudge::ChoiceGold]);
        let likert = has([RevisionJudge::Likert, RevisionJudge::LikertGold]);
        match [(CHOICE, choice), (LIKERT, likert)]
            .into_iter()
            .find(|(kind, _)| [kind.name, kind.labels].contains(&name))
        {
            Some((kind, has_forms)) => has_forms && (name == kind.name || !params.no_labels),
            None => params.has(RevisionJudge::Parapluie),
        }
    }

    fn lacks(_: &RevisionParams, sample: &Sample) -> Vec<LineError> {
        pairs::impossible_answers(sample)
    }

    fn layout(params: &RevisionParams) -> Option<&LayoutOptions> {
        Some(&params.layout)
    }

    fn run(params: &RevisionParams, samples: &[Sample], run: &mut Run<'_>) -> Result<MethodReport, MethodError> {
        let metrics = params.check(samples)?;
        let revisions = Revisions::from_samples(samples);
        let (texts, pairs) = (revisions.texts.as_slice(), revisions.pairs.as_slice());
        let Some(model) = run.model_if_any() else { return evaluate_metrics(params, samples, &metrics, run) };
        let prompts = PromptSet::load(
            TEMPLATES,
            &params.prompt,
            |_| params.layout.layout(model.description(), "Answer:"),
            |_| BTreeMap::new(),
        )?;
        let other: &dyn LanguageModel = run.other_models().first().copied().unwrap_or(model);
        let layout = params.layout.layout(other.description(), "Answer:")?;
        let templates = paraphrase_templates(params, &layout)?.into_iter();
        let ready: Vec<ReadyPrompt> = templates.map(|template| ReadyPrompt::new(template, layout.clone())).collect();
        let with_paraphrases =
            |signature: Signature| ready.iter().fold(signature, |signature, prompt| prompt.sign(signature));
        // Metrics that their model cannot compute are reported before any query; a dry run has no models.
        let built = build(&metrics, run)?;
        let study = Study { params, prompts: &prompts };

        let choice_golds = params.golds(RevisionJudge::Choice, RevisionJudge::ChoiceGold);
        let forms = choice_golds.iter().flat_map(|gold| AskedForm::choices(pairs, *gold, params.one_order));
        let choice_forms: Vec<AskedForm<'_>> = forms.collect();
        let choice = study.fill(CHOICE, &choice_forms, run)?;
        let likert_golds = params.golds(RevisionJudge::Likert, RevisionJudge::LikertGold);
        let forms = likert_golds.iter().flat_map(|gold| AskedForm::grades(texts, *gold));
        let likert_forms: Vec<AskedForm<'_>> = forms.collect();
        let likert = study.fill(LIKERT, &likert_forms, run)?;
        let asked = Paraphrases { texts, prompts: &ready };
        let paraphrases: Option<Vec<Answer<f64>>> = if params.has(RevisionJudge::Parapluie) {
            let inputs = vec![with_paraphrases(Signature::new(PARAPLUIE, other)).to_string()];
            let stage = asked.stage(LabelSet::from_words(["Yes", "No"])?, other, inputs);
            Some(run.stage(&stage)?.parts)
        } else {
            None
        };
        if run.is_rehearsal() {
            return Err(MethodError::Rehearsed);
        }
        let scored = score(&metrics, &built, &revisions, run)?;
        let mut outcomes = Outcomes::default();
        let forms = [&choice, &likert].into_iter().flatten();
        forms.flat_map(AnsweredForms::outcomes).for_each(|outcome| outcomes.add(outcome));
        for one in paraphrases.iter().flatten() {
            outcomes.add(&one.outcome);
        }
        let skipped = samples.iter().filter(|sample| sample.candidates.len() < 2).count();
        outcomes.add_several("not_a_pair", skipped);
        let found = RevisionFindings {
            params,
            revisions: &revisions,
            choice: FormResults { answers: choice.as_ref(), golds: &choice_golds },
            likert: FormResults { answers: likert.as_ref(), golds: &likert_golds },
            paraphrases: paraphrases.as_deref().map(|said| (asked, said)),
            metrics: &scored,
        };
        let signature = Signature::new(Self::NAME, model).with_other_models(run.other_models());
        let kinds = [CHOICE, LIKERT].into_iter().filter(|kind| Self::has_stage(params, kind.name));
        let signature = kinds.fold(signature, |signature, kind| study.sign(kind, signature));
        let has_paraphrases = params.has(RevisionJudge::Parapluie);
        let signature = if has_paraphrases { with_paraphrases(signature) } else { signature };
        found.report(outcomes, signature, run)
    }
}

/// The study of metrics alone, without a model.
fn evaluate_metrics(
    params: &RevisionParams,
    samples: &[Sample],
    metrics: &[ChosenMetric],
    run: &mut Run<'_>,
) -> Result<MethodReport, MethodError> {
    let revisions = Revisions::from_samples(samples);
    let built = build(metrics, run)?;
    if run.is_rehearsal() {
        return Err(MethodError::Rehearsed);
    }
    let scored = score(metrics, &built, &revisions, run)?;
    let mut outcomes = Outcomes::default();
    outcomes.add_several("not_a_pair", samples.iter().filter(|sample| sample.candidates.len() < 2).count());
    let none = || FormResults { answers: None, golds: &[] };
    let (choice, likert) = (none(), none());
    let found = RevisionFindings { params, revisions: &revisions, choice, likert, paraphrases: None, metrics: &scored };
    found.report(outcomes, Signature::without_model(RevisionStudy::NAME), run)
}

/// The metrics with their models; empty in a dry run, which has no models.
fn build(metrics: &[ChosenMetric], run: &Run<'_>) -> Result<Vec<Box<dyn Metric>>, MethodError> {
    if run.is_rehearsal() {
        return Ok(Vec::new());
    }
    let models = run.metric_models();
    Ok(metrics.iter().map(|choice| choice.build(models)).collect::<Result<_, _>>()?)
}

fn score(
    metrics: &[ChosenMetric],
    built: &[Box<dyn Metric>],
    revisions: &Revisions<'_>,
    run: &mut Run<'_>,
) -> Result<Vec<ScoredMetric>, MethodError> {
    let each = metrics.iter().zip(built);
    each.map(|(choice, metric)| evaluators::score(choice, metric.as_ref(), revisions, run)).collect()
}

/// The shared parts of all form stages.
struct Study<'a> {
    params: &'a RevisionParams,
    prompts: &'a PromptSet,
}

impl Study<'_> {
    /// Adds to a signature what forms of a kind depend on besides model and options.
    fn sign(&self, kind: FormKind, signature: Signature) -> Signature {
        self.prompts.get(kind.name).sign(signature).with("questions", &short_hash([wording().as_str()]))
    }

    /// Fills in forms of a kind; empty without forms.
    fn fill<'f>(
        &'f self,
        kind: FormKind,
        forms: &'f [AskedForm<'f>],
        run: &mut Run<'_>,
    ) -> Result<Option<AnsweredForms<'f>>, MethodError> {
        if forms.is_empty() {
            return Ok(None);
        }
        let (prompt, model) = (self.prompts.get(kind.name), run.model());
        let signature = |stage| self.sign(kind, Signature::new(stage, model)).with_some_options(self.params, &READ);
        let stage = form_stage(kind, forms, prompt, model, vec![signature(kind.name).to_string()]);
        let filled = run.stage(&stage)?;
        if self.params.no_labels {
            return Ok(Some(AnsweredForms::new(forms, filled.parts, None)));
        }
        let inputs = vec![signature(kind.labels).to_string(), filled.key];
        let asked = QuestionAnswer::all(forms, &filled.parts);
        let said = run.stage(&answer_stage(kind, &asked, prompt, model, inputs)?)?.parts;
        Ok(Some(AnsweredForms::new(forms, filled.parts, Some((&asked, &said)))))
    }
}

fn paraphrase_templates(params: &RevisionParams, layout: &PromptLayout) -> Result<Vec<Template>, MethodError> {
    let settings = BTreeMap::from([("yes", "Yes".to_owned()), ("no", "No".to_owned())]);
    let load = |choice: &String| Template::load(choice, para_pluie::TEMPLATES, settings.clone(), layout);
    Ok(params.template.iter().map(load).collect::<Result<_, _>>()?)
}

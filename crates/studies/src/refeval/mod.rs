//! `Ref-Eval`: a model's knowledge of documents, examined in rounds and judged unit by unit.

mod answers;
mod baselines;
mod clustering;
mod figures;
mod judgements;
mod options;
mod plane;
mod prompts;
mod questions;
mod report;
#[cfg(test)]
mod tests;
mod units;
mod words;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use probity_data::{DataError, JsonLines, LineError, LineProblems, Sample, open_regular, read_documents};
use probity_lm::LanguageModel;
use serde::Deserialize;

pub(crate) use options::{RefEvalBaseline, RefEvalParams};

use answers::{Answerer, GivenAnswers};
use baselines::NO_REFERENCE;
use clustering::embed;
use judgements::Verdict;
use prompts::{TEMPLATES, VERDICTS};
use questions::{CLUSTERS, EXAMINATION, ONE_BY_ONE};
use report::{ExaminationFindings, report};
use units::{Passage, UNITS, Unit, WEIGHTED, units_stage, weights_stage};
use work::RefEvalWork;

use crate::builtin::Builtin;
use crate::figures::TokenTally;
use crate::prompt_set::PromptSet;
use crate::question::LayoutOptions;
use crate::question::first_duplicate;
use crate::{
    Input, Method, MethodError, MethodReport, ModelKind, Needs, Outcomes, RoleModel, Run, Signature, StageSpec,
};

/// The stages before any answers.
const BEFORE_ANSWERS: [&str; 4] = ["units", "weights", "clusters", "questions"];

/// `Ref-Eval`; see [`Method::LONG_ABOUT`].
pub(crate) struct RefEval;

impl Method for RefEval {
    type Params = RefEvalParams;
    const NAME: &'static str = "refeval";
    const ABOUT: &'static str = "Test what a model knows about a set of documents";
    const LONG_ABOUT: &'static str = "\
Test what a model knows about a set of documents.

The evaluator (--model) lists the statements of each passage as knowledge units of one sentence (Ref-Eval). Units with \
similar embeddings form a cluster, and each cluster has one question. The evaluated model (--evaluated, or a file of \
--answers) answers it without seeing the units. The evaluator judges the answer by each unit of the question: correct, \
incorrect, or unrelated. Open units are addressed again in follow-ups and in further rounds, until a round covers \
nothing new.

By the paper's rule, the default, an answer that agrees in part is correct, one that admits not to know is incorrect, \
and only one with nothing of the unit is unrelated. By --rule strict an answer must state the unit to be correct, and \
one that admits not to know leaves the unit open. As in the paper, answers may include related content; --no-related \
requests an answer alone.

Accuracy is the share of covered units that are correct; coverage is the share of all units that are covered. Units \
are vital or okay. Recall is reported over all units, over the vital ones and weighted, as in nugget-based evaluation \
of retrieval.

Stages: `units`, `weights`, and in each round `clusters`, `questions`, `answers`, `judgements`; with --baseline \
one-by-one `single_questions`, `single_answers` and `single_judgements`, with no-reference `no_reference`.

Questions are JSON under a schema. A question that is too long, is a statement, requests nothing, or reveals its \
answer is discarded.

Files: a table for each stage, `knowledge.jsonl` (the result for each unit), `scores.jsonl` (accuracy, coverage and \
recall of each document) and `summary.json`.";

    const PROMPTS: &'static [Builtin] = TEMPLATES;
    const NEEDS: Needs = Needs { samples: false, ..Needs::MODEL_AND_SAMPLES };

    fn models(params: &RefEvalParams) -> Vec<RoleModel> {
        let evaluated = params.evaluated.iter().map(|name| RoleModel::language("evaluated", name));
        let encoder = RoleModel { role: "encoder", name: params.encoder.clone(), kind: ModelKind::Encoder };
        evaluated.chain([encoder]).collect()
    }

    fn inputs(params: &RefEvalParams) -> Vec<Input> {
        let input = |option: &'static str| move |path: &PathBuf| Input { option, path: path.clone() };
        let documents = params.documents.iter().map(input("documents"));
        let files = params.answers.iter().map(input("answers")).chain(params.gold.iter().map(input("gold")));
        documents.chain(files).collect()
    }

    const STAGES: &'static [StageSpec] = &[
        StageSpec { name: UNITS, roles: &["model"] },
        StageSpec { name: WEIGHTED, roles: &["model"] },
        StageSpec { name: CLUSTERS, roles: &["model"] },
        StageSpec { name: EXAMINATION.questions, roles: &["model"] },
        StageSpec { name: EXAMINATION.answers, roles: &["evaluated"] },
        StageSpec { name: EXAMINATION.judgements, roles: &["model"] },
        StageSpec { name: ONE_BY_ONE.questions, roles: &["model"] },
        StageSpec { name: ONE_BY_ONE.answers, roles: &["evaluated"] },
        StageSpec { name: ONE_BY_ONE.judgements, roles: &["model"] },
        StageSpec { name: NO_REFERENCE, roles: &["model"] },
    ];

    fn has_stage(params: &RefEvalParams, name: &str) -> bool {
        match name {
            "weights" => !params.no_weights,
            "no_reference" => params.has(RefEvalBaseline::NoReference),
            "single_questions" | "single_answers" | "single_judgements" => params.has(RefEvalBaseline::OneByOne),
            _ => true,
        }
    }

    fn layout(params: &RefEvalParams) -> Option<&LayoutOptions> {
        Some(&params.layout)
    }

    fn run(params: &RefEvalParams, _: &[Sample], run: &mut Run<'_>) -> Result<MethodReport, MethodError> {
        check(params, run)?;
        let evaluator = run.model();
        let answers = params.answers.as_deref().map(GivenAnswers::read).transpose().map_err(|e| data(e, "answers"))?;
        let gold = params.gold.as_deref().map(read_gold).transpose().map_err(|e| data(e, "gold"))?;
        let mut documents = read_documents(&params.documents).map_err(|e| data(e, "documents"))?;
        documents.truncate(params.limit.unwrap_or(usize::MAX));
        let evaluated: Option<&dyn LanguageModel> = run.other_models().first().copied();
        let by = match (&answers, evaluated) {
            (Some(answers), _) => Answerer::File(answers),
            (None, Some(model)) => Answerer::Model(model),
            (None, None) => Answerer::Nobody,
        };
        let prompts = prompts::load(params, evaluator.description(), evaluated.unwrap_or(evaluator).description())?;
        let encoder = run.metric_models().encoder.clone();
        let encoder = encoder.expect("it is named, and loaded by the caller");
        let passages = Passage::all(&documents, params, encoder.tokenizer())
            .map_err(|source| MethodError::Other { option: Some("encoder"), source: Box::new(source) })?;
        let signature = sign(params, run, &prompts, &passages);
        let signature = by.hash().iter().fold(signature, |signature, hash| signature.with("answers", hash));
        let mut outcomes = Outcomes::default();
        let inputs = |stage, prompt, key: &str| prompts::inputs(params, &prompts, stage, prompt, evaluator, key);
        let inputs_of_units = inputs(UNITS, "units", &texts_key(&passages));
        let stage = units_stage(&passages, prompts.get("units"), params, evaluator, inputs_of_units);
        let found = run.stage(&stage)?;
        let mut tokens: BTreeMap<&'static str, TokenTally> = BTreeMap::new();
        for one in &found.parts {
            outcomes.add_named(one.ended.counted());
            tokens.entry(UNITS).or_default().add(one.counts);
        }
        let (mut units, again) = Unit::all(&passages, &found.parts);
        if !params.no_weights {
            // If all weights are provided, no queries remain, but the stage still writes its table.
            let asked: Vec<Unit> = units.iter().filter(|unit| unit.vital.is_none()).cloned().collect();
            let inputs = inputs(WEIGHTED, "weight", &found.key);
            let stage = weights_stage(&passages, &asked, prompts.get("weight"), evaluator, inputs)?;
            let weights = run.stage(&stage)?.parts;
            for weight in &weights {
                outcomes.add(&weight.outcome);
                tokens.entry(WEIGHTED).or_default().add(weight.counts);
            }
            let open = units.iter_mut().filter(|unit| unit.vital.is_none());
            open.zip(weights).for_each(|(unit, weight)| unit.vital = weight.value.map(|option| option == 0));
        }
        if let Some(gold) = gold.as_ref().filter(|_| !run.is_rehearsal()) {
            check_gold(gold, &units)?;
        }
        // A dry run does not load the encoder; stand-ins replace the clusters.
        run.stands_in();
        let texts: Vec<&str> = units.iter().map(|unit| unit.text.as_str()).collect();
        let vectors = if run.is_rehearsal() { Vec::new() } else { embed(&*encoder, &texts, run)? };
        let work = RefEvalWork {
            params,
            passages: &passages,
            units: &units,
            vectors: &vectors,
            prompts: &prompts,
            evaluator,
            by: &by,
            units_key: &found.key,
        };
        let mut results = work.examine(run)?;
        results.tokens.extend(tokens);
        let single = params.has(RefEvalBaseline::OneByOne).then(|| work.one_by_one(run)).transpose()?;
        let blind = if params.has(RefEvalBaseline::NoReference) {
            let parts = run.stage(&baselines::no_reference(&work, &results.asked, &results.key)?)?.parts;
            for verdict in &parts {
                results.tokens.entry(NO_REFERENCE).or_default().add(verdict.counts);
            }
            Some(parts)
        } else {
            None
        };
        // Computations on files and vectors follow after all queries.
        let is_right = |unit: usize| match &gold {
            Some(gold) => gold.get(&work.units[unit].id).and_then(|verdict| verdict.is_right()),
            None => results.units[unit].covered.map(|(is_right, ..)| is_right),
        };
        let parters = baselines::parters(&work, &results, &*encoder, is_right, run)?;
        let unused = answers.as_ref().map_or(0, |answers| work::unused(answers, &results));
        let found = ExaminationFindings {
            work: &work,
            passages: &found.parts,
            results,
            single,
            blind,
            parters,
            gold,
            again,
            unused,
        };
        report(&found, outcomes, signature, run)
    }
}

/// Refuses options that contradict each other.
fn check(params: &RefEvalParams, run: &Run<'_>) -> Result<(), MethodError> {
    match (&params.evaluated, &params.answers) {
        (None, None) if !run.staging().until.as_deref().is_some_and(|until| BEFORE_ANSWERS.contains(&until)) => {
            let hint = "name a model with --evaluated, pass its answers with --answers FILE, or stop at the questions: \
                        --until questions";
            return MethodError::refuse("--evaluated", "missing, and there is no --answers", hint);
        }
        (Some(_), Some(_)) => {
            let hint = "omit one of the two";
            return MethodError::refuse("--answers", "cannot be combined with --evaluated", hint);
        }
        _ => {}
    }
    if params.overlap >= params.passage_tokens {
        let why = "it must be less than --passage-tokens";
        return MethodError::refuse(format!("--overlap {}", params.overlap), why, "choose a smaller overlap");
    }
    if params.answers.is_some() && params.has(RefEvalBaseline::OneByOne) {
        let why = "it asks other questions, which the file does not answer";
        return MethodError::refuse("--baseline one-by-one", why, "omit it, or name a model with --evaluated");
    }
    if let Some(twice) = first_duplicate(&params.baseline) {
        let twice = probity_options::name(twice);
        return MethodError::refuse(format!("--baseline {twice}"), "repeated", "name each once");
    }
    Ok(())
}

fn data(source: DataError, option: &'static str) -> MethodError {
    MethodError::Other { option: Some(option), source: Box::new(source) }
}

/// Human judgements by unit: whether the answer is correct.
fn read_gold(path: &Path) -> Result<BTreeMap<String, Verdict>, DataError> {
    #[derive(Deserialize)]
    struct GoldRow {
        unit: String,
        label: String,
    }
    let mut problems = LineProblems {
        example: Some(r#"{"unit": "a1/1.2", "label": "correct"}"#),
        ..LineProblems::new(path.display().to_string())
    };
    let mut gold = BTreeMap::new();
    for (line, row) in JsonLines::<GoldRow, _>::new(open_regular(path)?) {
        match row {
            Ok(GoldRow { unit, label }) => {
                let Some(verdict) = Verdict::named(&label) else {
                    let why = format!("`{}` is not one of {}", label.escape_debug(), VERDICTS.join(", "));
                    problems.push(line, LineError::content("label", why));
                    continue;
                };
                if gold.insert(unit.clone(), verdict).is_some() {
                    let why = format!("duplicate label for the unit `{}`", unit.escape_debug());
                    problems.push(line, LineError::content("unit", why));
                }
            }
            Err(error) => problems.push(line, error),
        }
    }
    if gold.is_empty() && problems.is_empty() {
        problems.push(1, LineError::content("", "the file contains no labels"));
    }
    if problems.is_empty() { Ok(gold) } else { Err(DataError::Problems(problems)) }
}

/// Refuses labels of unknown units.
fn check_gold(gold: &BTreeMap<String, Verdict>, units: &[Unit]) -> Result<(), MethodError> {
    let known: BTreeSet<&str> = units.iter().map(|unit| unit.id.as_str()).collect();
    match gold.keys().find(|id| !known.contains(id.as_str())) {
        None => Ok(()),
        Some(id) => {
            let why = format!("it has a label for the unknown unit `{}`", id.escape_debug());
            MethodError::refuse("--gold", why, "use the unit ids of `knowledge.jsonl` from a run on these documents")
        }
    }
}

/// A hash of all passages.
fn texts_key(passages: &[Passage]) -> String {
    let ids: Vec<String> = passages.iter().map(Passage::id).collect();
    let texts = passages.iter().zip(&ids).flat_map(|(passage, id)| [id.as_str(), passage.text.as_str()]);
    crate::question::short_hash(texts)
}

/// The signature of the figures.
fn sign(params: &RefEvalParams, run: &Run<'_>, prompts: &PromptSet, passages: &[Passage]) -> Signature {
    let signature = Signature::new(RefEval::NAME, run.model()).with_other_models(run.other_models());
    let signature = signature.with("passages", &texts_key(passages));
    let names = ["units", "weight", "name", "question", "answer", "judgement"];
    let blind = params.has(RefEvalBaseline::NoReference).then_some("no-reference");
    names.into_iter().chain(blind).fold(signature, |signature, name| prompts.get(name).sign(signature))
}

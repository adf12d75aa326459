//! A judge learned from few labels: `learn` fits a linear head to text features and cross-validates it, and `learned`
//! scores with it.

mod features;
mod head_file;
mod options;
mod prompts;
mod report;
mod scoring;
mod study;
mod subject;
mod surface;
mod table;
#[cfg(test)]
mod tests;

use probity_data::Sample;
use probity_lm::ModelDescription;

pub(crate) use options::{FeatureBlock, LearnParams, LearnedParams};

use crate::builtin::Builtin;
use crate::gold;
use crate::gpt_score;
use crate::stage::samples_key;
use crate::{Input, Method, MethodError, MethodReport, Run, Signature, StageSpec};
use features::{CandidateFeatures, FEATURES, WantedFeatures};
use head_file::{HEAD, HeadModel, HeadOrigin, head_path};
use prompts::ReadingPrompts;
use report::LearntSubject;
use study::HeadStudy;
use subject::{Subject, check_labels};
use table::{FeaturedCandidates, GivenScores};

/// The table of cross-validated predictions.
const PREDICTIONS: &str = "predictions";
const STAGES: &[StageSpec] = &[StageSpec { name: FEATURES, roles: &["model"] }];

/// Learns a head; see [`Method::LONG_ABOUT`].
pub(crate) struct Learn;

impl Method for Learn {
    type Params = LearnParams;
    const NAME: &'static str = "learn";
    const ABOUT: &'static str = "Fit a linear scoring head to your labels";
    const LONG_ABOUT: &'static str = "\
Fit a linear scoring head to your labels.

A small model often gives the same verdict on every text, while its hidden states separate good texts from bad ones. \
`learn` fits a linear head (ridge regression on scores, logistic regression on preferences and on labels with two \
values) to features of the candidates: the probabilities of their tokens (likelihood), counts that need no model \
(surface), and the hidden state of the model, averaged over the candidate's tokens at two thirds of the depth (state). \
`comparison` adds the state after the model reads that the candidate, shown first, is the better one of two. Each \
column is standardised, and each block is scaled by the root of its size. If contexts have several candidates, scores \
and features are differences from the mean of their context. `learned` scores with the head.

A head belongs to one task. It does not carry over to other data, and on texts of one kind it learns what that kind \
rewards, including length. `learn` therefore evaluates it on labels that it did not see: it cross-validates by \
context, and, where ids name systems, also without the candidate's system. It compares the head with one that uses no \
model, with length alone, and with the mean log-probability, which needs no labels. If the head is not better than the \
best of these, by an interval, the simpler score is kept and `learned` uses it.

Without --attribute, preferences are learnt. Fifty labels in a few contexts are a start; the learning curve shows the \
benefit of more.

Files: `features.jsonl` (a stage), `predictions.jsonl` (cross-validated, with label and fold), `head.jsonl` (the head, \
a row for each attribute) and `summary.json`.";

    const PROMPTS: &'static [Builtin] = gpt_score::TEMPLATES;
    const STAGES: &'static [StageSpec] = STAGES;

    fn inputs(params: &LearnParams) -> Vec<Input> {
        params.scores.iter().map(|path| Input { option: "scores", path: path.clone() }).collect()
    }

    fn run(params: &LearnParams, samples: &[Sample], run: &mut Run<'_>) -> Result<MethodReport, MethodError> {
        params.check()?;
        gold::refuse_unknown(samples, &params.attribute, "omit --attribute to learn preferences")?;
        check_labels(&params.attribute, samples)?;
        let scores = GivenScores::read(&params.scores, samples)?;
        let model = run.model().description();
        let has_states = [FeatureBlock::State, FeatureBlock::Comparison].map(|block| params.has(block));
        let layer = if has_states == [false; 2] { None } else { Some(layer(model, params.layer)?) };
        let [state, comparison] = has_states.map(|has| layer.filter(|_| has));
        // The label-free baseline is always computed, since it may do equally well.
        let wanted = WantedFeatures { likelihood: true, state, comparison };
        if comparison.is_some() && samples.iter().all(|sample| sample.candidates.len() != 2) {
            let hint = "omit the block: --features likelihood,surface,state";
            return MethodError::refuse("--features comparison", "no sample has two candidates", hint);
        }
        let prompts = ReadingPrompts::new(&params.template, &params.noun, model)?;
        let signature = prompts.sign(Signature::new(Self::NAME, run.model()), wanted);
        let stage = prompts.stage(samples, wanted, &signature);
        let (samples, parts) = in_order_of_ids(samples, run.stage(&stage)?.parts);
        let samples = samples.as_slice();
        let names: Vec<String> = params.blocks().iter().map(|block| block.name()).collect();
        let signature = scores.sign(signature.with("features", &names.join(",")));
        let is_there = |block: &FeatureBlock| match block {
            FeatureBlock::Likelihood | FeatureBlock::Surface => true,
            other => params.has(*other),
        };
        let blocks: Vec<FeatureBlock> = FeatureBlock::ALL.into_iter().filter(is_there).collect();
        let featured = FeaturedCandidates::new(samples, &parts, &blocks, &scores)?;
        let subjects: Vec<Subject<'_>> = match params.attribute.as_slice() {
            [] => vec![Subject::preferences(samples, &featured)?],
            all => all.iter().map(|name| Subject::scores(name, samples, &featured)).collect::<Result<_, _>>()?,
        };
        let head_prompt = prompts.head_prompt(layer);
        let data = key_of_data(samples);
        let mut learnt = Vec::new();
        for subject in &subjects {
            let at = format!("cross-validation of {}", subject.name());
            let study = HeadStudy::cross_validate(subject, params, |done, parts| run.working(&at, done, parts))?;
            let origin = HeadOrigin {
                data: data.clone(),
                model: HeadModel::from_description(model),
                prompt: head_prompt.clone(),
            };
            let head = study.head(subject, &featured.table, params.seed, origin);
            learnt.push(LearntSubject { subject, study, head });
        }
        write(&learnt, run)?;
        Ok(report::report(&learnt, &featured, &scores, signature))
    }
}

/// Scores with a head; see [`Method::LONG_ABOUT`].
pub(crate) struct Learned;

impl Method for Learned {
    type Params = LearnedParams;
    const NAME: &'static str = "learned";
    const ABOUT: &'static str = "Score each candidate with a head fitted by `learn`";
    const LONG_ABOUT: &'static str = "\
Score each candidate with a head fitted by `learn`.

The head of a `learn` run (--head DIR) defines the features and their weights. Another model or prompt than in `learn` \
is an error. Texts unlike those that the head was fitted to are reported. If the head was no better than a simpler \
score, that score is used.

Scores are on the scale of the labels. If the head was fitted within contexts, differences within a context are \
meaningful, and means of contexts are not. If it was fitted to preferences, the difference of two scores is the \
log-odds that the first candidate is preferred.

Files: `features.jsonl` (a stage), `scores.jsonl` (item, attribute, candidate, score, outcome) and `summary.json`.";

    const STAGES: &'static [StageSpec] = STAGES;

    fn inputs(params: &LearnedParams) -> Vec<Input> {
        let head = [Input { option: "head", path: head_path(&params.head) }].into_iter();
        head.chain(params.scores.iter().map(|path| Input { option: "scores", path: path.clone() })).collect()
    }

    fn run(params: &LearnedParams, samples: &[Sample], run: &mut Run<'_>) -> Result<MethodReport, MethodError> {
        let heads = scoring::heads(params)?;
        let first = &heads[0];
        let model = run.model().description();
        // No hashing of files in a dry run.
        if !run.is_rehearsal() {
            scoring::refuse_other_model(first, model)?;
        }
        let prompts = ReadingPrompts::new(&first.origin.prompt.template, &first.origin.prompt.noun, model)?;
        let has = |block: FeatureBlock| heads.iter().any(|head| head.has(block));
        let [state, comparison] = [FeatureBlock::State, FeatureBlock::Comparison]
            .map(|block| first.origin.prompt.layer.filter(|_| has(block)));
        let wanted = WantedFeatures { likelihood: has(FeatureBlock::Likelihood), state, comparison };
        if prompts.head_prompt(first.origin.prompt.layer) != first.origin.prompt {
            let why = format!("the prompt `{}` differs from that of the head", first.origin.prompt.template);
            return MethodError::refuse("--head", why, "restore the prompt, or learn again");
        }
        let signature = prompts.sign(Signature::new(Self::NAME, run.model()), wanted);
        let signature = signature.with("head", &scoring::hash(&heads));
        let scores = GivenScores::read(&params.scores, samples)?;
        scoring::refuse_other_columns(&heads, &scores)?;
        let stage = prompts.stage(samples, wanted, &signature);
        let parts = run.stage(&stage)?.parts;
        let signature = scores.sign(signature);
        let blocks: Vec<FeatureBlock> = FeatureBlock::ALL.into_iter().filter(|block| has(*block)).collect();
        let featured = FeaturedCandidates::new(samples, &parts, &blocks, &scores)?;
        scoring::score(params, &heads, samples, &featured, &scores, signature, run)
    }
}

/// Samples, candidates and their features sorted by id, so that folds, draws and rounding do not depend on the order of
/// the data.
fn in_order_of_ids(samples: &[Sample], parts: Vec<CandidateFeatures>) -> (Vec<Sample>, Vec<CandidateFeatures>) {
    let mut parts = parts.into_iter();
    let mut all: Vec<(Sample, Vec<CandidateFeatures>)> = Vec::new();
    for sample in samples {
        let mut candidates: Vec<_> = sample.candidates.iter().cloned().zip(parts.by_ref()).collect();
        candidates.sort_by(|a, b| a.0.id.cmp(&b.0.id));
        let (candidates, parts) = candidates.into_iter().unzip();
        all.push((Sample { candidates, ..sample.clone() }, parts));
    }
    all.sort_by(|a, b| a.0.id.cmp(&b.0.id));
    let (samples, parts): (Vec<Sample>, Vec<Vec<CandidateFeatures>>) = all.into_iter().unzip();
    (samples, parts.into_iter().flatten().collect())
}

/// The key of samples sorted by id.
fn key_of_data(samples: &[Sample]) -> String {
    let mut samples = samples.to_vec();
    for sample in &mut samples {
        sample.candidates.sort_by(|a, b| a.id.cmp(&b.id));
    }
    samples.sort_by(|a, b| a.id.cmp(&b.id));
    samples_key(&samples)
}

/// The number of layers before the states: two thirds by default.
fn layer(model: &ModelDescription, asked: Option<u32>) -> Result<usize, MethodError> {
    let Some(layers) = model.layers else {
        let why = format!("the number of layers of the model `{}` is unknown", model.name);
        return MethodError::refuse("--features state", why, "omit the block: --features likelihood,surface");
    };
    match asked.map(|asked| asked as usize) {
        None => Ok((2 * layers).div_ceil(3).min(layers.saturating_sub(1))),
        Some(asked) if asked < layers => Ok(asked),
        Some(asked) => {
            let why = format!("`{}` has {layers} layers", model.name);
            let hint = format!("choose one from 0 to {}", layers.saturating_sub(1));
            MethodError::refuse(format!("--layer {asked}"), why, hint)
        }
    }
}

/// Writes the heads and the predictions of held-out labels.
fn write(learnt: &[LearntSubject<'_>], run: &mut Run<'_>) -> Result<(), MethodError> {
    run.table(HEAD, learnt.len())?;
    for (index, one) in learnt.iter().enumerate() {
        run.row(HEAD, index, &one.head)?;
    }
    run.table(PREDICTIONS, learnt.iter().map(|one| one.subject.labels()).sum())?;
    let rows = learnt.iter().flat_map(LearntSubject::predictions);
    rows.enumerate().try_for_each(|(index, row)| run.row(PREDICTIONS, index, &row))
}

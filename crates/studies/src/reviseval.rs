//! The complete `RevisEval` (Zhang et al. 2024): references by revision, then a judge or metrics with these references.

mod analyses;
mod evaluators;
mod judged;
mod options;
mod ratings;
mod references;
mod scored;
mod sets;
mod tables;
#[cfg(test)]
mod tests;

use probity_data::Sample;
use probity_lm::LanguageModel;
use serde_json::{Value, json};

pub(crate) use options::{Reference, RevisEvalParams};

use crate::gold;
use crate::judge::{JudgeVerdict, JudgedUnit, Mode, ModelJudge};
use crate::question::LayoutOptions;
use crate::revise::{REVISIONS, Reviser, Revision, RevisionFocus, RevisionSettings, RevisionTally, revisions_table};
use crate::{
    Conclusion, Headline, Method, MethodError, MethodReport, Outcomes, RoleModel, Run, Signature, StageSpec, Table,
};
use evaluators::{Evaluator, EvaluatorVerdicts, PairFigures};
use judged::{ReferenceQuestions, TEMPERATURES, VERDICTS};
use options::Chosen;
use ratings::{RATINGS, RatedTexts};
use references::{ReferencePool, units};
use scored::{ReadyMetric, ReferenceScores};
use sets::TrainingSets;
use tables::{EvaluatorTables, pairs_table};

/// References by revision, with judges and metrics; see [`Method::LONG_ABOUT`].
pub(crate) struct RevisEval;

impl Method for RevisEval {
    type Params = RevisEvalParams;
    const NAME: &'static str = "reviseval";
    const ABOUT: &'static str = "Judge and score candidates against generated references";
    const LONG_ABOUT: &'static str = "\
Judge and score candidates against generated references.

The complete RevisEval (Zhang et al. 2024): the model revises the candidates (see `probity revise`), and the revision \
is the reference for a judge (see `probity judge`) and for metrics (see `probity metrics`). --reference lists the \
kinds of reference to compare: none, given, direct, adapted, aspects, both, each, diversified. One table shows the \
judge, each metric and the vote of the metrics for each kind, with accuracy on preferences and its interval, or, with \
--mode pointwise, correlations with gold scores.

The judge sees a pair in both orders. Its verdict is the one on which they agree, else a tie; with --verdict label or \
rationale-label it is the more probable one over both. `changed` is the share of pairs whose verdict changes with \
presentation order. A metric prefers the better score (for distances and error rates the lower one), and equal scores \
are a tie. For kinds with several references (aspects, each) each reference has a verdict, and the majority counts; \
probabilities, ratings, results under paraphrases, and metrics under each are averaged. References in the data are \
used together. A pair without a usable reference has no verdict under that kind, and is counted.

Further results, where available. Tokens: the cost of each kind of reference. Different verdicts: the share of pairs \
on which two ways of judging differ. Effectiveness: P with reference over P without, beside the similarity of \
references and candidates (--similarity), over all pairs and over thirds of them (the paper's Figure 1 has groups of \
similarity whose bounds it does not give). P is accuracy, or Spearman over all candidates, averaged over attributes. \
--cost-match: two more cycles without reference, and the vote of three. --rate: mean ratings of candidates and \
references, each rated separately. Subsets: accuracy by the part of the items' ids before the first /. --export-sets: \
chats to train a reviser and a judge, from units on which the judge agrees with people, without reference and with a \
revision.

--judge-model selects another model for the judge than for the revisions; only one of them is in memory at a time.

Files: `revisions.jsonl` (see `probity revise`), `verdicts.jsonl` (a row per query to the judge), `preferences.jsonl` \
(item, reference, by, choice, outcome) or with --mode pointwise `scores.jsonl` (item, candidate, metric, score), and \
`summary.json`; `ratings.jsonl` with --rate, `set_*.jsonl` with --export-sets.";

    fn models(params: &RevisEvalParams) -> Vec<RoleModel> {
        let judge = params.judge_model.iter().map(|name| RoleModel::language("judge", name));
        judge.chain(params.models.roles()).collect()
    }

    const STAGES: &'static [StageSpec] = &[
        StageSpec { name: REVISIONS, roles: &["model"] },
        StageSpec { name: VERDICTS, roles: &["judge"] },
        StageSpec { name: RATINGS, roles: &["judge"] },
    ];

    fn has_stage(params: &RevisEvalParams, name: &str) -> bool {
        match name {
            VERDICTS => !params.no_judge,
            RATINGS => params.rate.is_some(),
            _ => true,
        }
    }

    fn layout(params: &RevisEvalParams) -> Option<&LayoutOptions> {
        Some(&params.judging.layout)
    }

    fn run(params: &RevisEvalParams, samples: &[Sample], run: &mut Run<'_>) -> Result<MethodReport, MethodError> {
        let chosen = params.check(samples)?;
        let attributes = &params.judging.attribute;
        let pointwise = params.judging.mode == Mode::Pointwise;
        let gold = gold::uses(samples, attributes, params.no_gold || !pointwise)?;
        let model = run.model().description();
        let writes = !params.kinds().is_empty() && !run.came_from_file(REVISIONS);
        if writes && !model.classes.is_empty() {
            let why = "it generates the references, which a classifier or reward model cannot do";
            let hint = format!("pass a language model here, and --judge-model {} for the verdicts", model.name);
            return MethodError::refuse(format!("--model {}", model.name), why, hint);
        }
        let judges = JudgeParts::new(params, run)?;
        let reviser = reviser(params, samples, run)?;
        let signature = Signature::new(Self::NAME, run.model()).with_other_models(run.other_models());
        let signature = judges.sign(reviser.sign(signature));
        let signature = signature.with("similarity", chosen.similarity.label());
        let units = units(samples, params.judging.mode, attributes.len());
        let made = run.stage(&reviser.stage(run.model(), params))?;
        let pool = ReferencePool::new(&reviser, &made.parts);
        let work = ReferenceWork { params, samples, units: &units, pool: &pool };
        let asking = ReferenceQuestions::new(samples, &units, attributes, work.judged(), &pool, params.cost_match);
        let inputs = |signature: Signature| vec![signature.to_string(), made.key.clone()];
        let verdicts = if let Some((_, judge)) = judges.cycles.first() {
            let read = ["reference", "use-truncated", "cost-match"];
            let signature = judge.signature(VERDICTS).with_some_options(params, &read);
            run.stage(&asking.stage(&judges.cycles, &asking.questions(), inputs(signature)))?.parts
        } else {
            Vec::new()
        };
        let mut rated = None;
        if let (Some(judge), Some(attribute)) = (&judges.rating, &params.rate) {
            let texts = RatedTexts::new(samples, &units, &params.reference, &pool);
            let signature = judge.signature(RATINGS).with_some_options(params, &["reference", "use-truncated"]);
            let verdicts = run.stage(&texts.stage(judge, inputs(signature)))?.parts;
            rated = Some((texts.means(&verdicts), attribute));
        }
        let mut evaluators = work.judge_evaluators(&asking, &verdicts);
        let (metrics, similarity) =
            (work.metric_evaluators(&chosen, run, &mut evaluators)?, work.similarity(&chosen, run)?);
        evaluators
            .sort_by_key(|evaluator| params.reference.iter().position(|reference| *reference == evaluator.reference));
        let tables = EvaluatorTables { samples, units: &units, attributes, evaluators: &evaluators };
        tables.write(run)?;

        let mut told = SummaryParts::default();
        told.pairs(&tables, params);
        told.gold(&tables, &gold);
        told.verdict = tables.conclusions(&gold, params, &asking, &verdicts);
        told.analyses(&work, &asking, &verdicts, &evaluators, &similarity);
        if let Some((ratings, attribute)) = rated {
            told.add("ratings", json!(ratings), ratings::table(&ratings, attribute));
        }
        if let (Some((_, judge)), true) = (judges.cycles.first(), params.reviser.export_sets) {
            let sets = TrainingSets { samples, asking: &asking, verdicts: &verdicts, seed: params.judging.seed };
            let written = sets.write(judge, &reviser, &pool, run)?;
            told.add("sets", json!(written), sets::table(&written));
        }
        let tallies = RevisionTally::all(&reviser, &made.parts);
        told.add("references", json!(tallies), revisions_table(&tallies));
        told.values["metrics"] = json!(metrics);
        Ok(told.report(&work, &made.parts, &verdicts, signature))
    }
}

/// The judge in its different settings.
struct JudgeParts<'m> {
    /// Each with the temperature of its cycle; empty without a judge.
    cycles: Vec<(Option<f64>, ModelJudge<'m>)>,
    /// For ratings of single texts.
    rating: Option<ModelJudge<'m>>,
}

impl<'m> JudgeParts<'m> {
    fn new(params: &RevisEvalParams, run: &Run<'m>) -> Result<Self, MethodError> {
        let model: &'m dyn LanguageModel = run.other_models().first().copied().unwrap_or(run.model());
        let judge = || ModelJudge::new(&params.judging, model);
        let mut cycles = Vec::new();
        if !params.no_judge {
            cycles.push((None, judge()?));
        }
        if params.cost_match {
            for temperature in TEMPERATURES {
                cycles.push((Some(temperature), judge()?.sampling_at(temperature)));
            }
        }
        let by_one = |attribute: &String| ModelJudge::new(&ratings::options(&params.judging, attribute), model);
        let rating = params.rate.as_ref().map(by_one).transpose()?;
        Ok(Self { cycles, rating })
    }

    fn sign(&self, signature: Signature) -> Signature {
        let parts = self.rating.iter().chain(self.cycles.first().map(|(_, judge)| judge));
        parts.fold(signature, |signature, judge| judge.sign(signature))
    }
}

fn reviser<'a>(params: &'a RevisEvalParams, samples: &'a [Sample], run: &Run<'_>) -> Result<Reviser<'a>, MethodError> {
    let judging = &params.judging;
    let layout = judging.layout.layout(run.model().description(), "Answer:")?;
    let words = judging.attribute_words()?;
    let focus = |words: &crate::attributes::AttributeWords| match (words.attribute.as_str(), &judging.criteria) {
        // The default: the text as a whole.
        ("quality", None) => RevisionFocus::whole(None),
        (_, criteria) => RevisionFocus::attribute(words, criteria.as_deref(), judging.attribute.len()),
    };
    let foci = words.iter().map(focus).collect::<Result<Vec<_>, _>>()?;
    let (options, max_tokens) = (&params.reviser, params.revision_tokens);
    let how =
        RevisionSettings { options, mode: judging.mode, noun: &judging.noun, max_tokens, layout, seed: judging.seed };
    Reviser::new(how, &params.kinds(), &foci, samples)
}

/// The texts to judge and their references.
struct ReferenceWork<'a> {
    params: &'a RevisEvalParams,
    samples: &'a [Sample],
    units: &'a [JudgedUnit],
    pool: &'a ReferencePool<'a>,
}

impl ReferenceWork<'_> {
    fn pairs(&self) -> bool {
        self.params.judging.mode == Mode::Pairwise
    }

    /// The kinds of references that the judge uses; empty without a judge.
    fn judged(&self) -> &[Reference] {
        if self.params.no_judge { &[] } else { &self.params.reference }
    }

    fn with_references(&self) -> impl Iterator<Item = Reference> {
        self.params.reference.iter().copied().filter(|reference| *reference != Reference::None)
    }

    fn judge_evaluators(&self, asking: &ReferenceQuestions<'_>, verdicts: &[JudgeVerdict]) -> Vec<EvaluatorVerdicts> {
        let labels = self.params.judging.verdict.has_labels();
        let evaluator = |&reference: &Reference| EvaluatorVerdicts {
            reference,
            by: Evaluator::Judge,
            says: asking.settle(verdicts, reference, labels, false),
        };
        self.judged().iter().map(evaluator).collect()
    }

    /// Adds the verdicts of each metric with each kind of reference, and their vote on pairs; returns the metrics.
    fn metric_evaluators(
        &self,
        chosen: &Chosen,
        run: &Run<'_>,
        evaluators: &mut Vec<EvaluatorVerdicts>,
    ) -> Result<Vec<Value>, MethodError> {
        let ready = chosen.metrics.iter().map(|choice| ReadyMetric::new(choice, run.metric_models()));
        let ready = ready.collect::<Result<Vec<_>, _>>()?;
        for reference in self.with_references() {
            let mut metrics = Vec::with_capacity(ready.len());
            for metric in &ready {
                let scored = metric.score(self.samples, self.units, self.pool, reference)?;
                // Each text of a pair is closest to its own revision, so a vote over revisions would always be a tie.
                let averaged = matches!(reference, Reference::Diversified | Reference::Each);
                let says = (0..self.units.len()).map(|unit| scored.decided(unit, self.pairs(), averaged)).collect();
                let by = Evaluator::Metric(metric.choice.label().to_owned());
                metrics.push(EvaluatorVerdicts::without_order(reference, by, says));
            }
            let vote = (self.pairs() && metrics.len() > 1).then(|| EvaluatorVerdicts::vote(reference, &metrics));
            evaluators.extend(metrics.into_iter().chain(vote));
        }
        Ok(ready.iter().map(ReadyMetric::described).collect())
    }

    /// The similarity of references and candidates; empty without a judge, the only evaluator compared by it.
    fn similarity(&self, chosen: &Chosen, run: &Run<'_>) -> Result<Vec<(Reference, ReferenceScores)>, MethodError> {
        if self.params.no_judge || !self.params.reference.contains(&Reference::None) {
            return Ok(Vec::new());
        }
        let metric = ReadyMetric::new(&chosen.similarity, run.metric_models())?;
        let scores = |reference| Ok((reference, metric.score(self.samples, self.units, self.pool, reference)?));
        self.with_references().map(scores).collect()
    }
}

/// The contents of the summary.
struct SummaryParts {
    values: Value,
    tables: Vec<Table>,
    headline: Vec<Headline>,
    verdict: Vec<Conclusion>,
}

impl Default for SummaryParts {
    fn default() -> Self {
        Self { values: json!({}), tables: Vec::new(), headline: Vec::new(), verdict: Vec::new() }
    }
}

impl SummaryParts {
    fn add(&mut self, name: &str, value: Value, table: Table) {
        self.values[name] = value;
        self.tables.push(table);
    }

    fn pairs(&mut self, tables: &EvaluatorTables<'_>, params: &RevisEvalParams) {
        if params.judging.mode == Mode::Pointwise {
            return;
        }
        let figures = tables.pairs();
        let leading = figures.iter().filter(|one| params.leads(&one.by) && one.agreement.accuracy.is_some());
        let headline = |one: &PairFigures| {
            Headline::new(format!("accuracy ({})", one.reference), Some(&one.attribute), one.agreement.accuracy)
        };
        self.headline = leading.map(headline).collect();
        self.add("pairs", json!(figures), pairs_table(&figures));
        let (values, table) = tables.by_subset();
        self.add("subsets", json!(values), table);
    }

    fn gold(&mut self, tables: &EvaluatorTables<'_>, gold: &[gold::GoldUse<'_>]) {
        let (values, tables, headline) = tables.against_gold(gold);
        let (averages, table) = EvaluatorTables::averages(&values);
        self.values["gold"] = json!(values);
        self.add("gold_average", json!(averages), table);
        self.tables.extend(tables);
        self.headline.extend(headline);
    }

    fn analyses(
        &mut self,
        work: &ReferenceWork<'_>,
        asking: &ReferenceQuestions<'_>,
        verdicts: &[JudgeVerdict],
        evaluators: &[EvaluatorVerdicts],
        similarity: &[(Reference, ReferenceScores)],
    ) {
        let (params, samples, units) = (work.params, work.samples, work.units);
        let tokens = analyses::tokens(asking, verdicts, &params.reference, work.pool);
        self.add("tokens", json!(tokens), analyses::tokens_table(&tokens, work.pairs()));
        if params.cost_match {
            let spent = analyses::spent(samples, asking, verdicts, evaluators, &tokens);
            self.add("cost_match", json!(spent), analyses::spent_table(&spent));
        }
        let effects = analyses::effects(samples, units, &params.judging.attribute, evaluators, similarity);
        let table = analyses::effects_table(&effects, params.similarity(), work.pairs());
        self.add("effectiveness", json!(effects), table);
        if work.pairs() {
            let disagreements = analyses::disagreements(evaluators);
            self.add("disagreement", json!(disagreements), analyses::disagreements_table(&disagreements));
        }
    }

    fn report(
        mut self,
        work: &ReferenceWork<'_>,
        made: &[Revision],
        verdicts: &[JudgeVerdict],
        signature: Signature,
    ) -> MethodReport {
        let mut outcomes = Outcomes::default();
        let use_truncated = work.params.reviser.use_truncated;
        for revision in made {
            outcomes.add_named(revision.outcome(use_truncated));
        }
        for verdict in verdicts {
            outcomes.add(&verdict.decided.outcome);
        }
        let not_a_pair = work.samples.iter().filter(|sample| work.pairs() && sample.candidates.len() != 2).count();
        (0..not_a_pair).for_each(|_| outcomes.add_named("not_a_pair"));
        let held = |reference: Reference| {
            work.units.iter().filter(|unit| work.pool.references(reference, **unit).is_empty()).count()
        };
        let no_reference: usize = work.with_references().map(held).sum();
        (0..no_reference).for_each(|_| outcomes.add_named("no_reference"));
        self.tables.retain(|table| !table.rows.is_empty());
        self.values["items"] = json!(work.samples.len());
        MethodReport {
            values: self.values,
            tables: self.tables,
            outcomes,
            headline: self.headline,
            verdict: self.verdict,
            ..MethodReport::new(signature)
        }
    }
}

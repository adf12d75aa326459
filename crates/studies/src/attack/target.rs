//! The attacked method and its verdicts on each sample's two candidates.

use std::collections::BTreeMap;

use probity_data::Sample;
use probity_lm::{SinkError, did_you_mean, nearest};
use probity_options::{GivenOptions, read_pair};
use serde_json::Value;

use super::options::AttackParams;
use crate::{Configured, Defence, DynMethod, MethodError, Outcomes, Run, RunOutput, RunScores, Staging, methods};

/// A method with its options.
pub(super) struct Target {
    method: &'static dyn DynMethod,
    given: GivenOptions,
    /// The value as typed.
    pub(super) label: String,
}

impl Target {
    /// Reads `NAME:KEY=VALUE,KEY=VALUE`.
    pub(super) fn read(label: &str, params: &AttackParams) -> Result<Self, MethodError> {
        let option = || format!("--method {}", label.escape_debug());
        let (name, pairs) = label.split_once(':').unwrap_or((label, ""));
        let names = || methods().filter(|one| one.judges_candidates()).map(DynMethod::name);
        let known = || format!("the methods that can be attacked are {}", names().collect::<Vec<_>>().join(", "));
        let Some(method) = methods().find(|one| one.name() == name) else {
            let near = did_you_mean(nearest(name, names()));
            return MethodError::refuse(option(), format!("unknown method `{}`{near}", name.escape_debug()), known());
        };
        if !method.judges_candidates() {
            let why = format!("{name} does not show candidates to a model and score each one");
            return MethodError::refuse(option(), why, known());
        }
        let options = method.options();
        let mut given = GivenOptions::new();
        for pair in pairs.split(',').filter(|pair| !pair.is_empty()) {
            let (field, value) = match read_pair(name, &options, pair) {
                Ok(read) => read,
                Err(problem) => return MethodError::refuse(option(), problem.why, problem.hint),
            };
            if ["defence", "attribute", "no_gold"].contains(&field.as_str()) {
                let why = format!("`{}` is set for all methods", field.replace('_', "-"));
                return MethodError::refuse(option(), why, "pass --attribute and --defence as options of `attack`");
            }
            if given.insert(field.clone(), value).is_some() {
                return MethodError::refuse(option(), format!("`{field}` is repeated"), "pass each option once");
            }
        }
        // Human judgements were used to choose items; attacked texts have none.
        let common = [
            ("attribute", Value::from(vec![params.attribute.clone()])),
            ("noun", Value::from(params.noun.clone())),
            ("no_gold", Value::Bool(true)),
            // A threshold over all comparisons would make each attack's figures depend on the others. Both orders are
            // judged, which cancels position bias anyway.
            ("debias", Value::from("none")),
        ];
        for (field, value) in common {
            if options.iter().any(|option| option.field == field) {
                given.entry(field.to_owned()).or_insert(value);
            }
        }
        let target = Self { method, given, label: label.to_owned() };
        let configured = target.with(None)?;
        if let Some(other) = configured.models().first() {
            let why = format!("it uses another model (`{}`), but one model is attacked at a time", other.name);
            return MethodError::refuse(option(), why, "pass that model with --model");
        }
        Ok(target)
    }

    /// Checks that the method supports this defence.
    pub(super) fn check(&self, defence: &Defence) -> Result<(), MethodError> {
        if self.method.options().iter().any(|option| option.field == "defence") {
            return Ok(());
        }
        let why = format!("{} has no prompt that a defence could change", self.method.name());
        MethodError::refuse(format!("--defence {defence}"), why, "attack that method in a separate run")
    }

    /// Configures the method with one defence or none.
    fn with(&self, defence: Option<&Defence>) -> Result<Box<dyn Configured>, MethodError> {
        let mut given = self.given.clone();
        given.extend(defence.map(|defence| ("defence".to_owned(), Value::from(vec![defence.to_string()]))));
        self.method.with(&given)
    }

    /// Runs the method on each sample; empty in a dry run.
    pub(super) fn judge(
        &self,
        defence: Option<&Defence>,
        samples: &[Sample],
        run: &mut Run<'_>,
    ) -> Result<TargetVerdicts, MethodError> {
        let configured = self.with(defence)?;
        let (model, stands_in) = (run.model(), run.is_rehearsal());
        let mut kept = KeptShares { output: run.output(), shares: BTreeMap::new() };
        kept.output.begin_stage(self.method.name());
        let mut nested = Run::new(model, &mut kept).with_staging(Staging { stands_in, ..Staging::default() });
        let ended = configured.run(samples, &mut nested);
        let cost = nested.cost();
        let shares = kept.shares;
        run.spend(&cost);
        let (of_run, outcomes) = match ended {
            Ok(summary) => (summary.scores, summary.outcomes),
            // Continue, so that later work is part of the dry run.
            Err(MethodError::Rehearsed) => (RunScores::default(), Outcomes::default()),
            Err(error) => return Err(error),
        };
        let mut scores = Scores::new();
        for (sample, of_sample) in of_run.attributes.iter().flat_map(|one| samples.iter().zip(&one.scores)) {
            for (candidate, score) in sample.candidates.iter().zip(of_sample) {
                scores.extend(score.map(|score| ((sample.id.clone(), candidate.id.clone()), score)));
            }
        }
        Ok(TargetVerdicts { scores, shares, within: of_run.within.unwrap_or([0.0, 1.0]), outcomes })
    }
}

/// Scores by sample and candidate.
type Scores = BTreeMap<(String, String), f64>;

/// A method's verdicts on the candidates of each sample.
pub(super) struct TargetVerdicts {
    scores: Scores,
    /// The probability that a candidate wins its pair, if the method reports it.
    shares: Scores,
    within: [f64; 2],
    /// The outcomes of its answers.
    pub(super) outcomes: Outcomes,
}

impl TargetVerdicts {
    /// The values of two candidates of a sample, from 0 to 1; absent if either has none.
    pub(super) fn pair_values(&self, sample: &str, first: &str, second: &str) -> Option<(f64, f64)> {
        let key = |candidate: &str| (sample.to_owned(), candidate.to_owned());
        if let Some(share) = self.shares.get(&key(first)) {
            return Some((*share, 1.0 - share));
        }
        let [low, high] = self.within;
        let score = |candidate: &str| Some((self.scores.get(&key(candidate))? - low) / (high - low));
        Option::zip(score(first), score(second))
    }
}

/// The sample of a row, and the candidate in `field`.
fn key(row: &Value, field: &str) -> Option<(String, String)> {
    Some((row["item"].as_str()?.to_owned(), row[field].as_str()?.to_owned()))
}

/// Extracts the win probabilities from the judge's pair rows, since its scores only contain the winner. Rows are
/// discarded; the underlying answers are stored elsewhere.
struct KeptShares<'o> {
    output: &'o mut dyn RunOutput,
    shares: Scores,
}

impl RunOutput for KeptShares<'_> {
    fn table(&mut self, _: &'static str, _: usize) -> Result<(), SinkError> {
        Ok(())
    }

    fn rows(&mut self, table: &'static str, _: usize, rows: Vec<Value>) -> Result<(), SinkError> {
        for row in rows.iter().filter(|_| table == "pairs") {
            if let Some(p) = row["p"].as_f64() {
                self.shares.extend(key(row, "first").map(|key| (key, p)));
                self.shares.extend(key(row, "second").map(|key| (key, 1.0 - p)));
            }
        }
        // The outer run may have to stop.
        self.output.check()
    }

    fn progress(&mut self, done: usize, total: usize) {
        self.output.progress(done, total);
    }

    fn measured(&mut self, metric: &str, done: usize, total: usize) {
        self.output.measured(metric, done, total);
    }

    fn check(&mut self) -> Result<(), SinkError> {
        self.output.check()
    }
}

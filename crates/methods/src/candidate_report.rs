//! Rows and reports of methods with one score per candidate and attribute.

use probity_data::Sample;
use probity_stats::AgreementFigures;
use serde::Serialize;
use serde_json::{Value, json};

use crate::figures::{mean, number};
use crate::{Cell, Conclusion, Headline, MethodError, MethodReport, Outcomes, Run, RunScores, Signature, Table};
use crate::{cells, gold};

/// The table of all scores.
pub const SCORES: &str = "scores";

/// Scores by sample and candidate.
pub type Scores = [Vec<Option<f64>>];

/// A row of the table of scores.
#[derive(Serialize)]
struct CandidateRow<'a> {
    item: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    attribute: Option<&'a str>,
    candidate: &'a str,
    index: usize,
    score: Option<f64>,
    outcome: &'static str,
}

/// Writes the scores of an attribute, from row `first` of the table on. `missing` is the outcome of a candidate without
/// a score. Returns the number of rows.
pub fn write_scores(
    samples: &[Sample],
    attribute: Option<&str>,
    scores: &Scores,
    first: usize,
    missing: &'static str,
    run: &mut Run<'_>,
) -> Result<usize, MethodError> {
    let mut written = 0;
    for (sample, scores) in samples.iter().zip(scores) {
        for (index, (candidate, score)) in sample.candidates.iter().zip(scores).enumerate() {
            let (item, candidate, score) = (&*sample.id, &*candidate.id, *score);
            let outcome = if score.is_some() { "scored" } else { missing };
            let row = CandidateRow { item, attribute, candidate, index, score, outcome };
            run.row(SCORES, first + written, &row)?;
            written += 1;
        }
    }
    Ok(written)
}

/// Figures of the scores of one attribute.
#[derive(Debug, Clone, Serialize)]
pub struct ScoreFigures {
    /// The number of candidates.
    pub candidates: usize,
    /// The number of scores.
    pub scored: usize,
    /// `None` without scores, like `min` and `max`.
    pub mean: Option<f64>,
    min: Option<f64>,
    max: Option<f64>,
}

impl ScoreFigures {
    /// The columns of [`Self::cells`].
    pub const COLUMNS: [&str; 5] = ["attribute", "scored", "mean", "min", "max"];

    /// Counts and summarises scores.
    pub fn from_scores(scores: &Scores) -> Self {
        let known = || scores.iter().flatten().flatten().copied();
        Self {
            candidates: scores.iter().map(Vec::len).sum(),
            scored: known().count(),
            mean: mean(known()),
            min: known().reduce(f64::min),
            max: known().reduce(f64::max),
        }
    }

    /// The cells of a row.
    pub fn cells(&self, attribute: &str) -> Vec<Cell> {
        let scored = format!("{} of {}", self.scored, self.candidates);
        cells![attribute, scored, number(self.mean), number(self.min), number(self.max)].into()
    }
}

/// Tables, figures and conclusions of candidates' scores, filled attribute by attribute.
pub struct CandidateReport<'a> {
    samples: &'a [Sample],
    /// The table of scores, with a row for each attribute from the caller.
    pub scores: Table,
    gold: Table,
    systems: Table,
    figures: Vec<Value>,
    against: Vec<Value>,
    /// The agreement with each gold.
    pub agreement: Vec<Headline>,
    means: Vec<Headline>,
    /// A conclusion for each attribute, or for each attribute with gold if prompts name none.
    pub verdict: Vec<Conclusion>,
    /// The scores of all attributes.
    pub of_run: RunScores,
}

impl<'a> CandidateReport<'a> {
    /// An empty report. `unit` is the kind of score, for the heads of `scores` and of the table of systems; `within` is
    /// [`RunScores::within`].
    pub fn new(samples: &'a [Sample], scores: Table, unit: &str, within: Option<[f64; 2]>) -> Self {
        Self {
            samples,
            scores,
            gold: gold::table(),
            systems: gold::systems_table(unit),
            figures: Vec::new(),
            against: Vec::new(),
            agreement: Vec::new(),
            means: Vec::new(),
            verdict: Vec::new(),
            of_run: RunScores::new(within),
        }
    }

    /// Adds the scores of an attribute, which tables call `name`, and their agreement with the gold of `compared`: its
    /// own, or that of several attributes if prompts name none. `values` are its figures for `summary.json`. `conclude`
    /// receives the attribute with its agreement, once for each in `compared`, or once the name without agreement.
    pub fn add<'n>(
        &mut self,
        (name, attribute): (&str, Option<&str>),
        scores: Vec<Vec<Option<f64>>>,
        values: Value,
        compared: impl IntoIterator<Item = &'n str>,
        conclude: impl Fn(&str, Option<&AgreementFigures>, &Scores) -> Conclusion,
    ) {
        self.means.push(Headline::new("mean", attribute, mean(scores.iter().flatten().flatten().copied())));
        let before = self.against.len();
        for compared in compared {
            let found = gold::against(self.samples, compared, &scores);
            gold::push(&found, compared, "", &mut self.gold);
            let spearman = found.spearman.per_context.figure.mean;
            self.agreement.push(Headline::new("Spearman", Some(compared), spearman));
            self.verdict.push(conclude(compared, Some(&found), &scores));
            self.against.push(json!({ "attribute": compared, "figures": found }));
        }
        if self.against.len() == before {
            self.verdict.push(conclude(name, None, &scores));
        }
        gold::push_systems(self.samples, name, &scores, &mut self.systems);
        self.figures.push(values);
        self.of_run.push(attribute, scores);
    }

    /// The report, with further tables after that of the scores.
    pub fn finish(
        self,
        signature: Signature,
        outcomes: Outcomes,
        further: impl IntoIterator<Item = Table>,
    ) -> MethodReport {
        let others = [self.scores].into_iter().chain(further).chain([self.gold]);
        let tables = gold::main_first(self.systems, others);
        let headline = if self.agreement.is_empty() { self.means } else { self.agreement };
        let values = json!({ "scores": self.figures, "gold": self.against });
        let (verdict, scores) = (self.verdict, self.of_run);
        MethodReport { verdict, outcomes, headline, scores, values, tables, ..MethodReport::new(signature) }
    }
}

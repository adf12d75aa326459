//! Which plots a run's tables allow, and what is said below them.

use std::collections::{BTreeMap, BTreeSet};

use probity_analysis::plot::Plot;
use probity_metrics::Direction;
use probity_stats::{Resampling, quantile};
use serde::Deserialize;

use crate::facts::{FactPairs, RunFacts};
use crate::histogram::{Histogram, range};
use crate::measures::{self, Attribute};
use crate::plot::{BEATS, Bars, Figure, Spread, boxes, draw, heat, histogram, scatter};
use crate::run::ReportedRun;
use crate::tables;
use crate::text::{counted, fixed, thousands, visible_line};

/// More systems than this make a matrix that nobody can read.
const MATRIX_LIMIT: usize = 60;
/// More candidates than this are left to the tables.
const BOXES_LIMIT: usize = 30;
/// More plots against gold than this nobody looks through.
const GOLD_LIMIT: usize = 12;
/// Bins of the histogram of scores.
const BINS: usize = 24;

/// The plots of a run, and why others are missing.
pub(crate) struct Plots {
    pub(crate) figures: Vec<Figure>,
    pub(crate) notes: Vec<String>,
}

/// `prefix` begins every id.
pub(crate) fn plots(
    prefix: &str,
    run: &ReportedRun,
    facts: &RunFacts,
    attributes: &[Attribute],
    resampling: &Resampling,
) -> Plots {
    let mut plots = Plots { figures: described(prefix, run), notes: Vec::new() };
    for (number, pairs) in &facts.pairs {
        let name = facts.attributes.text(*number);
        let id = |what: &str| format!("{prefix}-{what}-{number}");
        plots.figures.push(preferences(id("p"), name, pairs));
        plots.figures.extend(order_gap(id("gap"), name, pairs));
        match matrix(id("matrix"), name, facts, pairs) {
            Ok(figure) => plots.figures.push(figure),
            Err(why) => {
                let named = if name.is_empty() { String::new() } else { format!(" for {}", visible_line(name)) };
                plots.notes.push(format!("No comparison matrix{named}: {why}"));
            }
        }
    }
    let (mut drawn, mut left_out) = (0, 0);
    // Parts of what metrics tell are left to the tables.
    for (number, attribute) in attributes.iter().filter(|attribute| !attribute.is_part()).enumerate() {
        let id = |what: &str| format!("{prefix}-{what}-{number}");
        match against_gold(id("gold"), attribute, resampling) {
            Some(figure) if drawn < GOLD_LIMIT => {
                plots.figures.push(figure);
                drawn += 1;
            }
            Some(_) => left_out += 1,
            None => {}
        }
        if attribute.is_agreement {
            continue;
        }
        plots.figures.extend(score_histogram(id("scores"), run, attribute));
        plots.figures.extend(by_candidate(id("systems"), facts, attribute));
    }
    if left_out > 0 {
        let why = "the tables have what they would show";
        plots.notes.push(format!(
            "{} against gold {} left out: {why}.",
            counted(left_out, "more plot"),
            if left_out == 1 { "is" } else { "are" }
        ));
    }
    if facts.mass.total > 0 {
        plots.figures.push(mass(format!("{prefix}-mass"), &facts.mass));
    }
    // Ids name files: one that a summary took for its own is not drawn twice.
    let mut seen = BTreeSet::new();
    plots.figures.retain(|figure| seen.insert(figure.id.clone()));
    plots
}

fn of(attribute: &str) -> String {
    if attribute.is_empty() { String::new() } else { format!(", {}", visible_line(attribute)) }
}

/// The plots that the method describes, beside the tables of its summary.
fn described(prefix: &str, run: &ReportedRun) -> Vec<Figure> {
    let sections = run.summary["sections"].as_array().into_iter().flatten();
    let plots = sections.filter_map(|section| section["plots"].as_array()).flatten();
    plots.filter_map(|plot| draw(&Plot::deserialize(plot).ok()?, prefix)).collect()
}

fn percent(share: f64) -> String {
    format!("{}%", fixed(share * 100.0, 1))
}

fn preferences(id: String, attribute: &str, pairs: &FactPairs) -> Figure {
    let n = pairs.p.total;
    let caption = format!(
        "Each comparison's p, the normalised probability that the candidate shown first is better. Far from 0.5 the \
         model is sure; a heap on one side is a \
         preference for a place. The first place wins {} of n = {}.",
        percent(pairs.first_wins / n.max(1) as f64),
        counted(n, "comparison")
    );
    let title = format!("Verdicts{}", of(attribute));
    let words = Bars { id, title, caption, x: "p, the first is better", y: "comparisons", reference: Some(0.5) };
    histogram(&pairs.p, words)
}

fn order_gap(id: String, attribute: &str, pairs: &FactPairs) -> Option<Figure> {
    let mean = pairs.gaps.mean()?;
    let caption = format!(
        "|p(i,j) − (1 − p(j,i))| over pairs that were judged in both orders: 0 for a judge that ignores the order, 1 \
         for one that sees nothing else. Mean {} \
         over n = {}.",
        fixed(mean, 3),
        counted(pairs.gaps.total, "pair")
    );
    let words = Bars {
        id,
        title: format!("Order gap{}", of(attribute)),
        caption,
        x: "order gap of a pair",
        y: "pairs",
        reference: None,
    };
    Some(histogram(&pairs.gaps, words))
}

fn mass(id: String, mass: &Histogram) -> Figure {
    let caption = format!(
        "Probability that the model gives to all offered labels together, under its full vocabulary. Near 1 the model \
         wanted to answer so; near 0 it wanted to \
         say something else. Mean {} over n = {}.",
        fixed(mass.mean().unwrap_or(0.0), 3),
        counted(mass.total, "answer")
    );
    histogram(
        mass,
        Bars { id, title: "Label mass".into(), caption, x: "mass of the labels", y: "answers", reference: None },
    )
}

/// Why there is no comparison matrix, as the page says it.
#[derive(Debug, thiserror::Error)]
enum NoMatrix {
    #[error("{systems} candidate ids have one win rate between them, which needs no matrix.")]
    TooFew { systems: usize },
    #[error("candidate ids differ from sample to sample, so they name no systems.")]
    NoSystems,
    #[error(
        "its {cells} cells have {} comparisons each on average; from 3 on there is one. More samples or more --pairs \
         would fill it.",
        fixed(*each, 1)
    )]
    Thin { cells: usize, each: f64 },
}

/// Candidates that are systems: they recur in samples, and there are three at least.
fn matrix(id: String, attribute: &str, facts: &RunFacts, pairs: &FactPairs) -> Result<Figure, NoMatrix> {
    let mut means: BTreeMap<u32, (f64, u32)> = BTreeMap::new();
    for ((row, _), (sum, n)) in &pairs.cells {
        let mean = means.entry(*row).or_default();
        *mean = (mean.0 + sum, mean.1 + n);
    }
    let (systems, cells) = (means.len(), pairs.cells.len());
    let met: u32 = pairs.cells.values().map(|cell| cell.1).sum();
    if systems < 3 {
        return Err(NoMatrix::TooFew { systems });
    }
    let samples = facts.samples.iter().filter(|sample| sample.gaps > 0 || sample.judgements > 0).count();
    // A cell of one or two comparisons shows a place or a single text. A sample by itself has no more than two anyway.
    if samples > 1 && f64::from(met) / (cells as f64) < 3.0 {
        let occurrences: BTreeSet<(u32, u32)> =
            facts.scores.iter().map(|score| (score.candidate, score.sample)).collect();
        let occurrences: Vec<u32> = occurrences.into_iter().map(|(candidate, _)| candidate).collect();
        let recurring = occurrences.chunk_by(|a, b| a == b).filter(|samples| samples.len() > 1).count();
        return Err(if recurring * 4 < systems {
            NoMatrix::NoSystems
        } else {
            NoMatrix::Thin { cells, each: f64::from(met) / cells as f64 }
        });
    }
    let mut order: Vec<(u32, f64)> = means.into_iter().map(|(system, (sum, n))| (system, sum / f64::from(n))).collect();
    // By the scores that the run made of the comparisons, where each has one: what wins there stands first here.
    let mut scores: BTreeMap<u32, (f64, u32)> = BTreeMap::new();
    for one in facts.scores.iter().filter(|one| one.metric == 0 && facts.attributes.text(one.attribute) == attribute) {
        let mean = scores.entry(one.candidate).or_default();
        *mean = (mean.0 + one.score, mean.1 + 1);
    }
    if order.iter().all(|(system, _)| scores.contains_key(system)) {
        for (system, mean) in &mut order {
            *mean = scores[system].0 / f64::from(scores[system].1);
        }
    }
    // By name where means are equal, so that the same run gives the same bytes.
    order.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| facts.candidates.text(a.0).cmp(facts.candidates.text(b.0))));
    let left_out = order.len().saturating_sub(MATRIX_LIMIT);
    order.truncate(MATRIX_LIMIT);
    let names: Vec<&str> = order.iter().map(|(system, _)| facts.candidates.text(*system)).collect();
    let cell = |row: u32, column: u32| pairs.cells.get(&(row, column)).map(|(sum, n)| sum / f64::from(*n));
    let values: Vec<Vec<Option<f64>>> =
        order.iter().map(|(row, _)| order.iter().map(|(column, _)| cell(*row, *column)).collect()).collect();
    let mut caption = format!(
        "Mean probability that the row's candidate beats the column's, both orders averaged, so that a preference for \
         a place cancels out; the row with the best score is on top. {} of {}.",
        counted(met / 2, "comparison"),
        counted(samples, "sample")
    );
    if left_out > 0 {
        caption = format!("{caption} The {left_out} lowest candidates are left out.");
    }
    Ok(heat(id, format!("Who beats whom{}", of(attribute)), &caption, &BEATS, &names, &values))
}

fn against_gold(id: String, attribute: &Attribute, resampling: &Resampling) -> Option<Figure> {
    let groups = attribute.with_gold();
    let points: Vec<(f64, f64)> = groups.iter().flatten().copied().collect();
    let (low, high) = range(&points.iter().map(|p| p.1).collect::<Vec<_>>())?;
    let line = measures::line(&groups, low, high, resampling);
    let measure = attribute.measures.get(&measures::Of::Spearman);
    let per_context = measure.and_then(measures::Measure::value).map_or_else(
        || "not defined".to_owned(),
        |rho| format!("{} over {}", fixed(rho, 3), counted(measure.map_or(0, |m| m.units.len()), "context")),
    );
    let pooled = attribute.pooled.figure.coefficient.map_or_else(|| "not defined".to_owned(), |rho| fixed(rho, 3));
    let mut caption = format!(
        "Each point is a candidate: its gold score and what {} gave it. Spearman per context, averaged: {per_context}; \
         pooled over all n = {}: {pooled}.",
        visible_line(if attribute.metric.is_empty() { "the judge" } else { &attribute.metric }),
        thousands(points.len() as u64)
    );
    if line.as_ref().is_some_and(|line| !line.band.is_empty()) {
        caption = format!(
            "{caption} The line is least squares; the band is the {}% interval of each of its points, by the \
             jackknife over samples.",
            tables::confidence(resampling)
        );
    }
    if attribute.direction == Direction::LowerIsBetter {
        caption += " Lower is better: a correlation is positive where lower scores go with higher gold.";
    }
    if points.len() > crate::plot::POINTS_DRAWN {
        caption += " Points are thinned evenly.";
    }
    scatter(
        id,
        format!("Against gold{}", of(&attribute.name)),
        caption,
        ("gold score", "score"),
        &points,
        line.as_ref(),
    )
}

fn score_histogram(id: String, run: &ReportedRun, attribute: &Attribute) -> Option<Figure> {
    let values: Vec<f64> = attribute.scores.iter().map(|s| s.score).collect();
    let bins = Histogram::of(&values, BINS)?;
    let caption = format!(
        "Scores that {} gave to n = {} of {}; mean {}.",
        visible_line(if attribute.metric.is_empty() { run.method() } else { &attribute.metric }),
        counted(values.len(), "candidate"),
        counted(attribute.scores.chunk_by(|a, b| a.sample == b.sample).count(), "sample"),
        fixed(bins.mean().unwrap_or(0.0), 3)
    );
    let words = Bars {
        id,
        title: format!("Scores{}", of(&attribute.name)),
        caption,
        x: "score",
        y: "candidates",
        reference: None,
    };
    Some(histogram(&bins, words))
}

/// Candidates whose ids recur, the best mean first.
fn by_candidate(id: String, facts: &RunFacts, attribute: &Attribute) -> Option<Figure> {
    let mut by_candidate: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for score in &attribute.scores {
        by_candidate.entry(score.candidate).or_default().push(score.score);
    }
    by_candidate.retain(|_, scores| scores.len() > 1);
    // Where there are but two in comparisons, their ids are places in a sample, as the matrix says.
    let least = if facts.pairs.is_empty() { 2 } else { 3 };
    if by_candidate.len() < least || by_candidate.len() > BOXES_LIMIT {
        return None;
    }
    let mut spreads: Vec<Spread> =
        by_candidate.into_iter().map(|(number, scores)| spread(facts.candidates.text(number), scores)).collect();
    let mean = |spread: &Spread| attribute.direction.upwards(spread.mean);
    spreads.sort_by(|a, b| mean(b).total_cmp(&mean(a)).then_with(|| a.name.cmp(&b.name)));
    let best = match attribute.direction {
        Direction::HigherIsBetter => "the best mean is on top",
        Direction::LowerIsBetter => "the best mean, which is the lowest, is on top",
    };
    let caption = format!(
        "Boxes hold the middle half of a candidate id's scores, whiskers 90% of them; the bar is the median, the dot \
         the mean; {best}."
    );
    Some(boxes(id, format!("Scores by candidate{}", of(&attribute.name)), caption, "score", &spreads))
}

fn spread(name: &str, mut scores: Vec<f64>) -> Spread {
    let mean = scores.iter().sum::<f64>() / scores.len() as f64;
    scores.sort_by(f64::total_cmp);
    let quantiles = [0.05, 0.25, 0.5, 0.75, 0.95].map(|share| quantile(&scores, share).unwrap_or(mean));
    Spread { name: name.to_owned(), quantiles, mean, n: scores.len() }
}

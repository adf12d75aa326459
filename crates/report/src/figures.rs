//! Selects the plots for a run's tables and writes their captions.

use std::collections::{BTreeMap, BTreeSet};

use probity_analysis::measures::{FittedLine, MeasureKind};
use probity_analysis::plot::Plot;
use probity_metrics::Direction;
use probity_stats::{Resampling, quantile};
use serde::Deserialize;

use crate::attributes::Attribute;
use crate::facts::{FactPairs, RunFacts};
use crate::histogram::{Histogram, range};
use crate::plot::{BEATS, Bars, Figure, Spread, boxes, draw, heat, histogram, scatter};
use crate::run::ReportedRun;
use crate::tables;
use crate::text::{counted, fixed, thousands, visible_line};

/// Maximum number of systems in a matrix.
const MATRIX_LIMIT: usize = 60;
/// Maximum number of candidates in a box plot.
const BOXES_LIMIT: usize = 30;
/// Maximum number of plots against gold.
const GOLD_LIMIT: usize = 12;
/// Number of bins in the histogram of scores.
const BINS: usize = 24;

/// Plots of a run, and notes on missing ones.
pub(crate) struct Plots {
    pub(crate) figures: Vec<Figure>,
    pub(crate) notes: Vec<String>,
}

/// All plots of a run. Ids start with `prefix`.
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
    // Secondary values of metrics are only in the tables.
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
        // Shares of wins have a mean of 0.5, whatever the judge says.
        if facts.pairs.is_empty() {
            plots.figures.extend(score_histogram(id("scores"), run, attribute));
        }
        plots.figures.extend(by_candidate(id("systems"), facts, attribute));
    }
    if left_out > 0 {
        let why = "the tables have the figures";
        plots.notes.push(format!(
            "{} against gold {} omitted: {why}.",
            counted(left_out, "more plot"),
            if left_out == 1 { "is" } else { "are" }
        ));
    }
    if facts.mass.total > 0 {
        plots.figures.push(mass(format!("{prefix}-mass"), &facts.mass));
    }
    // Ids become file names, so a duplicate id from a modified summary is dropped.
    let mut seen = BTreeSet::new();
    plots.figures.retain(|figure| seen.insert(figure.id.clone()));
    plots
}

fn attribute_suffix(attribute: &str) -> String {
    if attribute.is_empty() { String::new() } else { format!(", {}", visible_line(attribute)) }
}

/// Plots in the summary that the method describes.
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
        "p of each comparison: the normalised probability that the candidate shown first is better. Values far from \
         0.5 are confident; a majority on one side suggests position bias. The first position wins {} of n = {}.",
        percent(pairs.first_wins / n.max(1) as f64),
        counted(n, "comparison")
    );
    let first = percent(pairs.first_wins / n.max(1) as f64);
    let title = format!("Position bias{}: the first text wins {first}", attribute_suffix(attribute));
    let words = Bars { id, title, caption, x: "p(first is better)", y: "comparisons", reference: Some(0.5) };
    histogram(&pairs.p, words)
}

fn order_gap(id: String, attribute: &str, pairs: &FactPairs) -> Option<Figure> {
    let mean = pairs.gaps.mean()?;
    let caption = format!(
        "|p(i,j) − (1 − p(j,i))| over pairs judged in both orders: 0 if the judge ignores the order, 1 if only the \
         order matters. Mean {} over n = {}.",
        fixed(mean, 3),
        counted(pairs.gaps.total, "pair")
    );
    let words = Bars {
        id,
        title: format!(
            "Order gap{}: swapping the texts changes p by {} on average",
            attribute_suffix(attribute),
            fixed(mean, 3)
        ),
        caption,
        x: "order gap of a pair",
        y: "pairs",
        reference: None,
    };
    Some(histogram(&pairs.gaps, words))
}

fn mass(id: String, mass: &Histogram) -> Figure {
    let caption = format!(
        "Total probability of all labels under the full vocabulary. Near 1, the model answers with a label; near 0, \
         it would answer something else. Mean {} over n = {}.",
        fixed(mass.mean().unwrap_or(0.0), 3),
        counted(mass.total, "answer")
    );
    histogram(
        mass,
        Bars {
            id,
            title: format!("Label mass: {} on average", fixed(mass.mean().unwrap_or(0.0), 3)),
            caption,
            x: "label mass",
            y: "answers",
            reference: None,
        },
    )
}

/// Why there is no comparison matrix, as shown in the page.
#[derive(Debug, thiserror::Error)]
enum NoMatrix {
    #[error("with {systems} candidate ids there is only one win rate.")]
    TooFew { systems: usize },
    #[error("candidate ids differ between samples, so they name no systems.")]
    NoSystems,
    #[error(
        "its {cells} cells have {} comparisons each on average, and 3 are required. Use more samples or more --pairs.",
        fixed(*each, 1)
    )]
    Thin { cells: usize, each: f64 },
}

/// Matrix of win probabilities. It needs three recurring candidates or more.
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
    // Cells with one or two comparisons show position bias or a single text. In a single sample there are no more
    // anyway.
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
    // Ordered by the run's scores if all systems have one, so that the order matches its tables.
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
    // Equal means are sorted by name, so that output is deterministic.
    order.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| facts.candidates.text(a.0).cmp(facts.candidates.text(b.0))));
    let left_out = order.len().saturating_sub(MATRIX_LIMIT);
    order.truncate(MATRIX_LIMIT);
    let names: Vec<&str> = order.iter().map(|(system, _)| facts.candidates.text(*system)).collect();
    let cell = |row: u32, column: u32| pairs.cells.get(&(row, column)).map(|(sum, n)| sum / f64::from(*n));
    let values: Vec<Vec<Option<f64>>> =
        order.iter().map(|(row, _)| order.iter().map(|(column, _)| cell(*row, *column)).collect()).collect();
    let mut caption = format!(
        "Mean probability that the row's candidate beats the column's, averaged over both orders to cancel position \
         bias. The best row is on top. {} of {}.",
        counted(met / 2, "comparison"),
        counted(samples, "sample")
    );
    if left_out > 0 {
        caption = format!("{caption} The {left_out} lowest candidates are omitted.");
    }
    let title = format!("Wins{}: {} is first", attribute_suffix(attribute), visible_line(names[0]));
    Ok(heat(id, title, &caption, &BEATS, &names, &values))
}

fn against_gold(id: String, attribute: &Attribute, resampling: &Resampling) -> Option<Figure> {
    let groups = attribute.with_gold();
    let points: Vec<(f64, f64)> = groups.iter().flatten().copied().collect();
    let ends = range(&points.iter().map(|p| p.1).collect::<Vec<_>>())?;
    let line = FittedLine::fit(&groups, ends, resampling.confidence);
    let per_context = attribute.found.by_kind.get(&MeasureKind::Spearman).map_or_else(
        || "undefined".to_owned(),
        |measure| format!("{} over {}", fixed(measure.value(), 3), counted(measure.samples(), "context")),
    );
    let pooled = attribute.found.pooled.figure.coefficient.map_or_else(|| "undefined".to_owned(), |rho| fixed(rho, 3));
    let mut caption = format!(
        "Each point is a candidate with its gold score and its score by {}. Mean Spearman per context: {per_context}; \
         pooled over all n = {}: {pooled}.",
        visible_line(if attribute.metric.is_empty() { "the judge" } else { &attribute.metric }),
        thousands(points.len() as u64)
    );
    if line.as_ref().is_some_and(|line| !line.band.is_empty()) {
        caption = format!(
            "{caption} The line is a least squares fit; the band is its pointwise {}% interval, by the jackknife over \
             samples.",
            tables::confidence(resampling)
        );
    }
    if attribute.direction == Direction::LowerIsBetter {
        caption += " Lower scores are better: the correlation is positive if lower scores go with higher gold.";
    }
    if points.len() > crate::plot::POINTS_DRAWN {
        caption += " Only an even selection of points is drawn.";
    }
    scatter(
        id,
        format!("Agreement with gold{}: Spearman per context {}", attribute_suffix(&attribute.name), per_context),
        caption,
        ("gold score", "score"),
        &points,
        line.as_ref(),
    )
}

fn score_histogram(id: String, run: &ReportedRun, attribute: &Attribute) -> Option<Figure> {
    let values: Vec<f64> = attribute.scores.iter().map(|s| s.score).collect();
    let bins = Histogram::from_values(&values, BINS)?;
    let caption = format!(
        "Scores by {} of n = {} in {}; mean {}.",
        visible_line(if attribute.metric.is_empty() { run.method() } else { &attribute.metric }),
        counted(values.len(), "candidate"),
        counted(attribute.scores.chunk_by(|a, b| a.sample == b.sample).count(), "sample"),
        fixed(bins.mean().unwrap_or(0.0), 3)
    );
    let words = Bars {
        id,
        title: format!("Scores{}: mean {}", attribute_suffix(&attribute.name), fixed(bins.mean().unwrap_or(0.0), 3)),
        caption,
        x: "score",
        y: "candidates",
        reference: None,
    };
    Some(histogram(&bins, words))
}

/// Scores of recurring candidates, best mean first.
fn by_candidate(id: String, facts: &RunFacts, attribute: &Attribute) -> Option<Figure> {
    let mut by_candidate: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for score in &attribute.scores {
        by_candidate.entry(score.candidate).or_default().push(score.score);
    }
    by_candidate.retain(|_, scores| scores.len() > 1);
    // Two ids in comparisons are taken for positions in a sample, as in the matrix.
    let least = if facts.pairs.is_empty() { 2 } else { 3 };
    if by_candidate.len() < least || by_candidate.len() > BOXES_LIMIT {
        return None;
    }
    let mut spreads: Vec<Spread> =
        by_candidate.into_iter().map(|(number, scores)| spread(facts.candidates.text(number), scores)).collect();
    let mean = |spread: &Spread| attribute.direction.upwards(spread.mean);
    spreads.sort_by(|a, b| mean(b).total_cmp(&mean(a)).then_with(|| a.name.cmp(&b.name)));
    let best = match attribute.direction {
        Direction::HigherIsBetter => "The best mean is on top",
        Direction::LowerIsBetter => "The best (lowest) mean is on top",
    };
    let caption = format!(
        "Boxes show the middle 50% of a candidate id's scores, and whiskers 90%. The bar is the median, the dot the \
         mean. {best}."
    );
    let title = format!(
        "Scores by candidate{}: {} has the best mean",
        attribute_suffix(&attribute.name),
        visible_line(&spreads[0].name)
    );
    Some(boxes(id, title, caption, "score", &spreads))
}

fn spread(name: &str, mut scores: Vec<f64>) -> Spread {
    let mean = scores.iter().sum::<f64>() / scores.len() as f64;
    scores.sort_by(f64::total_cmp);
    let quantiles = [0.05, 0.25, 0.5, 0.75, 0.95].map(|share| quantile(&scores, share).unwrap_or(mean));
    Spread { name: name.to_owned(), quantiles, mean, n: scores.len() }
}

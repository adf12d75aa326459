//! The tables of a study.

use probity_analysis::plot::{Drawing, LineAxis, Plot, Point, SERIES, Series};

use super::cascade::CascadeResults;
use super::evaluators::AnswerAccuracy;
use super::report::{EvaluatorFigures, PartFigure, SystemFigures};
use crate::figures::{TokenTally, bounds, decimals, estimate, number};
use crate::{Cell, Table, cells};

pub(super) fn alignment_table(figures: &[EvaluatorFigures], guess: Option<f64>) -> Table {
    let columns = [
        "by", "pairs", "accuracy", "V", "κ", "ties", "calibrated", "95% interval", "κ calibrated", "95% interval of κ",
    ];
    let mut table = Table::new("Agreement with people", columns);
    for one in figures {
        let (as_is, calibrated) = (&one.as_is, &one.calibrated);
        table.push(cells![
            &one.by,
            as_is.pairs,
            number(as_is.accuracy.figure.value),
            number(as_is.cramers_v.figure.value),
            number(as_is.kappa.figure.value),
            number(as_is.ties),
            number(calibrated.accuracy.figure.value),
            bounds(calibrated.accuracy.interval),
            number(calibrated.kappa.figure.value),
            bounds(calibrated.kappa.interval),
        ]);
    }
    table.note(format!("The majority verdict would be right on {}.", number(guess)));
    table.note(
        "Accuracy: share of equal verdicts, ties included. Calibrated: differences below a threshold are ties; the \
         threshold is fitted on other pairs (cross-validation). Intervals are from the jackknife over paragraphs.",
    );
    table
}

pub(super) fn part_table<'f>(
    title: &str,
    of: &str,
    figures: &'f [EvaluatorFigures],
    parts: impl Fn(&'f EvaluatorFigures) -> &'f Vec<PartFigure>,
) -> Option<Table> {
    let first = parts(figures.first()?);
    if first.is_empty() {
        return None;
    }
    // Some evaluators may have omitted pairs.
    let most = |place: usize| figures.iter().map(|one| parts(one)[place].pairs).max().unwrap_or(0);
    let names = first.iter().enumerate().map(|(place, part)| format!("{} ({})", part.part, most(place)));
    let columns = std::iter::once("by".to_owned()).chain(names);
    let mut table = Table::new(title, columns);
    for one in figures {
        let cells = parts(one).iter().map(|part| estimate(part.accuracy, part.interval));
        table.push(cells![&one.by].into_iter().chain(cells));
    }
    let several = if of == "category" {
        "A pair may have several categories."
    } else {
        "Easy: only one revision follows the instruction; medium: both do, one is acceptable; hard: both are \
         acceptable, one is preferred. Pairs without a human preference or without these answers are in none."
    };
    table.note(format!("Accuracy by {of} from unchanged scores, with the number of pairs. {several}"));
    table.plots.extend(part_plot(of, figures, parts));
    Some(table)
}

/// The accuracy of the best measures, part by part (the paper's Figures 5 and 6); `None` for a single part.
fn part_plot<'f>(
    of: &str,
    figures: &'f [EvaluatorFigures],
    parts: impl Fn(&'f EvaluatorFigures) -> &'f Vec<PartFigure>,
) -> Option<Plot> {
    let kappa = |one: &'f EvaluatorFigures| Some((one, one.calibrated.kappa.figure.value?));
    let mut best: Vec<(&EvaluatorFigures, f64)> = figures.iter().filter_map(kappa).collect();
    // A stable sort keeps the order of equal κ.
    best.sort_by(|a, b| b.1.total_cmp(&a.1));
    best.truncate(SERIES);
    let name = |part: &PartFigure| format!("{} ({})", part.part.replace('_', " "), part.pairs);
    let names: Vec<String> = parts(best.first()?.0).iter().map(name).collect();
    if names.len() < 2 {
        return None;
    }
    let point = |(place, part): (usize, &PartFigure)| Some(Point { x: place as f64, y: part.accuracy?, band: None });
    let series = best.iter().map(|(one, _)| Series {
        name: one.by.clone(),
        points: parts(one).iter().enumerate().filter_map(point).collect(),
    });
    let of_pairs = if of == "category" { "category of revision" } else { of };
    Some(Plot {
        id: format!("by-{of}"),
        title: format!("Agreement with people by {of_pairs}"),
        caption: format!(
            "Agreement with people by {of_pairs}, for the measures with the highest κ; the number of pairs in \
             brackets. Intervals are in the table."
        ),
        drawing: Drawing::Lines { x: LineAxis::Names(names), y: "accuracy".to_owned(), series: series.collect() },
    })
}

pub(super) fn answers_table(all: &[AnswerAccuracy]) -> Table {
    let mut table = Table::new("Answers to single questions", ["by", "question", "answers", "accuracy", "majority"]);
    for one in all {
        table.push(cells![&one.by, one.question, one.answers, number(one.accuracy), number(one.majority)]);
    }
    table.note(
        "Related, strictly: three answers; related at all: two. For categories, both and none count as the same \
         answer, a tie.",
    );
    table
}

pub(super) fn systems_table(all: &[SystemFigures]) -> Table {
    let names =
        all.last().map(|one| one.means.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>()).unwrap_or_default();
    let columns = ["system", "texts", "preferred"].map(str::to_owned).into_iter().chain(names.iter().cloned());
    let mut table = Table::new("Systems", columns);
    for one in all {
        let of = |name: &String| one.means.iter().find(|(known, _)| known == name).and_then(|(_, mean)| *mean);
        let cells = cells![&one.system, one.texts, number(one.preferred)];
        table.push(cells.into_iter().chain(names.iter().map(|name| number(of(name)))));
    }
    table.note("Mean unchanged scores. A measure that is best for the copy rewards changing nothing.");
    table
}

pub(super) fn hybrid_table(hybrid: &CascadeResults, folds: usize) -> Table {
    let columns = [
        "step",
        "asked",
        "decides",
        "threshold",
        "requests per pair",
        "tokens in per pair",
        "tokens out per \
                                                                                                        pair",
    ];
    let mut table = Table::new("Hybrid", columns);
    for step in &hybrid.steps {
        let mut found: Vec<f64> = step.thresholds.iter().flatten().copied().collect();
        found.sort_by(f64::total_cmp);
        let threshold = match (found.first(), found.last()) {
            (Some(low), Some(high)) if low == high => number(Some(*low)),
            (Some(low), Some(high)) => Cell::Bounds { low: *low, high: *high },
            _ => Cell::from("decides nothing"),
        };
        table.push(cells![
            &step.by,
            number(Some(step.asked)),
            number(Some(step.decided)),
            threshold,
            decimals(Some(step.requests), 2),
            decimals(Some(step.tokens_in), 1),
            decimals(Some(step.tokens_out), 1),
        ]);
    }
    table.note(format!(
        "A step decides if its margin exceeds its threshold, else the next step follows; a pair that no step decides \
         is a tie. Thresholds are fitted outside each of {folds} folds, never on the tested pairs.",
    ));
    table
}

pub(super) fn cost_table(figures: &[EvaluatorFigures], pairs: usize) -> Table {
    let mut table = Table::new("Cost per pair", ["by", "requests", "tokens in", "tokens out"]);
    let each = |count: usize| decimals(Some(count as f64 / pairs.max(1) as f64), 1);
    for one in figures.iter().filter(|one| one.cost.requests > 0) {
        let TokenTally { requests, tokens_in, tokens_out } = one.cost;
        table.push(cells![&one.by, each(requests), each(tokens_in), each(tokens_out)]);
    }
    table.note(
        "Without prefix sharing, for the questions used; for the hybrid, steps weighted by how often they are \
                reached. Seconds by stage are in the manifest (`stages`).",
    );
    table
}

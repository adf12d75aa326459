//! Tables of the evaluation.

use std::collections::{BTreeMap, BTreeSet};

use probity_lm::text::{counted, thousands};
use probity_stats::{Correlation, CorrelationFigures, Interval, Measured, NoInterval, Resampling, TieCalibration};

use super::evaluate::{EvaluatedMetric, Evaluation, LevelFigures, is_part};
use crate::cells;
use crate::figures::{estimate, lower_is_better, number, p_value};
use crate::table::{Cell, Table};
use crate::trust::trust_tables;

/// Number of metrics per attribute in the first table.
const SHOWN_METRICS: usize = 5;

/// Number of differences in their table without `--details`.
const SHOWN_DIFFERENCES: usize = 10;

/// All tables with rows. `details`: whether one table lists all differences between metrics.
pub(crate) fn tables(evaluation: &Evaluation, resampling: &Resampling, details: bool, keeps_rows: bool) -> Vec<Table> {
    let mut tables = vec![
        best(evaluation),
        level("Correlation per context", evaluation, per_context),
        level("Correlation between systems", evaluation, system),
        level("Correlation over all scores", evaluation, pooled),
        pairs(evaluation),
        averages(evaluation),
        preferences(evaluation),
    ];
    tables.extend(comparisons(evaluation, resampling, details));
    tables.push(counts(evaluation));
    tables[1].note(
        "Mean over contexts; constant scores where gold is not count as 0. n: contexts. p: of the mean being 0, by \
         what \
         gives the interval.",
    );
    tables[2].note(
        "Between the means of candidate ids with scores in half of the contexts, two at least; what was compared has \
         how many are left out. n: systems. p is of Pearson by what gives the interval; of ranks, which have none, it \
         is \
         over systems, and does not know over how few contexts their means are: over few systems Spearman's, by \
         Student's t, says too much (0.000 of four in one order), and Kendall's is exact.",
    );
    tables[3].note("n: scores. p: by what gives the interval, over whole contexts.");
    tables[4].note(
        "Accuracy: pairs whose gold differs, a tie of scores half. With ties: gold's ties are to be ties too, mean \
         over contexts; scores that differ by ε or less are taken for equal, at the best ε (Deutsch et al. 2023). All \
         pairs: across contexts.",
    );
    tables.retain(|table| !table.rows.is_empty());
    // These tables come before the last one; one of them may only report why there is no guarantee.
    let last = tables.len().saturating_sub(1);
    for table in &mut tables {
        table.is_main = SHOWN.contains(&table.title.as_str());
    }
    tables.splice(last..last, trust_tables(&evaluation.trust, keeps_rows));
    // The first table differs: without items with several candidates, there is no table per context.
    if let Some(first) = tables.first_mut()
        && !evaluation.lower_is_better.is_empty()
    {
        first.note(lower_is_better(&evaluation.lower_is_better));
    }
    // Notes about omitted rows are shown with the first table.
    if let Some(first) = tables.first_mut() {
        first.notes.extend(evaluation.notes.iter().cloned());
    }
    if let Some(last) = tables.last_mut() {
        last.notes.extend(interval_note(evaluation, resampling));
    }
    tables
}

/// Title of the table for `--average`.
const AVERAGES: &str = "Average over attributes";
/// Titles of the tables that are shown without `--details`.
const SHOWN: [&str; 4] = ["Agreement with people", "Preferences", AVERAGES, "Differences between metrics"];

/// The best metrics for each attribute, without secondary values of metrics.
fn best(evaluation: &Evaluation) -> Table {
    let mut table =
        Table::new(SHOWN[0], ["attribute", "metric", "n", "Spearman", "p", "right on pairs", "between systems"]);
    let names: BTreeSet<&str> = evaluation.metrics.iter().map(|one| one.metric.as_str()).collect();
    let attributes: BTreeSet<&str> = evaluation.metrics.iter().map(|one| one.attribute.as_str()).collect();
    let mut hidden = 0;
    for attribute in attributes {
        let shown = |one: &&EvaluatedMetric| one.attribute == attribute && !is_part(&one.metric, &names);
        let mut ranked: Vec<(&EvaluatedMetric, (ShownFigure, usize))> = evaluation
            .metrics
            .iter()
            .filter(shown)
            .filter_map(|one| {
                let found = per_context(one, Correlation::Spearman).or_else(|| pooled(one, Correlation::Spearman))?;
                Some((one, found))
            })
            .collect();
        let value =
            |(_, ((value, ..), _)): &(&EvaluatedMetric, (ShownFigure, usize))| value.unwrap_or(f64::NEG_INFINITY);
        ranked.sort_by(|a, b| value(b).total_cmp(&value(a)).then_with(|| a.0.metric.cmp(&b.0.metric)));
        hidden += ranked.len().saturating_sub(SHOWN_METRICS);
        for (one, ((value, interval, p), n)) in ranked.into_iter().take(SHOWN_METRICS) {
            let system = one.figures.spearman.system.and_then(|system| system.figure.coefficient);
            let numbers =
                [estimate(value, interval), p_value(p), number(one.figures.pairwise.accuracy), number(system)];
            table.push(cells![attribute, &one.metric, n].into_iter().chain(numbers));
        }
    }
    table.note("Spearman: mean over contexts (n), or over all scores (n) where no item has several candidates.");
    if hidden > 0 {
        table.note(format!(
            "The best {SHOWN_METRICS} of each attribute; {hidden} further lines are in the other tables."
        ));
    }
    table
}

/// Note that explains brackets, by the kinds of intervals in the tables; `None` without intervals.
fn interval_note(evaluation: &Evaluation, resampling: &Resampling) -> Option<String> {
    let correlations = || {
        let all = |one: &EvaluatedMetric| Correlation::ALL.map(|of| *one.figures.correlation(of));
        evaluation.metrics.iter().flat_map(all)
    };
    let means = |of_verdicts: bool| {
        correlations().any(|one| one.per_context.interval.is_some() && one.of_verdicts == of_verdicts)
    };
    let other_levels = correlations()
        .any(|one| one.pooled.interval.is_some() || one.system.is_some_and(|system| system.interval.is_some()));
    let mut compared = evaluation.comparisons.iter().flat_map(|one| &one.differences);
    let differences = compared.any(|one| one.paired.is_some_and(|paired| paired.interval.is_some()));
    let verdicts: Vec<&str> = [
        (means(true), "means of coefficients that are ±1 or 0 in each context (or, but for a few, at one end)"),
        (evaluation.preferences.iter().any(|one| one.interval.is_some()), "accuracy of preferences"),
    ]
    .into_iter()
    .filter_map(|(there, what)| there.then_some(what))
    .collect();
    let mut kinds = Vec::new();
    if means(false) || other_levels || differences {
        kinds.push("by the jackknife with Student's t".to_owned());
    }
    if !verdicts.is_empty() {
        kinds.push(format!("of {} by Clopper and Pearson", verdicts.join(" and ")));
    }
    let share = 100.0 * resampling.confidence;
    (!kinds.is_empty()).then(|| format!("In brackets: {share}% intervals over whole contexts, {}.", kinds.join("; ")))
}

/// Value, interval and p.
type ShownFigure = (Option<f64>, Option<Interval>, Option<f64>);

/// Figure of a correlation at a level and its n; `None` if the level is undefined.
type AtLevel = fn(&EvaluatedMetric, Correlation) -> Option<(ShownFigure, usize)>;

fn level(title: &str, evaluation: &Evaluation, of: AtLevel) -> Table {
    let mut table =
        Table::new(title, ["metric", "attribute", "n", "Pearson", "p", "Spearman", "p", "Kendall τ-b", "p"]);
    for one in &evaluation.metrics {
        let shown = Correlation::ALL.map(|correlation| of(one, correlation));
        let Some(n) = shown.iter().flatten().map(|(_, n)| *n).next() else { continue };
        let cells = shown.into_iter().flat_map(|shown| {
            let (value, interval, p) = shown.map(|(shown, _)| shown).unwrap_or_default();
            [estimate(value, interval), p_value(p)]
        });
        table.push(cells![&one.metric, &one.attribute, n].into_iter().chain(cells));
    }
    table
}

/// Notes on levels without intervals, with the reason. Metrics are named if the reason does not apply to all.
fn without_interval(metrics: &[EvaluatedMetric]) -> Vec<String> {
    let mut found: BTreeMap<(usize, NoInterval), Vec<(Correlation, String)>> = BTreeMap::new();
    for one in metrics {
        for of in Correlation::ALL {
            let CorrelationFigures { per_context, system, pooled, .. } = *one.figures.correlation(of);
            let levels = [
                per_context.no_interval.filter(|_| per_context.figure.mean.is_some()),
                system.and_then(|system| system.no_interval.filter(|_| system.figure.coefficient.is_some())),
                pooled.no_interval.filter(|_| pooled.figure.coefficient.is_some()),
            ];
            for (level, why) in levels.into_iter().enumerate().filter_map(|(level, why)| Some((level, why?))) {
                let name = format!("{}, {}", one.metric, one.attribute);
                found.entry((level, why)).or_default().push((of, name));
            }
        }
    }
    let note = |((level, why), places): ((usize, NoInterval), Vec<(Correlation, String)>)| {
        let level = ["per context", "between systems", "over all scores"][level];
        let of: Vec<&str> = Correlation::ALL
            .into_iter()
            .filter(|of| places.iter().any(|place| place.0 == *of))
            .map(Correlation::title)
            .collect();
        let of = if of.len() == Correlation::ALL.len() { String::new() } else { format!("{} ", of.join(" and ")) };
        let mut names: Vec<&str> = Vec::new();
        for (_, name) in &places {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        let whose = if names.len() == metrics.len() { String::new() } else { format!("{}: ", names.join("; ")) };
        format!("{whose}no interval of {of}{level}: {why}")
    };
    found.into_iter().map(note).collect()
}

fn per_context(one: &EvaluatedMetric, of: Correlation) -> Option<(ShownFigure, usize)> {
    let found = one.figures.correlation(of).per_context;
    let figure = found.figure;
    (figure.contexts > 0).then_some(((figure.mean, found.interval, found.p), figure.contexts))
}

fn system(one: &EvaluatedMetric, of: Correlation) -> Option<(ShownFigure, usize)> {
    let found = one.figures.correlation(of).system?;
    // Rank correlations of systems have no valid interval; their p is over systems.
    Some(((found.figure.coefficient, found.interval, found.p.or(found.figure.p)), found.figure.systems))
}

fn pooled(one: &EvaluatedMetric, of: Correlation) -> Option<(ShownFigure, usize)> {
    let CorrelationFigures { per_context, pooled: found, .. } = *one.figures.correlation(of);
    // Scores of one context are dependent; the pooled p is valid only if each score has its own context.
    let p = found.p.or(found.figure.p.filter(|_| per_context.figure.contexts == 0));
    (found.figure.n > 0).then_some(((found.figure.coefficient, found.interval, p), found.figure.n))
}

fn pairs(evaluation: &Evaluation) -> Table {
    let columns =
        ["metric", "attribute", "accuracy", "pairs", "with ties", "at best ε", "ε", "all pairs", "at best ε", "ε"];
    let mut table = Table::new("Accuracy of pairs", columns);
    for one in &evaluation.metrics {
        let pairwise = one.figures.pairwise;
        let ties = |ties: Option<TieCalibration>| {
            [ties.map(|t| t.uncalibrated), ties.map(|t| t.accuracy), ties.map(|t| t.epsilon)].map(number)
        };
        let count = pairwise.correct + pairwise.wrong + pairwise.tied;
        let heads = cells![&one.metric, &one.attribute, number(pairwise.accuracy), count];
        let ties = [one.figures.pairwise_with_ties, one.figures.pairwise_with_ties_pooled].map(ties);
        table.push(heads.into_iter().chain(ties.into_iter().flatten()));
    }
    table
}

fn averages(evaluation: &Evaluation) -> Table {
    let columns = [
        "metric", "attributes", "level", "Pearson", "Spearman", "Kendall τ-b", "accuracy of pairs",
        "with ties, at best ε",
    ];
    let mut table = Table::new(AVERAGES, columns);
    for one in &evaluation.averages {
        for name in ["per context", "systems", "all scores"] {
            let at = |levels: LevelFigures| match name {
                "per context" => levels.per_context,
                "systems" => levels.system,
                _ => levels.pooled,
            };
            let accuracy = if name == "per context" { [one.pairwise, one.pairwise_with_ties] } else { [None, None] };
            let numbers = [one.pearson, one.spearman, one.kendall].map(at).into_iter().chain(accuracy).map(number);
            let heads = cells![&one.metric, one.attributes.len(), name];
            table.push(heads.into_iter().chain(numbers));
        }
    }
    table
}

fn preferences(evaluation: &Evaluation) -> Table {
    let columns = [
        "metric", "attribute", "accuracy", "guessing", "Cohen's κ", "Cramér's V", "items", "ties in gold",
        "ties of scores", "without scores",
    ];
    let mut table = Table::new("Preferences", columns);
    for one in &evaluation.preferences {
        table.push(cells![
            &one.metric,
            one.attribute.as_ref(),
            estimate(one.accuracy, one.interval),
            number(one.chance),
            number(one.kappa),
            number(one.association.map(|a| a.cramers_v)),
            one.items,
            one.gold_ties,
            one.score_ties,
            one.without_scores,
        ]);
    }
    table.note(
        "Accuracy: the preferred candidate has the best score; a best score that k candidates share counts 1/k. \
         Guessing \
         has 1/k among k candidates. κ and V count ties as choices.",
    );
    if evaluation.preferences.iter().any(|one| evaluation.labelled_since(one).is_some()) {
        table.note("Labels count in the first line, and not here: this table is of the preferences that gold has.");
    }
    table
}

/// Table of differences. Without `details`, only the most significant ones; the full table is for the summary.
fn comparisons(evaluation: &Evaluation, resampling: &Resampling, details: bool) -> Vec<Table> {
    let (mut all, p) = differences(evaluation, resampling);
    if details || all.rows.len() <= SHOWN_DIFFERENCES {
        return vec![all];
    }
    let mut order: Vec<usize> = (0..all.rows.len()).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    let mut shown = all.clone();
    shown.rows = order.iter().take(SHOWN_DIFFERENCES).map(|row| all.rows[*row].clone()).collect();
    shown.notes.insert(
        0,
        format!(
            "The {SHOWN_DIFFERENCES} of {} differences with the smallest p. --details prints all of them, and \
             summary.json has them.",
            all.rows.len()
        ),
    );
    all.title = format!("All {}", all.title.to_lowercase());
    vec![shown, all]
}

/// All differences, and the p of each row: of its first test, or 1 without a test.
fn differences(evaluation: &Evaluation, resampling: &Resampling) -> (Table, Vec<f64>) {
    let mut by_row = Vec::new();
    let columns = [
        "metrics", "attribute", "figure", "first", "second", "difference", "t p", "randomisation p", "Williams t", "p",
    ];
    let mut table = Table::new("Differences between metrics", columns);
    for one in &evaluation.comparisons {
        for found in one.differences.iter().filter(|found| found.first.is_some() || found.second.is_some()) {
            let paired = found.paired;
            let p = paired.and_then(|d| d.p).or(found.randomisation_p).or(found.williams.map(|w| w.p));
            by_row.push(p.unwrap_or(1.0));
            let difference = found.first.zip(found.second).map(|(first, second)| first - second);
            table.push(cells![
                one.metrics.names().join(", "),
                &one.attribute,
                measured(found.measure),
                number(found.first),
                number(found.second),
                estimate(difference, paired.and_then(|d| d.interval)),
                p_value(paired.and_then(|d| d.p)),
                p_value(found.randomisation_p),
                number(found.williams.map(|w| w.t)),
                p_value(found.williams.map(|w| w.p)),
            ]);
        }
    }
    table.note(format!(
        "First less second, over candidates with both. All p two-sided. t: with the jackknife's error over contexts, \
         none where leaving out any context changes nothing, and of systems' correlations none under ten contexts. \
         Randomisation: over all swaps of contexts where these are few, else over {} that are drawn (seed {}). \
         Williams' test is for Pearson and takes scores for independent.",
        thousands(resampling.rounds),
        resampling.seed
    ));
    (table, by_row)
}

fn measured(measure: Measured) -> String {
    match measure {
        Measured::PerContext(of) => format!("{} per context", of.title()),
        Measured::System(of) => format!("{} of systems", of.title()),
        Measured::Pooled(of) => format!("{} over all scores", of.title()),
        Measured::Pairwise => "accuracy of pairs".to_owned(),
        Measured::PairwiseWithTies => "accuracy of pairs with ties, at best ε".to_owned(),
    }
}

fn counts(evaluation: &Evaluation) -> Table {
    let columns = [
        "metric", "attribute", "compared", "undefined scores", "gold without a score", "scores without gold",
        "skipped contexts", "systems left out",
    ];
    let mut table = Table::new("What was compared", columns);
    for one in &evaluation.metrics {
        let counts = one.counts;
        let numbers = [
            counts.compared,
            counts.undefined,
            counts.without_score,
            counts.without_gold,
            one.figures.spearman.per_context.figure.skipped(),
        ];
        let excluded = one.figures.spearman.system.map(|system| system.figure.excluded);
        table.push(
            cells![&one.metric, &one.attribute].into_iter().chain(numbers.map(Cell::from)).chain([excluded.into()]),
        );
        let spearman = one.figures.spearman;
        let reasons = [spearman.pooled.figure.undefined, spearman.system.and_then(|system| system.figure.undefined)];
        for (level, why) in ["over all scores", "between systems"].into_iter().zip(reasons) {
            table.notes.extend(why.map(|why| format!("{}, {}: undefined {level}: {why}", one.metric, one.attribute)));
        }
        let constant = spearman.per_context.figure.constant_predictions;
        if constant > 0 {
            let contexts = spearman.per_context.figure.contexts;
            table.note(format!(
                "{}, {}: all scores are equal in {constant} of {}, which count as 0",
                one.metric,
                one.attribute,
                counted(contexts, "context")
            ));
        }
    }
    table.notes.extend(without_interval(&evaluation.metrics));
    table
}

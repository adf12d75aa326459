//! The table and plot of position bias.

use probity_analysis::plot::{BiasEstimate, Drawing, Plot};
use probity_lm::text::counted;
use probity_stats::{EXACT_SEARCH, PositionBias};

use super::super::options::{ComparativeParams, DebiasMode};
use super::{CellFigures, Search};
use crate::conclusion::percent;
use crate::figures::{Mass, number};
use crate::{Table, cells};

/// Position bias and label mass by attribute and template.
pub(in super::super) fn table(params: &ComparativeParams, cells: &[CellFigures]) -> Table {
    let columns = [
        "attribute", "template", "judged", "P(A)", "P(B)", "τ", "P(A) after", "order gap", "max", "same verdict",
        "mass", "min", "low",
    ];
    let mut table = Table::new("Position and mass", columns);
    for cell in cells {
        let heads = cells![&cell.attribute, &cell.template, cell.judged];
        let places = [cell.before.map(|b| b.p_a), cell.before.map(|b| b.p_b), cell.tau, cell.after.map(|a| a.p_a)];
        let orders = [cell.order_gap_mean, cell.order_gap_max, cell.order_agreement];
        let mass = [cell.mass.mean, cell.mass.min, cell.mass.low_share];
        table.push(heads.into_iter().chain(places.into_iter().chain(orders).chain(mass).map(number)));
    }
    notes(params, cells, &mut table);
    table.plots.extend(plot(cells));
    table
}

/// How often the first position wins, before and after debiasing.
fn plot(cells: &[CellFigures]) -> Option<Plot> {
    let row = |cell: &CellFigures| {
        let name = format!("{}, template {}", cell.attribute, cell.template);
        Some(BiasEstimate { name, before: cell.before?.p_a, after: cell.after.map(|after| after.p_a) })
    };
    let rows: Vec<BiasEstimate> = cells.iter().filter_map(row).collect();
    let comparisons: usize = cells.iter().filter_map(|cell| Some(cell.before?.comparisons)).sum();
    let furthest = rows.iter().map(|row| row.before).max_by(|a, b| (a - 0.5).abs().total_cmp(&(b - 0.5).abs()))?;
    let caption = format!(
        "An unbiased judge has 0.5 (broken line). In the row with the largest bias, the first position wins {} of the \
         comparisons as judged. The debiased threshold τ makes both positions win equally often over all rows that \
         share it. n = {}.",
        percent(furthest),
        counted(comparisons, "comparison")
    );
    let title = "Position bias, before and after".to_owned();
    Some(Plot { id: "bias".to_owned(), title, caption, drawing: Drawing::PositionBias { rows } })
}

/// Notes that interpret the figures.
fn notes(params: &ComparativeParams, cells: &[CellFigures], table: &mut Table) {
    table.note(
        "P(A), P(B): share won by the candidate shown first, second. Same verdict: share of pairs with the same winner \
         in both orders.",
    );
    table.note(
        "Order gap: mean and max of |p_ij − (1 − p_ji)| over pairs; 0 if verdicts are independent of the order, 1 if \
         they depend on it alone.",
    );
    table.note("Mass: label mass, mean and min; low: share of comparisons flagged low_mass (--min-mass).");
    tau_notes(params, cells, table);
    if cells.iter().any(|cell| !cell.symmetric) {
        table.note("Not every pair was judged in both orders: P(A) also depends on which candidates were shown first.");
    }
    for cell in cells {
        let place = format!("{}, template {}", cell.attribute, cell.template);
        if cell.order_agreement.is_some_and(|share| share < 0.5) {
            table.note(format!(
                "{place}: most verdicts change with presentation order: the model picks a position, not a text."
            ));
        }
        if let Some(Search { exact, local, largest_gap, .. }) = cell.search.as_ref().filter(|search| search.local > 0) {
            table.note(format!(
                "{place}: the ranking is exactly the most likely one for {}; for {local} with more than {EXACT_SEARCH} \
                 texts it is the best of many local searches, and no ranking is more than {largest_gap:.3} nats more \
                 likely.",
                counted(exact, "sample")
            ));
        }
        if let Some(of) = cell.search.as_ref().and_then(|search| search.conditionals) {
            let what = if of.are_informative() {
                ""
            } else {
                "; this does not distinguish better texts, so all scores are equal"
            };
            let at = cell.tau.map(|tau| format!(" at τ = {tau:.3}")).unwrap_or_default();
            table.note(format!(
                "{place}: estimated from its own decisions{at}, the judge chooses the text shown first with \
                 probability {:.3} if it is better and {:.3} if it is worse (eq. 13){what}.",
                of.said_where_better, of.said_where_worse
            ));
        } else if cell.search.as_ref().is_some_and(|search| search.assumed) {
            table.note(format!(
                "{place}: no pair was judged in both orders, so position bias cannot be estimated; decisions count as \
                 unbiased, as with --rank hard-likelihood-symmetric."
            ));
        }
        if cell.mass.low > 0 {
            let Mass { low, answers, .. } = cell.mass;
            table.note(format!("{place}: {low} of {} have low label mass.", counted(answers, "comparison")));
        }
        if let Some(after) = cell.after.filter(PositionBias::many_ties) {
            let PositionBias { ties, comparisons, .. } = after;
            table.note(format!(
                "{place}: p equals τ in {ties} of {}, which have no verdict; no threshold separates them.",
                counted(comparisons, "comparison")
            ));
        }
    }
}

/// Notes on how τ is estimated, why it is missing, and the bias that remains.
fn tau_notes(params: &ComparativeParams, cells: &[CellFigures], table: &mut Table) {
    if params.debias == DebiasMode::None {
        return;
    }
    for one in cells.iter().filter(|cell| cell.tau.is_some()).take(1) {
        let n = counted(one.tau_comparisons, "comparison");
        let each = if cells.len() > 1 && params.debias != DebiasMode::Global { " (in the first row)" } else { "" };
        table.note(format!(
            "τ: the median of p over {n}{each}, all from pairs judged in both orders; P(A) after: P(A) at τ."
        ));
    }
    if cells.iter().any(|cell| cell.tau.is_none() && cell.judged > 0) {
        let why = "no pair was judged in both orders, so position bias cannot be distinguished from better candidates \
                   being shown first";
        table.note(format!("not debiased if τ is missing: {why}; use --pairs symmetric:R."));
    }
    let off = |cell: &CellFigures| {
        cell.tau_shared && cell.symmetric && cell.after.is_some_and(|a| a.p_a != 0.5 && !a.many_ties())
    };
    if cells.iter().any(off) {
        table.note(
            "τ is shared, so P(A) after can differ from 0.5 in each row; --debias per-prompt balances each \
                    row.",
        );
    }
}

//! Samples with a preferred candidate: accuracy in each order and over both, and agreement between the orders.

use probity_data::{Preference, Sample};
use probity_lm::text::counted;
use probity_stats::{PairComparison, PairwiseAccuracy, RankMethod, comparison_accuracy};
use serde::Serialize;

use super::figures::{ComparisonCell, agreements};
use super::options::ComparativeParams;
use crate::figures::{mean, number};
use crate::{Headline, Table, cells};

/// Accuracy on samples with two candidates and a preference, for one attribute and template.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct ComparativePreferenceFigures {
    attribute: String,
    template: String,
    /// The decision threshold: 0.5 as judged, τ debiased.
    threshold: f64,
    debiased: bool,
    /// Samples with a preference.
    items: usize,
    /// Omitted samples: no preference between the two, or more than two candidates.
    preferred_none: usize,
    not_a_pair: usize,
    /// Pairs with a verdict in at least one order, and those without (empty, too long …).
    judged: usize,
    not_judged: usize,
    /// The candidate that is first in the file is shown first.
    first_order: PairwiseAccuracy,
    /// It is shown second.
    second_order: PairwiseAccuracy,
    /// p averaged over both orders.
    both_orders: PairwiseAccuracy,
    /// The share of samples with the same verdict in both orders.
    agreement: Option<f64>,
}

/// One entry per attribute and template, and another with debiasing. Empty if no sample has a preference or gold is not
/// wanted.
pub(super) fn figures(
    params: &ComparativeParams,
    samples: &[Sample],
    cells: &[ComparisonCell],
) -> Vec<ComparativePreferenceFigures> {
    if params.subject.no_gold || samples.iter().all(|sample| sample.preference.is_none()) {
        return Vec::new();
    }
    let of_cell = |cell: &ComparisonCell| {
        let mut all = vec![cell_figures(params, samples, cell, false)];
        all.extend(cell.weight().map(|_| cell_figures(params, samples, cell, true)));
        all
    };
    cells.iter().flat_map(of_cell).collect()
}

/// The accuracy over both orders for each attribute and template, debiased if debiasing is on.
pub(super) fn headline(figures: &[ComparativePreferenceFigures]) -> impl Iterator<Item = Headline> {
    let in_force = |index: usize, one: &ComparativePreferenceFigures| {
        figures.get(index + 1).is_none_or(|next| (&next.attribute, &next.template) != (&one.attribute, &one.template))
    };
    // A cell's debiased entry follows its plain entry and takes precedence.
    let last = figures.iter().enumerate().filter(move |(index, one)| in_force(*index, one));
    last.map(|(_, one)| Headline::new("accuracy", Some(&one.attribute), one.both_orders.accuracy))
}

fn cell_figures(
    params: &ComparativeParams,
    samples: &[Sample],
    cell: &ComparisonCell,
    debiased: bool,
) -> ComparativePreferenceFigures {
    let mut figures = ComparativePreferenceFigures {
        attribute: params.subject.attribute[cell.attribute].clone(),
        template: cell.template_name.clone(),
        threshold: if debiased { cell.threshold() } else { 0.5 },
        debiased,
        ..Default::default()
    };
    let mut agreed = Vec::new();
    for (item, sample) in samples.iter().enumerate() {
        let Some(preference) = &sample.preference else { continue };
        figures.items += 1;
        let Preference::Candidate(better) = preference else {
            figures.preferred_none += 1;
            continue;
        };
        let better = sample.candidates.iter().position(|c| &c.id == better);
        let (Some(better), 2) = (better, sample.candidates.len()) else {
            figures.not_a_pair += 1;
            continue;
        };
        let gold = if better == 0 { [1.0, 0.0] } else { [0.0, 1.0] };
        // Reweighted probabilities at 0.5 decide as the original ones at τ.
        let comparisons = if debiased { cell.reweighted(item) } else { cell.items[item].clone() };
        agreed.extend(agreements(&comparisons, 0.5));
        *(if comparisons.judged().is_empty() { &mut figures.not_judged } else { &mut figures.judged }) += 1;
        figures.add(comparisons.judged(), gold);
    }
    figures.agreement = mean(agreed.into_iter().map(|same| f64::from(u8::from(same))));
    figures
}

impl ComparativePreferenceFigures {
    fn add(&mut self, judged: &[PairComparison], gold: [f64; 2]) {
        let first = judged.iter().find(|c| (c.i, c.j) == (0, 1)).copied();
        let second = judged.iter().find(|c| (c.i, c.j) == (1, 0)).copied();
        // The mean of p and 1 − p of the other order, written so that it is exactly 0.5 if the two orders cancel.
        let both =
            first.zip(second).map(|(first, second)| PairComparison { p: 0.5 + (first.p - second.p) / 2.0, ..first });
        let add = |figure: &mut PairwiseAccuracy, comparison: Option<PairComparison>| {
            *figure = figure.merged(comparison_accuracy(comparison.as_slice(), &gold, 0.5));
        };
        add(&mut self.first_order, first);
        add(&mut self.second_order, second);
        add(&mut self.both_orders, both);
    }
}

/// The figures as a table.
pub(super) fn table(figures: &[ComparativePreferenceFigures], rank: RankMethod) -> Table {
    let columns =
        ["attribute", "template", "decided", "order (1, 2)", "order (2, 1)", "both orders", "same verdict", "pairs"];
    let mut table = Table::new("Accuracy against preferences", columns);
    for one in figures {
        let decided = if one.debiased { "debiased" } else { "as judged" };
        let heads = cells![&one.attribute, &one.template, decided];
        let accuracy = [&one.first_order, &one.second_order, &one.both_orders].map(|order| order.accuracy);
        let shares = accuracy.into_iter().chain([one.agreement]).map(number);
        table.push(heads.into_iter().chain(shares).chain(cells![one.judged]));
    }
    for one in figures.iter().filter(|one| !one.debiased && one.not_judged > 0) {
        table.note(format!("{}, template {}: pairs not judged: {}", one.attribute, one.template, one.not_judged));
    }
    if let Some(one) = figures.first() {
        table.note("Order (1, 2) shows the file's first candidate first. Both orders: p averaged. Chance is 0.5.");
        if rank != RankMethod::MeanProb || figures.iter().any(|other| other.template != one.template) {
            table.note(format!("The conclusion uses candidate scores ({}, averaged over templates).", rank.name()));
        }
        if one.preferred_none + one.not_a_pair > 0 {
            let [none, no_pair] = [one.preferred_none, one.not_a_pair].map(|count| counted(count, "item"));
            table.note(format!(
                "omitted: {none} without a human preference between the two, {no_pair} without exactly two candidates"
            ));
        }
    }
    table
}

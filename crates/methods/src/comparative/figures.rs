//! Figures by attribute and template: position bias, debiasing, scores and agreement with gold.

mod position;

use probity_data::Sample;
use probity_stats::{
    AgreementFigures, Comparisons, Conditionals, LikelihoodRanking, PairComparison, PairwiseAccuracy, PositionBias,
    PositionDebias as Weight, RankMethod, average_ranks, comparison_accuracy,
};
use serde::Serialize;

pub(super) use position::table as position_table;

use super::SCORES;
use super::judge::JudgedComparisons;
use super::options::{ComparativeParams, DebiasMode};
use crate::figures::{Mass, mean};
use crate::gold::{self, GoldUse};
use crate::{MethodError, Run, row};

/// The judged comparisons of one attribute under one template.
pub(super) struct ComparisonCell {
    pub(super) attribute: usize,
    attribute_name: String,
    pub(super) template_name: String,
    /// By sample; only comparisons with an answer, with p as judged.
    pub(super) items: Vec<Comparisons>,
    /// The weight in force.
    weighted: Weighted,
    pub(super) rank: RankMethod,
    mass: Mass,
}

/// Groups verdicts and estimates the debiasing weights.
pub(super) fn cells(
    params: &ComparativeParams,
    rank: RankMethod,
    samples: &[Sample],
    judged: &JudgedComparisons,
) -> Vec<ComparisonCell> {
    let templates = params.template.len();
    let mut comparisons: Vec<Vec<Vec<PairComparison>>> =
        vec![vec![Vec::new(); samples.len()]; params.subject.attribute.len() * templates];
    let mut masses: Vec<Vec<(f64, bool)>> = vec![Vec::new(); comparisons.len()];
    for (asked, verdict) in judged.comparisons.iter().zip(&judged.verdicts) {
        let cell = asked.attribute * templates + asked.template;
        if let Some(p) = verdict.p() {
            comparisons[cell][asked.item].push(PairComparison { i: asked.i, j: asked.j, p });
        }
        masses[cell].extend(verdict.answer.mass.map(|mass| (mass, verdict.answer.outcome.is_low_mass())));
    }
    let checked = |(comparisons, sample): (Vec<PairComparison>, &Sample)| distinct_comparisons(sample, comparisons);
    let items: Vec<Vec<Comparisons>> =
        comparisons.into_iter().map(|items| items.into_iter().zip(samples).map(checked).collect()).collect();
    let weights: Vec<Weighted> = (0..items.len()).map(|cell| weight(params, &items, cell)).collect();
    let mut cells = Vec::with_capacity(items.len());
    for (index, ((items, weighted), masses)) in items.into_iter().zip(weights).zip(masses).enumerate() {
        cells.push(ComparisonCell {
            attribute: index / templates,
            attribute_name: params.subject.attribute[index / templates].clone(),
            template_name: params.template[index % templates].clone(),
            items,
            weighted,
            rank,
            mass: Mass::from_answers(masses.into_iter()),
        });
    }
    cells
}

/// Comparisons among a sample's candidates; candidates with the same text are merged.
fn distinct_comparisons(sample: &Sample, comparisons: impl IntoIterator<Item = PairComparison>) -> Comparisons {
    let texts: Vec<&str> = sample.candidates.iter().map(|candidate| &*candidate.text).collect();
    let judged = Comparisons::new(texts.len(), comparisons)
        .expect("positions are the sample's, and p is a normalised probability");
    judged.with_texts(&texts)
}

/// A debiasing weight and the comparisons it is estimated from.
#[derive(Debug, Clone, Copy)]
struct Weighted {
    /// Absent without debiasing, or if no pair was judged in both orders.
    weight: Option<Weight>,
    /// Comparisons in the median τ.
    comparisons: usize,
    /// Whether they include other cells.
    shared: bool,
}

/// The weight of a cell, estimated over the pairs of its group judged in both orders. For other pairs the median of p
/// depends on which candidates came first, and debiasing would mistake quality for position bias.
fn weight(params: &ComparativeParams, cells: &[Vec<Comparisons>], of: usize) -> Weighted {
    let templates = params.template.len();
    let same_group = |other: usize| match params.debias {
        DebiasMode::None => false,
        DebiasMode::Global => true,
        DebiasMode::PerAttribute => other / templates == of / templates,
        DebiasMode::PerPrompt => other == of,
    };
    let group: Vec<&Vec<Comparisons>> =
        cells.iter().enumerate().filter(|(other, _)| same_group(*other)).map(|(_, items)| items).collect();
    let probabilities = symmetric_probabilities(group.iter().copied().flatten());
    Weighted { weight: Weight::estimate(&probabilities), comparisons: probabilities.len(), shared: group.len() > 1 }
}

/// p of the comparisons whose pair was judged in both orders.
pub(super) fn symmetric_probabilities<'c>(items: impl IntoIterator<Item = &'c Comparisons>) -> Vec<f64> {
    items.into_iter().flat_map(|item| item.in_both_orders().judged().iter().map(|c| c.p).collect::<Vec<_>>()).collect()
}

/// The agreement of a cell's scores with gold.
#[derive(Debug, Clone, Serialize)]
pub(super) struct CellGold {
    pub(super) as_judged: AgreementFigures,
    pub(super) debiased: Option<AgreementFigures>,
    pub(super) comparisons_as_judged: PairwiseAccuracy,
    pub(super) comparisons_debiased: Option<PairwiseAccuracy>,
}

impl CellGold {
    /// The figures of the written scores: debiased unless `--debias none`.
    pub(super) fn in_force(&self) -> &AgreementFigures {
        self.debiased.as_ref().unwrap_or(&self.as_judged)
    }
}

/// The reported figures of a cell.
#[derive(Debug, Clone, Serialize)]
pub(super) struct CellFigures {
    pub(super) attribute: String,
    pub(super) template: String,
    judged: usize,
    /// P(A) and P(B) at the threshold 0.5; absent if nothing was judged.
    before: Option<PositionBias>,
    /// The threshold in force; absent without debiasing, or if no pair was judged in both orders.
    tau: Option<f64>,
    /// Comparisons in the median τ: those of pairs judged in both orders.
    tau_comparisons: usize,
    /// Whether τ is also estimated over other attributes or templates.
    tau_shared: bool,
    alpha: Option<f64>,
    /// P(A) and P(B) of this cell at τ.
    after: Option<PositionBias>,
    /// Whether each pair was judged in both orders, so that P(A) depends only on the judge.
    symmetric: bool,
    /// Pairs judged in both orders.
    pub(super) pairs_in_both_orders: usize,
    order_gap_mean: Option<f64>,
    order_gap_max: Option<f64>,
    /// The share of those pairs with the same winner in both orders, at the threshold 0.5.
    pub(super) order_agreement: Option<f64>,
    pub(super) mass: Mass,
    /// Present with `--rank likelihood` and its variants.
    #[serde(skip_serializing_if = "Option::is_none")]
    search: Option<Search>,
    pub(super) gold: Option<CellGold>,
}

/// The results of the searches for the most likely ranking.
#[derive(Debug, Clone, Serialize)]
struct Search {
    /// Contexts whose ranking is proven to be the most likely one.
    exact: usize,
    /// Contexts whose ranking is the best found by local search.
    local: usize,
    /// Upper bound on the log-likelihood a better ranking could gain in these contexts, in nats.
    largest_gap: f64,
    /// The conditionals of eq. 13 estimated from the judge's decisions, if required and estimable.
    conditionals: Option<Conditionals>,
    /// Required but not estimable: decisions count as those of a judge without position bias.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    assumed: bool,
}

impl Search {
    fn new(found: &[LikelihoodRanking], conditionals: Option<Conditionals>, assumed: bool) -> Self {
        let exact = found.iter().filter(|ranking| ranking.exact).count();
        let gaps =
            found.iter().filter(|ranking| !ranking.exact).map(|ranking| ranking.upper_bound - ranking.log_likelihood);
        Self { exact, local: found.len() - exact, largest_gap: gaps.fold(0.0, f64::max), conditionals, assumed }
    }
}

/// Scores by sample and candidate.
fn ranked(rank: RankMethod, items: &[Comparisons]) -> Vec<Vec<Option<f64>>> {
    let conditionals = conditionals(items);
    items.iter().map(|item| rank.scores(item, &conditionals)).collect()
}

/// The conditionals of eq. 13, estimated from the judge's decisions; those of an unbiased judge if no pair was judged
/// in both orders.
fn conditionals(items: &[Comparisons]) -> Conditionals {
    Conditionals::estimate(items, 0.5).unwrap_or(Conditionals::SYMMETRIC)
}

impl ComparisonCell {
    /// The weight in force, possibly estimated over more than this cell.
    pub(super) fn weight(&self) -> Option<Weight> {
        self.weighted.weight
    }

    /// The decision threshold in force.
    pub(super) fn threshold(&self) -> f64 {
        self.weight().map_or(0.5, |weight| weight.tau)
    }

    /// A sample's comparisons, reweighted if debiasing is on.
    pub(super) fn reweighted(&self, item: usize) -> Comparisons {
        let Some(weight) = self.weight() else { return self.items[item].clone() };
        self.items[item].changed(|c| Some(PairComparison { p: weight.apply(c.p), ..*c }))
    }

    /// All samples' comparisons with the weight in force.
    fn all_reweighted(&self) -> Vec<Comparisons> {
        (0..self.items.len()).map(|item| self.reweighted(item)).collect()
    }

    /// Scores by sample and candidate with the weight in force.
    pub(super) fn scores(&self) -> Vec<Vec<Option<f64>>> {
        ranked(self.rank, &self.all_reweighted())
    }

    /// Scores by sample and candidate without debiasing.
    pub(super) fn scores_as_judged(&self) -> Vec<Vec<Option<f64>>> {
        ranked(self.rank, &self.items)
    }

    /// The search results; absent for other rankings.
    fn search(&self) -> Option<Search> {
        let items = self.all_reweighted();
        let asked = self.rank == RankMethod::HardLikelihood;
        let estimated = if asked { Conditionals::estimate(&items, 0.5) } else { None };
        let in_force = estimated.unwrap_or(Conditionals::SYMMETRIC);
        let found: Option<Vec<LikelihoodRanking>> =
            items.iter().map(|item| self.rank.search(item, &in_force)).collect();
        found.map(|found| Search::new(&found, estimated, asked && estimated.is_none()))
    }

    pub(super) fn figures(&self, samples: &[Sample], gold: &[GoldUse<'_>]) -> CellFigures {
        let probabilities: Vec<f64> = self.items.iter().flat_map(Comparisons::judged).map(|c| c.p).collect();
        let gaps: Vec<f64> = self.items.iter().flat_map(Comparisons::order_gaps).map(|(_, _, gap)| gap).collect();
        let agreements: Vec<bool> = self.items.iter().flat_map(|item| agreements(item, 0.5)).collect();
        let present = gold.iter().any(|one| one.present && one.attribute == self.attribute_name);
        CellFigures {
            attribute: self.attribute_name.clone(),
            template: self.template_name.clone(),
            judged: probabilities.len(),
            before: PositionBias::measure(&probabilities, 0.5),
            tau: self.weight().map(|w| w.tau),
            tau_comparisons: self.weighted.comparisons,
            tau_shared: self.weighted.shared,
            alpha: self.weight().and_then(|w| w.alpha),
            after: self.weight().and_then(|w| PositionBias::measure(&probabilities, w.tau)),
            symmetric: self.items.iter().all(Comparisons::is_symmetric),
            pairs_in_both_orders: gaps.len(),
            order_gap_mean: mean(gaps.iter().copied()),
            order_gap_max: gaps.iter().copied().reduce(f64::max),
            order_agreement: mean(agreements.into_iter().map(|same| f64::from(u8::from(same)))),
            mass: self.mass,
            search: self.search(),
            gold: present.then(|| self.against_gold(samples)),
        }
    }

    fn against_gold(&self, samples: &[Sample]) -> CellGold {
        let attribute = &self.attribute_name;
        CellGold {
            as_judged: gold::against(samples, attribute, &self.scores_as_judged()),
            debiased: self.weight().map(|_| gold::against(samples, attribute, &self.scores())),
            comparisons_as_judged: self.comparison_accuracy(samples, 0.5),
            comparisons_debiased: self.weight().map(|weight| self.comparison_accuracy(samples, weight.tau)),
        }
    }

    fn comparison_accuracy(&self, samples: &[Sample], threshold: f64) -> PairwiseAccuracy {
        let of_item = |(item, sample): (&Comparisons, &Sample)| {
            let gold: Vec<Option<f64>> =
                sample.candidates.iter().map(|c| c.scores.get(&self.attribute_name).copied()).collect();
            let both: Vec<PairComparison> =
                item.judged().iter().filter(|c| gold[c.i].is_some() && gold[c.j].is_some()).copied().collect();
            // Candidates without gold are not in `both`.
            let gold: Vec<f64> = gold.into_iter().map(Option::unwrap_or_default).collect();
            comparison_accuracy(&both, &gold, threshold)
        };
        self.items.iter().zip(samples).map(of_item).fold(PairwiseAccuracy::default(), PairwiseAccuracy::merged)
    }
}

/// For each pair judged in both orders: whether both verdicts at `threshold` agree.
pub(super) fn agreements(item: &Comparisons, threshold: f64) -> Vec<bool> {
    let find = |i: usize, j: usize| item.judged().iter().find(|c| (c.i, c.j) == (i, j)).map(|c| c.p);
    let both = item.judged().iter().filter(|c| c.i < c.j).filter_map(|c| Some((c.p, find(c.j, c.i)?)));
    // The other order's p refers to the other candidate, so its comparison with the threshold is reversed.
    both.map(|(p, turned)| p.partial_cmp(&threshold) == threshold.partial_cmp(&turned)).collect()
}

/// Scores of one attribute averaged over templates; a candidate without a score in any template has none.
pub(super) fn mean_scores(
    cells: &[ComparisonCell],
    attribute: usize,
    scores: fn(&ComparisonCell) -> Vec<Vec<Option<f64>>>,
) -> Vec<Vec<Option<f64>>> {
    let of_templates: Vec<Vec<Vec<Option<f64>>>> =
        cells.iter().filter(|cell| cell.attribute == attribute).map(scores).collect();
    let Some(first) = of_templates.first() else { return Vec::new() };
    let average = |item: usize, candidate: usize| {
        let scores: Option<Vec<f64>> = of_templates.iter().map(|scores| scores[item][candidate]).collect();
        scores.and_then(mean)
    };
    let averages = |(item, scores): (usize, &Vec<Option<f64>>)| {
        // Averaging rounds again, so scores that differ only by rounding are made equal again.
        let rank = cells[0].rank;
        equal_scores(rank, (0..scores.len()).map(|candidate| average(item, candidate)).collect())
    };
    first.iter().enumerate().map(averages).collect()
}

/// The scores, with values that differ only by rounding made equal.
fn equal_scores(rank: RankMethod, scores: Vec<Option<f64>>) -> Vec<Option<f64>> {
    let mut equal = rank.equalised(&scores.iter().copied().flatten().collect::<Vec<f64>>()).into_iter();
    scores.into_iter().map(|score| score.and_then(|_| equal.next())).collect()
}

/// Scores of one attribute from debiased probabilities averaged over templates (paper 002, Table 6), for the
/// comparisons that every template has.
pub(super) fn scores_of_mean_probabilities(
    samples: &[Sample],
    cells: &[ComparisonCell],
    attribute: usize,
) -> Vec<Vec<Option<f64>>> {
    let of_attribute: Vec<&ComparisonCell> = cells.iter().filter(|cell| cell.attribute == attribute).collect();
    let of_templates: Vec<Vec<Comparisons>> = of_attribute.iter().map(|cell| cell.all_reweighted()).collect();
    let (Some(cell), Some(first)) = (of_attribute.first(), of_templates.first()) else { return Vec::new() };
    let p_of =
        |item: &Comparisons, c: &PairComparison| item.judged().iter().find(|o| (o.i, o.j) == (c.i, c.j)).map(|o| o.p);
    let averaged = |(item, sample): (usize, &Sample)| {
        let mean_p = |c: &PairComparison| {
            let all: Option<Vec<f64>> = of_templates.iter().map(|items| p_of(&items[item], c)).collect();
            Some(PairComparison { p: all.and_then(mean)?, ..*c })
        };
        distinct_comparisons(sample, first[item].judged().iter().filter_map(mean_p))
    };
    let items: Vec<Comparisons> = samples.iter().enumerate().map(averaged).collect();
    ranked(cell.rank, &items)
}

/// Writes `scores[attribute][item][candidate]` with ranks.
pub(super) fn write_scores(
    params: &ComparativeParams,
    samples: &[Sample],
    cells: &[ComparisonCell],
    scores: &[Vec<Vec<Option<f64>>>],
    run: &mut Run<'_>,
) -> Result<(), MethodError> {
    let candidates: usize = samples.iter().map(|sample| sample.candidates.len()).sum();
    run.table(SCORES, candidates * params.subject.attribute.len())?;
    let mut index = 0;
    for (item, sample) in samples.iter().enumerate() {
        for (attribute, name) in params.subject.attribute.iter().enumerate() {
            let scores = &scores[attribute][item];
            let ranks = ranks(scores);
            for (position, candidate) in sample.candidates.iter().enumerate() {
                let of_attribute = cells.iter().filter(|cell| cell.attribute == attribute);
                let judged = of_attribute.flat_map(|cell| cell.items[item].judged());
                let comparisons = judged.filter(|c| c.i == position || c.j == position).count();
                // Rank 1 is best; equal scores share the mean of their ranks. Comparisons are those of all templates.
                let row = row! {
                    "item": sample.id, "attribute": name, "candidate": candidate.id, "index": position,
                    "score": scores[position], "rank": ranks[position], "comparisons": comparisons,
                    "precision": run.model().description().precision,
                    "reason"?: reason(sample, position, scores[position], comparisons),
                };
                run.row(SCORES, index, &row)?;
                index += 1;
            }
        }
    }
    Ok(())
}

fn reason(sample: &Sample, position: usize, score: Option<f64>, comparisons: usize) -> Option<&'static str> {
    match score {
        Some(_) => None,
        None if sample.candidates.len() == 1 => Some("one_candidate"),
        None if sample.candidates[position].text.trim().is_empty() => Some("empty"),
        None if comparisons == 0 => Some("no_comparison_judged"),
        None => Some("no_comparison_judged_under_some_template"),
    }
}

/// The rank of each score, 1 for the highest; `None` for a missing score.
fn ranks(scores: &[Option<f64>]) -> Vec<Option<f64>> {
    // Ranks count from the lowest value, and rank 1 must be the best.
    let lowered: Vec<f64> = scores.iter().flatten().map(|score| -score).collect();
    let mut ranks = average_ranks(&lowered).expect("scores are numbers").into_iter();
    scores.iter().map(|score| score.and_then(|_| ranks.next())).collect()
}

impl CellFigures {
    /// Whether its scores are reweighted by τ.
    pub(super) fn is_debiased(&self) -> bool {
        self.tau.is_some()
    }
}

/// The share of all comparisons, as judged, that the candidate shown first wins; `None` without comparisons.
pub(super) fn first_wins(cells: &[&CellFigures]) -> Option<f64> {
    let comparisons: usize = cells.iter().map(|cell| cell.judged).sum();
    let won: f64 = cells.iter().filter_map(|cell| Some(cell.before?.p_a * cell.judged as f64)).sum();
    (comparisons > 0).then(|| won / comparisons as f64)
}

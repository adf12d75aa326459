//! The results with fewer comparisons or fewer candidates (paper Fig. 4 and Table 8). Both are resampled from the
//! comparisons already made, without further queries. Both use the win ratio, as in the paper, regardless of `--rank`.

use probity_analysis::plot::{Drawing, LineAxis, Plot, Point, Series};
use probity_data::Sample;
use probity_stats::{
    Comparisons, Correlation, PairComparison, PairwiseAccuracy, PositionDebias as Weight, pairwise_accuracy,
    per_context, quantile,
};
use rand::seq::SliceRandom;
use serde::Serialize;

use super::figures::{ComparisonCell, symmetric_probabilities};
use super::options::ComparativeParams;
use crate::figures::{mean, number};
use crate::gold::GoldUse;
use crate::pairs::{PairSelection, rng_for};
use crate::{Table, cells};

/// The numbers of candidates in the paper's Table 8.
const CANDIDATES: [usize; 8] = [2, 3, 4, 6, 8, 12, 16, 24];

/// The results of both analyses.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Analyses {
    runs: usize,
    subsets: Vec<Subset>,
    consistency: Vec<Consistency>,
}

/// Spearman with R comparisons per context.
#[derive(Debug, Clone, Serialize)]
struct Subset {
    attribute: String,
    template: String,
    scheme: &'static str,
    /// Comparisons per context; contexts with fewer use all they have.
    comparisons: usize,
    /// The mean over draws of the mean over contexts, with threshold 0.5.
    spearman: Option<f64>,
    /// With the threshold at the median of p over all comparisons of the prompt.
    debiased: Option<f64>,
    /// With the threshold at the median of p over the drawn comparisons, as a judge with only these comparisons would
    /// compute it. If the draw is not symmetric, the median also depends on which candidates came first.
    debiased_on_drawn: Option<f64>,
    ranges: Ranges,
}

/// The 5% and 95% quantiles over draws of each figure of [`Subset`]; absent if no draw has one.
#[derive(Debug, Clone, Copy, Serialize)]
struct Ranges {
    spearman: Option<[f64; 2]>,
    debiased: Option<[f64; 2]>,
    debiased_on_drawn: Option<[f64; 2]>,
}

/// Mean and range over draws.
fn over(draws: impl Iterator<Item = Option<f64>>) -> (Option<f64>, Option<[f64; 2]>) {
    let mut values: Vec<f64> = draws.flatten().collect();
    let mean = mean(values.iter().copied());
    values.sort_by(f64::total_cmp);
    (mean, quantile(&values, 0.05).zip(quantile(&values, 0.95)).map(|(low, high)| [low, high]))
}

/// Pairwise accuracy of the ranking among N candidates alone.
#[derive(Debug, Clone, Serialize)]
struct Consistency {
    attribute: String,
    template: String,
    candidates: usize,
    /// Compared with the ranking from all candidates' comparisons.
    against_all: Option<f64>,
    against_gold: Option<f64>,
}

pub(super) fn analyse(
    params: &ComparativeParams,
    samples: &[Sample],
    gold: &[GoldUse<'_>],
    cells: &[ComparisonCell],
) -> Analyses {
    let mut analyses = Analyses { runs: params.analysis_runs, subsets: Vec::new(), consistency: Vec::new() };
    for cell in cells {
        let attribute = &params.subject.attribute[cell.attribute];
        let present = gold.iter().any(|one| one.present && one.attribute == attribute);
        let golds: Vec<Vec<Option<f64>>> = samples
            .iter()
            .map(|s| s.candidates.iter().map(|c| c.scores.get(attribute).copied().filter(|_| present)).collect())
            .collect();
        let tau = Weight::estimate(&symmetric_probabilities(&cell.items)).map(|weight| weight.tau);
        let of = AnalysisSubject { params, samples, cell, golds, attribute, tau };
        if present {
            analyses.subsets.extend(of.subsets());
        }
        analyses.consistency.extend(of.consistency());
    }
    analyses
}

struct AnalysisSubject<'a> {
    params: &'a ComparativeParams,
    samples: &'a [Sample],
    cell: &'a ComparisonCell,
    /// By sample and candidate.
    golds: Vec<Vec<Option<f64>>>,
    attribute: &'a str,
    /// The threshold that balances the positions over all comparisons.
    tau: Option<f64>,
}

impl AnalysisSubject<'_> {
    fn subsets(&self) -> Vec<Subset> {
        let most = self.cell.items.iter().map(Comparisons::candidates).max().unwrap_or(0);
        let schemes = [
            ("random", PairSelection::Random(0)),
            ("no-repeat", PairSelection::NoRepeat(0)),
            ("symmetric", PairSelection::Symmetric(0)),
        ];
        let point = |scheme: &'static str, pairs: PairSelection| {
            let draws: Vec<[Option<f64>; 3]> =
                (0..self.params.analysis_runs).map(|draw| self.draw(scheme, pairs, draw)).collect();
            let [plain, debiased, on_subset] = [0, 1, 2].map(|of| over(draws.iter().map(|draw| draw[of])));
            Subset {
                attribute: self.attribute.to_owned(),
                template: self.cell.template_name.clone(),
                scheme,
                comparisons: pairs.count().unwrap_or(0),
                spearman: plain.0,
                debiased: debiased.0,
                debiased_on_drawn: on_subset.0,
                ranges: Ranges { spearman: plain.1, debiased: debiased.1, debiased_on_drawn: on_subset.1 },
            }
        };
        let points = |(scheme, pairs): (&'static str, PairSelection)| {
            steps(pairs.max(most)).into_iter().map(move |r| (scheme, pairs.with_count(r)))
        };
        schemes.into_iter().flat_map(points).map(|(scheme, pairs)| point(scheme, pairs)).collect()
    }

    /// Mean Spearman over contexts of one draw: plain, debiased over all comparisons, and debiased over the drawn ones.
    fn draw(&self, scheme: &str, pairs: PairSelection, draw: usize) -> [Option<f64>; 3] {
        let choose = |(item, sample): (&Comparisons, &Sample)| {
            let parts = ["subset", scheme, &pairs.to_string(), &draw.to_string(), &sample.id];
            let chosen = pairs.select(item.candidates(), &mut rng_for(self.params.seed, &parts));
            subset(item, |c| chosen.binary_search(&(c.i, c.j)).is_ok())
        };
        let drawn: Vec<Comparisons> = self.cell.items.iter().zip(self.samples).map(choose).collect();
        let drawn_p: Vec<f64> = drawn.iter().flat_map(Comparisons::judged).map(|c| c.p).collect();
        let of_drawn = Weight::estimate(&drawn_p).map(|weight| weight.tau);
        [Some(0.5), self.tau, of_drawn].map(|threshold| self.spearman(&drawn, threshold?))
    }

    fn spearman(&self, drawn: &[Comparisons], threshold: f64) -> Option<f64> {
        let of_item =
            |((item, all), golds): ((&Comparisons, &Comparisons), &Vec<Option<f64>>)| -> (Vec<f64>, Vec<f64>) {
                // A candidate that could not be judged has no score and is omitted, as elsewhere. A candidate that was
                // not drawn is treated as average: half of its comparisons won.
                let judged = all.win_ratio(threshold);
                let scores = item.win_ratio(threshold).into_iter().zip(judged);
                let scores = scores.map(|(score, judged)| judged.map(|_| score.unwrap_or(0.5)));
                scores.zip(golds).filter_map(|(score, gold)| Some((score?, (*gold)?))).unzip()
            };
        let contexts: Vec<(Vec<f64>, Vec<f64>)> =
            drawn.iter().zip(&self.cell.items).zip(&self.golds).map(of_item).collect();
        per_context(Correlation::Spearman, contexts.iter().map(|(scores, gold)| (scores.as_slice(), gold.as_slice())))
            .mean
    }

    fn consistency(&self) -> Vec<Consistency> {
        let most = self.cell.items.iter().map(Comparisons::candidates).max().unwrap_or(0);
        let mut sizes: Vec<usize> = CANDIDATES.into_iter().filter(|n| *n < most).collect();
        // The last point has all candidates; there the ranking must agree with itself.
        sizes.extend((most >= 2).then_some(most));
        sizes.into_iter().map(|n| self.consistency_of(n)).collect()
    }

    fn consistency_of(&self, n: usize) -> Consistency {
        let threshold = self.cell.threshold();
        let (mut against_all, mut against_gold) = (PairwiseAccuracy::default(), PairwiseAccuracy::default());
        for ((item, sample), golds) in self.cell.items.iter().zip(self.samples).zip(&self.golds) {
            let all = item.win_ratio(threshold);
            // There is one way to choose all.
            let draws = if n >= item.candidates() { 1 } else { self.params.analysis_runs };
            for draw in (0..draws).filter(|_| n <= item.candidates()) {
                let mut rng = rng_for(self.params.seed, &["fewer", &n.to_string(), &draw.to_string(), &sample.id]);
                let mut order: Vec<usize> = (0..item.candidates()).collect();
                let kept = order.partial_shuffle(&mut rng, n).0;
                let among = subset(item, |c| kept.contains(&c.i) && kept.contains(&c.j)).win_ratio(threshold);
                against_all = against_all.merged(accuracy(&among, &all));
                against_gold = against_gold.merged(accuracy(&among, golds));
            }
        }
        Consistency {
            attribute: self.attribute.to_owned(),
            template: self.cell.template_name.clone(),
            candidates: n,
            against_all: against_all.accuracy,
            against_gold: against_gold.accuracy,
        }
    }
}

fn subset(item: &Comparisons, keep: impl Fn(&PairComparison) -> bool) -> Comparisons {
    item.changed(|c| keep(c).then_some(*c))
}

/// Pairwise accuracy over candidates that have both values.
fn accuracy(scores: &[Option<f64>], gold: &[Option<f64>]) -> PairwiseAccuracy {
    let (scores, gold): (Vec<f64>, Vec<f64>) =
        scores.iter().zip(gold).filter_map(|(s, g)| Some(((*s)?, (*g)?))).unzip();
    pairwise_accuracy([(scores.as_slice(), gold.as_slice())])
}

/// Doubling from 2, then the maximum. All are even if the maximum is, so that symmetric sets exist.
fn steps(most: usize) -> Vec<usize> {
    let mut steps: Vec<usize> = std::iter::successors(Some(2), |r| Some(r * 2)).take_while(|r| *r < most).collect();
    steps.extend((most > 0).then_some(most));
    steps
}

impl Analyses {
    pub(super) fn tables(&self) -> Vec<Table> {
        let columns = ["attribute", "template", "scheme", "comparisons", "Spearman", "debiased", "drawn pairs only"];
        let mut subsets = Table::new("Spearman by number of comparisons", columns);
        for one in &self.subsets {
            let heads = cells![&one.attribute, &one.template, one.scheme, one.comparisons];
            subsets.push(heads.into_iter().chain([one.spearman, one.debiased, one.debiased_on_drawn].map(number)));
        }
        subsets.note(format!(
            "win ratio, mean over {} draws; a candidate that was not drawn counts as average, one that could not be \
             judged is omitted",
            self.runs
        ));
        subsets.note(
            "debiased: threshold at the median of p over all comparisons of the prompt; drawn pairs only: over the \
             comparisons drawn, in any order",
        );
        subsets.plots = self.plots();
        let columns = [
            "attribute",
            "template",
            "candidates",
            "accuracy against the full ranking",
            "accuracy against \
                                                                                                    gold",
        ];
        let mut consistency = Table::new("Ranking with fewer candidates", columns);
        for one in &self.consistency {
            let heads = cells![&one.attribute, &one.template, one.candidates];
            consistency.push(heads.into_iter().chain([one.against_all, one.against_gold].map(number)));
        }
        vec![subsets, consistency]
    }

    /// Spearman by number of comparisons and scheme (paper Figs. 4 and 5).
    fn plots(&self) -> Vec<Plot> {
        let is_of_prompt = |a: &Subset, b: &Subset| (&a.attribute, &a.template) == (&b.attribute, &b.template);
        let prompts = self.subsets.chunk_by(is_of_prompt).enumerate();
        prompts.flat_map(|(number, subsets)| self.plots_of(number, subsets)).collect()
    }

    /// The plots of one prompt, with both thresholds.
    fn plots_of(&self, number: usize, subsets: &[Subset]) -> [Plot; 2] {
        type Way = fn(&Subset) -> (Option<f64>, Option<[f64; 2]>);
        let ways: [(&str, &str, Way); 2] = [
            ("judged", "with the threshold 0.5", |one| (one.spearman, one.ranges.spearman)),
            ("debiased", "with the threshold at the median of p over the drawn comparisons", |one| {
                (one.debiased_on_drawn, one.ranges.debiased_on_drawn)
            }),
        ];
        let Subset { attribute, template, .. } = &subsets[0];
        ways.map(|(id, decided, figure)| {
            let point = |one: &Subset| {
                let (value, range) = figure(one);
                Some(Point { x: one.comparisons as f64, y: value?, band: range.map(|[low, high]| (low, high)) })
            };
            let series = |of_scheme: &[Subset]| Series {
                name: of_scheme[0].scheme.to_owned(),
                points: of_scheme.iter().filter_map(point).collect(),
            };
            Plot {
                id: format!("subsets-{number}-{id}"),
                title: format!("Agreement by number of comparisons, {attribute}"),
                caption: format!(
                    "Mean Spearman over contexts by the number of comparisons per context, {decided}, for each way of \
                     choosing pairs. The band contains 90% of {} draws. Template {template}.",
                    self.runs
                ),
                drawing: Drawing::Lines {
                    x: LineAxis::Counts("comparisons per context".to_owned()),
                    y: "Spearman".to_owned(),
                    series: subsets.chunk_by(|a, b| a.scheme == b.scheme).map(series).collect(),
                },
            }
        })
    }
}

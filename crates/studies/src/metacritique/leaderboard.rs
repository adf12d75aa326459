//! The leaderboard of systems that write critiques, by the scores of their critiques.

use std::collections::{BTreeMap, BTreeSet};

use probity_data::Sample;
use probity_lm::text::fixed;
use probity_stats::{
    FigureEstimate, NoInterval, PairedDifference, Range, Resampling, jackknife, quantile, ratio_interval,
};
use serde::Serialize;

use super::options::Unread;
use super::tally::{CritiqueScores, CritiqueTally, SCORES, Tally, harmonic};
use crate::figures::{ShareFigure, bounds, mean, number};
use crate::thresholds::FEW_UNITS;
use crate::{Cell, Table, cells};

/// The importer's name for human critiques.
pub(super) const HUMAN: &str = "human";

/// The maximum number of rows in a printed table; `summary.json` has all.
const SHOWN: usize = 40;
/// A system that wins at least this share of draws is clearly better.
const CLEAR: f64 = 0.975;
/// Pairs of systems with fewer shared samples are only in `summary.json`, since their bootstrap is not informative.
const FEW_SHARED: usize = 5;

/// A critique with the tally of its claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ScoredCritique<'a> {
    /// Position of the sample sorted by id, which also orders jackknife groups and draws.
    pub(super) item: usize,
    /// The candidate's id.
    pub(super) system: &'a str,
    pub(super) tally: CritiqueTally,
}

impl<'a> ScoredCritique<'a> {
    /// All candidates sorted by id; `tallies` is in data order.
    pub(super) fn all(samples: &'a [Sample], tallies: &[CritiqueTally]) -> Vec<Self> {
        let ids: BTreeSet<&str> = samples.iter().map(|sample| sample.id.as_str()).collect();
        let ids: Vec<&str> = ids.into_iter().collect();
        let places = samples.iter().flat_map(|sample| {
            let item = ids.binary_search(&sample.id.as_str()).expect("one of them");
            sample.candidates.iter().map(move |candidate| (item, candidate.id.as_str()))
        });
        let mut all: Vec<Self> =
            places.zip(tallies).map(|((item, system), tally)| Self { item, system, tally: *tally }).collect();
        all.sort_by_key(|one| (one.item, one.system));
        all
    }
}

/// Figures of one score over several critiques.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct ScoreFigures {
    /// The mean over critiques with the score.
    #[serde(rename = "macro")]
    pub(super) of_critiques: FigureEstimate<ShareFigure>,
    /// Over all claims together.
    pub(super) micro: FigureEstimate<ShareFigure>,
    /// The mean under the other convention for unreadable labels.
    pub(super) other_convention: Option<f64>,
    /// Critiques with the score.
    pub(super) critiques: usize,
}

/// Figures of the critiques of one or several systems.
#[derive(Debug, Clone, Serialize)]
pub(super) struct CritiqueSystem {
    pub(super) system: String,
    pub(super) critiques: usize,
    pub(super) precision: ScoreFigures,
    pub(super) recall: ScoreFigures,
    pub(super) f1: ScoreFigures,
    /// The labels of all claims.
    pub(super) claims: CritiqueTally,
    /// The rank by mean F1 with its uncertainty; absent for several systems together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rank: Option<RankFigures>,
}

/// A system's rank over bootstrap draws of the samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct RankFigures {
    /// The rank by mean F1 over all samples, from 1.
    rank: usize,
    /// The 2.5% and 97.5% quantiles of its rank, over draws that contain one of its critiques.
    low: Option<f64>,
    high: Option<f64>,
    /// The share of these draws in which it is first; ties are split.
    first: Option<f64>,
    /// The number of these draws.
    draws: usize,
}

/// Two systems, compared over the samples in which both have an F1.
#[derive(Debug, Clone, Serialize)]
pub(super) struct SystemPair {
    first: String,
    second: String,
    samples: usize,
    /// The difference in mean F1.
    #[serde(flatten)]
    difference: PairedDifference,
    /// The share of bootstrap draws in which the first has the higher mean; ties count as half.
    first_wins: f64,
}

/// The leaderboard.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Leaderboard {
    /// Sorted by mean F1, best first.
    pub(super) systems: Vec<CritiqueSystem>,
    /// All critiques together; if some are human, also those of models.
    pub(super) together: Vec<CritiqueSystem>,
    /// The pairs of systems that share at least two samples.
    pub(super) pairs: Vec<SystemPair>,
    pub(super) resampling: Resampling,
}

impl Leaderboard {
    pub(super) fn new(critiques: &[ScoredCritique<'_>], unread: Unread, resampling: Resampling) -> Self {
        let mut by_system: BTreeMap<&str, Vec<&ScoredCritique<'_>>> = BTreeMap::new();
        for critique in critiques {
            by_system.entry(critique.system).or_default().push(critique);
        }
        let f1_of = |critiques: &[&ScoredCritique<'_>]| -> BTreeMap<usize, f64> {
            critiques.iter().filter_map(|one| Some((one.item, one.tally.scores(unread).f1?))).collect()
        };
        let mut systems: Vec<(CritiqueSystem, BTreeMap<usize, f64>)> =
            by_system.iter().map(|(name, own)| (CritiqueSystem::new(name, own, unread), f1_of(own))).collect();
        systems.sort_by(|(a, _), (b, _)| {
            let value = |one: &CritiqueSystem| one.f1.of_critiques.figure.share.unwrap_or(f64::NEG_INFINITY);
            value(b).total_cmp(&value(a)).then_with(|| a.system.cmp(&b.system))
        });
        let (mut systems, scores): (Vec<CritiqueSystem>, Vec<BTreeMap<usize, f64>>) = systems.into_iter().unzip();
        let samples = critiques.iter().map(|critique| critique.item + 1).max().unwrap_or(0);
        let ranks = ranks(&scores, samples, &resampling);
        systems.iter_mut().zip(ranks).for_each(|(system, rank)| system.rank = Some(rank));
        let all: Vec<&ScoredCritique<'_>> = critiques.iter().collect();
        let mut together = vec![CritiqueSystem::new("all", &all, unread)];
        if by_system.contains_key(HUMAN) && by_system.len() > 2 {
            let models: Vec<&ScoredCritique<'_>> = critiques.iter().filter(|one| one.system != HUMAN).collect();
            together.push(CritiqueSystem::new("all but human", &models, unread));
        }
        let names: Vec<&str> = systems.iter().map(|system| system.system.as_str()).collect();
        let pairs = pairs(&names, &scores, &resampling);
        Self { systems, together, pairs, resampling }
    }

    /// Why the first system is not clearly the best; `None` if it is or has no competitor.
    pub(super) fn doubt(&self) -> Option<String> {
        let [first, next, ..] = self.systems.as_slice() else {
            let few = self.together[0].critiques < FEW_UNITS;
            return few.then(|| format!("there are fewer than {FEW_UNITS} critiques"));
        };
        let of = |pair: &&SystemPair| (pair.first == first.system) && (pair.second == next.system);
        match self.pairs.iter().find(of) {
            Some(pair) if pair.samples >= FEW_UNITS && pair.first_wins >= CLEAR => None,
            Some(pair) if pair.samples >= FEW_UNITS => {
                Some("the order of the first two systems depends on the sample of items".to_owned())
            }
            _ => Some(format!("the first two systems share fewer than {FEW_UNITS} samples")),
        }
    }

    /// The printed tables.
    pub(super) fn tables(&self) -> Vec<Table> {
        let columns = [
            "critiques by", "rank (95%)", "first", "critiques", "precision", "recall", "F1", "F1 95%", "micro P",
            "micro R", "micro F1", "unread",
        ];
        let mut table = Table::new("Critiques by system (means over critiques)", columns);
        for system in self.systems.iter().take(SHOWN).chain(&self.together) {
            table.push(system.cells());
        }
        let left = self.systems.len().saturating_sub(SHOWN);
        if left > 0 {
            table.note(format!("{left} more systems are in summary.json"));
        }
        table.note(
            "Precision: share of a critique's claims that are true; recall: share of the reference critique's claims \
             that it makes; F1: their harmonic mean, 0 if either is 0. Micro: over all claims together.",
        );
        table.note(format!(
            "Rank: by mean F1, with its 95% range over {} bootstrap draws of the samples (seed {}); first: how often \
             it is first in draws that contain one of its critiques. Systems that criticised different samples are not \
             directly comparable. F1 95%: of the mean, from the jackknife over samples.",
            self.resampling.rounds, self.resampling.seed
        ));
        let few = self.pairs.iter().filter(|pair| pair.samples < FEW_SHARED).count();
        if few > 0 {
            table.note(format!(
                "{few} pairs of systems with fewer than {FEW_SHARED} shared samples are only in summary.json."
            ));
        }
        if few == self.pairs.len() { vec![table] } else { vec![table, self.pair_table()] }
    }

    fn pair_table(&self) -> Table {
        let columns = ["critiques by", "and by", "samples", "difference in F1", "95% interval", "p", "first wins"];
        let mut table = Table::new("Pairs of systems on shared samples", columns);
        let enough: Vec<&SystemPair> = self.pairs.iter().filter(|pair| pair.samples >= FEW_SHARED).collect();
        for pair in enough.iter().take(SHOWN) {
            let PairedDifference { difference, interval, p, .. } = pair.difference;
            table.push(cells![
                &pair.first,
                &pair.second,
                pair.samples,
                number(Some(difference)),
                bounds(interval),
                number(p),
                number(Some(pair.first_wins)),
            ]);
        }
        let left = enough.len().saturating_sub(SHOWN);
        if left > 0 {
            table.note(format!("{left} more pairs are in summary.json"));
        }
        table.note(
            "p: for no difference, from the jackknife over samples, not corrected for the number of pairs. First wins: \
             share of bootstrap draws of these samples in which the first has the higher mean F1; ties count as half.",
        );
        table
    }
}

impl CritiqueSystem {
    fn new(system: &str, critiques: &[&ScoredCritique<'_>], unread: Unread) -> Self {
        let other = if unread == Unread::False { Unread::LeftOut } else { Unread::False };
        let by =
            |unread: Unread| critiques.iter().map(move |one| (one.item, one.tally.scores(unread))).collect::<Vec<_>>();
        let (scores, others) = (by(unread), by(other));
        let micro = micro(critiques, unread);
        let figures = |place: usize| {
            let values = |all: &[(usize, CritiqueScores)]| -> Vec<(usize, f64)> {
                all.iter().filter_map(|(item, one)| Some((*item, one.all()[place]?))).collect()
            };
            let had = values(&scores);
            ScoreFigures {
                critiques: had.len(),
                of_critiques: mean_of_critiques(&had),
                micro: micro[place],
                other_convention: mean(values(&others).into_iter().map(|(_, value)| value)),
            }
        };
        let sum = |of: fn(&CritiqueTally) -> Tally| {
            critiques.iter().map(|one| of(&one.tally)).fold(Tally::default(), |all, one| Tally {
                yes: all.yes + one.yes,
                no: all.no + one.no,
                unread: all.unread + one.unread,
            })
        };
        Self {
            system: system.to_owned(),
            critiques: critiques.len(),
            precision: figures(0),
            recall: figures(1),
            f1: figures(2),
            claims: CritiqueTally { precision: sum(|one| one.precision), recall: sum(|one| one.recall) },
            rank: None,
        }
    }

    /// In the order of [`SCORES`].
    pub(super) fn scores(&self) -> [(&'static str, &ScoreFigures); 3] {
        let [precision, recall, f1] = SCORES;
        [(precision, &self.precision), (recall, &self.recall), (f1, &self.f1)]
    }

    fn cells(&self) -> impl Iterator<Item = Cell> {
        let rank = self.rank.map(|rank| {
            // Ties share their ranks: 2.5 is second or third. Quantiles may fall in between.
            let place = |place: f64| fixed(place, 1).trim_end_matches(".0").to_owned();
            let ends = rank.low.zip(rank.high).map(|(low, high)| format!(" ({} … {})", place(low), place(high)));
            format!("{}{}", rank.rank, ends.unwrap_or_default())
        });
        let first = number(self.rank.and_then(|rank| rank.first));
        let macros = [self.precision, self.recall, self.f1].map(|one| number(one.of_critiques.figure.share));
        let micros = [self.precision, self.recall, self.f1].map(|one| number(one.micro.figure.share));
        let unread = self.claims.precision.unread + self.claims.recall.unread;
        cells![&self.system, rank, first, self.critiques]
            .into_iter()
            .chain(macros)
            .chain([bounds(self.f1.of_critiques.interval)])
            .chain(micros)
            .chain(cells![unread])
    }
}

/// The mean over critiques, each with the position of its sample. Critiques of one sample are dependent, so samples are
/// the units of the interval.
fn mean_of_critiques(values: &[(usize, f64)]) -> FigureEstimate<ShareFigure> {
    let by_sample: Vec<&[(usize, f64)]> = values.chunk_by(|a, b| a.0 == b.0).collect();
    let over = |kept: &[usize]| mean(kept.iter().flat_map(|&unit| by_sample[unit].iter().map(|(_, value)| *value)));
    let share = mean(values.iter().map(|(_, value)| *value));
    // Proportions of a few claims are not binary, even if all are 0 or 1, so the jackknife is used alone.
    let interval = jackknife(by_sample.len(), Resampling::default().confidence, Range::SHARE, over);
    FigureEstimate::new(ShareFigure { share }, interval)
}

/// Precision, recall and F1 over all claims together. Claims of one sample are dependent, so samples are the units of
/// the intervals.
fn micro(critiques: &[&ScoredCritique<'_>], unread: Unread) -> [FigureEstimate<ShareFigure>; 3] {
    let mut units: BTreeMap<usize, [(f64, f64); 2]> = BTreeMap::new();
    for critique in critiques {
        let unit = units.entry(critique.item).or_default();
        for (sum, tally) in unit.iter_mut().zip([critique.tally.precision, critique.tally.recall]) {
            if let Some((yes, all)) = tally.part(unread) {
                *sum = (sum.0 + yes as f64, sum.1 + all as f64);
            }
        }
    }
    let units: Vec<[(f64, f64); 2]> = units.into_values().collect();
    let share = |place: usize, kept: &[usize]| {
        let (yes, all) =
            kept.iter().fold((0.0, 0.0), |(yes, all), &unit| (yes + units[unit][place].0, all + units[unit][place].1));
        (all > 0.0).then(|| yes / all)
    };
    let everything: Vec<usize> = (0..units.len()).collect();
    let estimate = |place: usize| {
        let own: Vec<(f64, f64)> = units.iter().map(|unit| unit[place]).filter(|unit| unit.1 > 0.0).collect();
        let interval = ratio_interval(&own, Resampling::default().confidence, Range::SHARE);
        FigureEstimate::new(ShareFigure { share: share(place, &everything) }, interval)
    };
    let f1 = |kept: &[usize]| Some(harmonic(share(0, kept)?, share(1, kept)?));
    let value = f1(&everything);
    let interval = match value {
        Some(_) => jackknife(units.len(), Resampling::default().confidence, Range::SHARE, f1),
        None => Err(NoInterval::TooFew),
    };
    [estimate(0), estimate(1), FigureEstimate::new(ShareFigure { share: value }, interval)]
}

/// The rank of each system, from its F1 by sample.
fn ranks(scores: &[BTreeMap<usize, f64>], samples: usize, resampling: &Resampling) -> Vec<RankFigures> {
    let mut places: Vec<Vec<f64>> = vec![Vec::new(); scores.len()];
    let mut first = vec![0.0; scores.len()];
    for drawn in resampling.draws(samples) {
        let means: Vec<Option<f64>> =
            scores.iter().map(|own| mean(drawn.iter().filter_map(|item| own.get(item).copied()))).collect();
        let best = means.iter().flatten().copied().fold(f64::NEG_INFINITY, f64::max);
        let shared = means.iter().flatten().filter(|value| **value == best).count();
        for (system, own) in means.iter().enumerate() {
            let Some(own) = own else { continue };
            let above = means.iter().flatten().filter(|other| *other > own).count();
            let level = means.iter().flatten().filter(|other| *other == own).count();
            // Ties share the mean of their ranks.
            places[system].push(above as f64 + f64::midpoint(level as f64, 1.0));
            first[system] += if *own == best { 1.0 / shared as f64 } else { 0.0 };
        }
    }
    let figures = |(system, mut places): (usize, Vec<f64>)| {
        // A system with one sample has no meaningful interval.
        if scores[system].len() < 2 {
            return RankFigures { rank: system + 1, low: None, high: None, first: None, draws: 0 };
        }
        places.sort_by(f64::total_cmp);
        let draws = places.len();
        RankFigures {
            rank: system + 1,
            low: quantile(&places, 0.025),
            high: quantile(&places, 0.975),
            first: (draws > 0).then(|| first[system] / draws as f64),
            draws,
        }
    };
    places.into_iter().enumerate().map(figures).collect()
}

fn pairs(names: &[&str], scores: &[BTreeMap<usize, f64>], resampling: &Resampling) -> Vec<SystemPair> {
    let mut pairs = Vec::new();
    for (first, a) in scores.iter().enumerate() {
        for (second, b) in scores.iter().enumerate().skip(first + 1) {
            let differences: Vec<f64> = a.iter().filter_map(|(item, a)| Some(a - b.get(item)?)).collect();
            if differences.len() < 2 {
                continue;
            }
            let of = |kept: &[usize]| mean(kept.iter().map(|&unit| differences[unit]));
            let Some(difference) = resampling.paired_difference(differences.len(), Range::SHARE, of) else { continue };
            let win = |drawn: Vec<usize>| match of(&drawn) {
                Some(value) if value > 0.0 => 1.0,
                Some(0.0) => 0.5,
                _ => 0.0,
            };
            let first_wins = mean(resampling.draws(differences.len()).map(win)).unwrap_or(0.5);
            let samples = differences.len();
            let (first, second) = (names[first].to_owned(), names[second].to_owned());
            pairs.push(SystemPair { first, second, samples, difference, first_wins });
        }
    }
    pairs
}

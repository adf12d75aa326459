//! Compares a run with a baseline item by item, including the judge's own noise.

mod alike;
mod sides;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;

use probity_metrics::Direction;
use probity_stats::{CONFIDENCE, Interval, Range, are_level, mean_interval, sign_test, units_to_reach};
use serde::Serialize;

use crate::error::AnalysisError;
use crate::meta::unknown;
use alike::{Doubts, differences, doubts};
use probity_lm::text::counted;
use sides::{COMPARISONS, ItemTexts, PairedItem, Side, are_shares, check_candidate, compared, scored_items, side};

/// Minimum number of changed items for a decision: six changes of one sign have p = 2 / 2⁶ in a sign test, below 0.05.
const FEWEST_DIFFERENT: usize = 6;

/// Relative difference below which values count as equal.
const ROUNDING: f64 = 1e-9;

/// Options of the comparison.
#[derive(Debug, Clone, Default)]
pub struct GateOptions {
    /// Only these attributes or metrics; empty for all that both have.
    pub only: Vec<String>,
    /// Two candidates of one run to compare: the new one and its baseline.
    pub candidates: Option<(String, String)>,
    /// Largest loss that is ignored, on the scale of the scores.
    pub tolerance: f64,
    /// Largest gain that is ignored.
    pub minimum_effect: f64,
    /// Compare runs even if their models or source texts differ, or one is unfinished.
    pub unlike: bool,
    /// Ignore texts that have lost their score.
    pub missing: bool,
}

/// A run compared with a baseline.
#[derive(Debug, Clone, Serialize)]
pub struct Gated {
    /// Result for each attribute or metric that both have.
    pub attributes: Vec<GatedScores>,
    /// Limitations of the figures: different settings, unfinished runs, omitted items.
    pub caveats: Vec<String>,
    /// Whether a run reports its judge as unreliable.
    pub unreliable: bool,
    /// Whether the probabilities are debiased, if candidates of a pairwise run are compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub debiased: Option<bool>,
}

/// Result for an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GateOutcome {
    /// Texts with a score in the baseline have none in the run.
    Missing,
    /// The interval is below the tolerated loss.
    Worse,
    /// The interval is above the minimum effect.
    Better,
    /// The interval is between both limits.
    Same,
    /// The interval contains a limit, or too few items changed for a decision.
    Undecided,
    /// The difference varies as much with prompt or presentation order as its own size.
    Noise,
}

impl GateOutcome {
    /// Name in the output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Worse => "worse",
            Self::Better => "better",
            Self::Same => "same",
            Self::Undecided => "undecided",
            Self::Noise => "noise",
        }
    }
}

/// Result for one attribute of both runs.
#[derive(Debug, Clone, Serialize)]
pub struct GatedScores {
    /// The attribute or metric.
    pub name: String,
    /// The result.
    pub outcome: GateOutcome,
    /// Whether lower scores are better. `difference` is positive for an improvement either way.
    pub lower_is_better: bool,
    /// Means over items of the baseline and of the run; absent if no item has a score in both.
    pub means: Option<[f64; 2]>,
    /// Mean improvement on the scale of the scores; negative if the run is worse.
    pub difference: Option<f64>,
    /// 95% interval over items; absent if undefined.
    pub interval: Option<Interval>,
    /// Why it is undecided: no interval, or too few items changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Items with scores in both.
    pub items: usize,
    /// Items without a score on at least one side.
    pub unpaired: usize,
    /// Texts with a score in the baseline and none in the run.
    pub missing: usize,
    /// Largest change of the difference with prompt or presentation order; absent if the judge was queried in only one
    /// way.
    pub noise: Option<f64>,
    /// Approximate number of items needed for a decision; absent if decided, or if no number suffices.
    pub items_to_decide: Option<usize>,
}

/// Compares a run with a baseline, or one candidate of a run with another.
///
/// Texts of an item are paired by name. If the sides share no name, the item means are compared.
///
/// # Errors
/// Scores of different methods have different scales, and scores that sum to a constant within an item cannot be
/// compared across runs. Different models, precisions or source texts and unfinished runs are errors unless
/// [`GateOptions::unlike`] is set.
pub fn gate(run: &Path, baseline: Option<&Path>, options: &GateOptions) -> Result<Gated, AnalysisError> {
    let Doubts { mut caveats, mut unreliable } = doubts(run, options.unlike)?;
    let mut debiased = None;
    let [now, before] = match (baseline, &options.candidates) {
        (Some(baseline), None) => {
            let of_baseline = doubts(baseline, options.unlike)?;
            caveats.extend(of_baseline.caveats);
            unreliable |= of_baseline.unreliable;
            caveats.extend(differences(run, baseline, options.unlike)?);
            [side(run, None)?, side(baseline, None)?]
        }
        (None, Some((new, old))) => {
            [new, old].into_iter().try_for_each(|id| check_candidate(run, id))?;
            match compared(run, new, old)? {
                Some(compared) => {
                    debiased = Some(compared.debiased);
                    compared.sides
                }
                None => [side(run, Some(new))?, side(run, Some(old))?],
            }
        }
        _ => return Err(AnalysisError::NoBaseline),
    };
    let known: Vec<String> = now.keys().filter(|name| before.contains_key(*name)).cloned().collect();
    if let Some(name) = options.only.iter().find(|only| !known.contains(only)) {
        return Err(unknown("attribute or metric of both", name, "attribute", &known));
    }
    let mut gated = Vec::new();
    // Attributes that only the baseline has are missing entirely.
    let nothing = BTreeMap::new();
    for (name, (direction, before)) in &before {
        if !options.only.is_empty() && !options.only.contains(name) {
            continue;
        }
        let items = now.get(name).map_or(&nothing, |(_, items)| items);
        if baseline.is_some() && (run.join(COMPARISONS).is_file() || (are_shares(items) && are_shares(before))) {
            return Err(AnalysisError::Shares { run: run.display().to_string(), name: name.clone() });
        }
        // Shares of two candidates differ by 1 at most.
        let largest = if debiased.is_some() { 1.0 } else { f64::INFINITY };
        gated.extend(against(name, *direction, items, before, options)?.map(|one| one.within(largest)));
    }
    if gated.iter().all(|one| one.items == 0) {
        return Err(nothing_paired(run, &now, &before));
    }
    // Report the attribute with the highest count; attributes of one run have nearly the same texts.
    let most = |of: fn(&GatedScores) -> usize| gated.iter().filter(|one| of(one) > 0).max_by_key(|one| of(one));
    if let Some(most) = most(|one| one.missing) {
        let of = counted(most.items + most.unpaired, "item");
        caveats.push(format!("{} of {of} lost their score ({})", counted(most.missing, "text"), most.name));
    }
    if let Some(most) = most(|one| one.unpaired) {
        let all = most.items + most.unpaired;
        let alone = most.unpaired;
        caveats.push(format!(
            "{alone} of {all} items have no score on one side or both, and are left aside ({})",
            most.name
        ));
    }
    Ok(Gated { attributes: gated, caveats, unreliable, debiased })
}

/// Why no item has a score on both sides.
fn nothing_paired(run: &Path, now: &Side, before: &Side) -> AnalysisError {
    let run = run.display().to_string();
    match (scored_items(now), scored_items(before)) {
        (0, before) if before > 0 => AnalysisError::NoScoreNow { run, before: counted(before, "item") },
        _ => AnalysisError::NothingPaired { run },
    }
}

impl GatedScores {
    /// Clips the interval to possible differences.
    fn within(mut self, largest: f64) -> Self {
        self.interval = self.interval.map(|Interval { low, high }| Interval {
            low: low.clamp(-largest, largest),
            high: high.clamp(-largest, largest),
        });
        self
    }
}

fn against(
    name: &str,
    direction: Direction,
    now: &BTreeMap<String, ItemTexts>,
    before: &BTreeMap<String, ItemTexts>,
    options: &GateOptions,
) -> Result<Option<GatedScores>, AnalysisError> {
    let nothing = ItemTexts::new();
    let both: Vec<PairedItem> =
        before.iter().map(|(item, there)| PairedItem::new(now.get(item).unwrap_or(&nothing), there)).collect();
    let missing = both.iter().map(|item| item.missing).sum();
    let paired: Vec<(&PairedItem, [f64; 2])> = both.iter().filter_map(|item| Some((item, item.means?))).collect();
    if paired.is_empty() && missing == 0 {
        return Ok(None);
    }
    let gain = |[there, here]: [f64; 2]| {
        let gain = direction.upwards(here) - direction.upwards(there);
        // Values that differ by rounding alone are equal; whole numbers are exact.
        if are_level(here, there, ROUNDING) { 0.0 } else { gain }
    };
    let gains: Vec<f64> = paired.iter().map(|(_, means)| gain(*means)).collect();
    let difference = average(&gains);
    if gains.iter().chain(&difference).any(|gain| !gain.is_finite()) {
        return Err(AnalysisError::TooLarge { name: name.to_owned() });
    }
    let interval = mean_interval(&gains, CONFIDENCE, Range::Unbounded).ok();
    // The difference for each template or order, over the items that have all of them.
    let mut ways: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (item, _) in &paired {
        item.by_way.iter().for_each(|(way, means)| ways.entry(way).or_default().push(gain(*means)));
    }
    let by_way: Vec<f64> =
        ways.values().filter(|gains| gains.len() == paired.len()).filter_map(|gains| average(gains)).collect();
    let noise = difference
        .filter(|_| by_way.len() > 1)
        .map(|difference| by_way.iter().map(|gain| (gain - difference).abs()).fold(0.0, f64::max));
    let (outcome, why) = outcome(&gains, interval, options);
    let few = why.is_some();
    let is_decided = matches!(outcome, GateOutcome::Worse | GateOutcome::Better);
    let is_noise = is_decided && Option::zip(noise, difference).is_some_and(|(noise, gain)| noise >= gain.abs());
    let mean = |side: usize| average(&paired.iter().map(|(_, means)| means[side]).collect::<Vec<_>>());
    let outcome = match outcome {
        _ if missing > 0 && !options.missing => GateOutcome::Missing,
        _ if is_noise => GateOutcome::Noise,
        outcome => outcome,
    };
    let all = now.keys().chain(before.keys().filter(|item| !now.contains_key(*item))).count();
    Ok(Some(GatedScores {
        name: name.to_owned(),
        lower_is_better: direction == Direction::LowerIsBetter,
        outcome,
        means: Option::zip(mean(0), mean(1)).map(|(there, here)| [there, here]),
        difference,
        interval,
        why: why.filter(|_| missing == 0 || options.missing),
        items: paired.len(),
        unpaired: all - paired.len(),
        missing,
        noise,
        items_to_decide: (outcome == GateOutcome::Undecided && !paired.is_empty())
            .then(|| match interval {
                Some(interval) if !few => items_to_decide(difference?, interval, paired.len(), options),
                _ => (paired.len() < FEWEST_DIFFERENT).then_some(FEWEST_DIFFERENT),
            })
            .flatten(),
    }))
}

fn average(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Outcome for the differences of items, and why it is undecided if there is no interval.
fn outcome(gains: &[f64], interval: Option<Interval>, options: &GateOptions) -> (GateOutcome, Option<String>) {
    let GateOptions { tolerance, minimum_effect, .. } = options;
    let (low, high) = match (interval, gains) {
        (_, []) => return (GateOutcome::Undecided, Some("no item has a score on both sides".to_owned())),
        (Some(Interval { low, high }), _) => (low, high),
        (None, [first, ..]) if gains.iter().all(|gain| (gain - first).abs() <= ROUNDING * gain.abs()) => {
            // Equal differences have no spread, so no t interval.
            (*first, *first)
        }
        _ => return (GateOutcome::Undecided, Some("no interval over these items is known to cover".to_owned())),
    };
    let outcome = if high < -tolerance {
        GateOutcome::Worse
    } else if low > *minimum_effect {
        GateOutcome::Better
    } else if low >= -tolerance && high <= *minimum_effect {
        GateOutcome::Same
    } else {
        GateOutcome::Undecided
    };
    let different = gains.iter().filter(|gain| **gain != 0.0).count();
    if matches!(outcome, GateOutcome::Worse | GateOutcome::Better) && different < FEWEST_DIFFERENT {
        let items = counted(different, "item");
        let p = sign_test(different, 0).unwrap_or(1.0);
        let why = format!(
            "only {items} changed, for which a sign test has p {p:.3} at best: it can decide from {FEWEST_DIFFERENT} \
             items"
        );
        return (GateOutcome::Undecided, Some(why));
    }
    (outcome, None)
}

/// Number of items at which an interval of the same spread excludes the nearest limit.
fn items_to_decide(difference: f64, interval: Interval, items: usize, options: &GateOptions) -> Option<usize> {
    let GateOptions { tolerance, minimum_effect, .. } = options;
    let distance = (difference + tolerance).abs().min((difference - minimum_effect).abs());
    units_to_reach((interval.high - interval.low) / 2.0, items, distance, CONFIDENCE)
}

//! Confidence intervals of figures over few units: the delete-a-group jackknife with Student's t, and Clopper and
//! Pearson's interval for verdicts.
//!
//! Units are whole contexts (samples, pairs), so that dependent values stay together. For a mean the jackknife equals
//! the t interval. The percentile bootstrap covers only 0.53 with two contexts at a nominal 0.95; `docs/intervals.md`
//! has the coverage of each method. If no method reaches its coverage, there is a reason instead of an interval.

use serde::Serialize;

use crate::significance::{beta_quantile, beta_share, t_quantile, two_sided_t};
use crate::sum::ordered_sum;

/// Maximum number of groups omitted one at a time: single units up to this number, then groups of neighbouring units.
/// Means and ratios, which are cheap to recompute, always omit single units.
const GROUPS: usize = 200;
/// Fisher's z is infinite for a coefficient of ±1 and grows without bound near it.
const NEAREST_TO_ONE: f64 = 1.0 - 1e-6;
/// Maximum change of z by omitting one unit if there are [`FEW`] or more. The error of z is at least that large, so
/// beyond it the interval would depend on that unit alone: with all but one coefficient at 0.999 it ranged from −1 to
/// 1.
const FARTHEST: f64 = 0.5;
const FEW: usize = 10;

/// A confidence interval of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Why a figure has no interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, thiserror::Error, miette::Diagnostic)]
#[serde(rename_all = "snake_case")]
pub enum NoInterval {
    /// A single unit has no spread.
    #[error("one unit says nothing of how units differ")]
    TooFew,
    /// A correlation of system means over fewer than ten contexts: noise biases it towards 0, and no tested method
    /// reaches its coverage.
    #[error("fewer than ten contexts: noise pulls a correlation of means to 0")]
    FewContexts,
    /// A correlation of the ranks of system means: it depends on differences smaller than the noise, and no tested
    /// method reaches its coverage.
    #[error("ranks of means turn on differences smaller than noise")]
    Ranks,
    /// Without one unit a coefficient is ±1 or changes greatly: its error depends on that unit alone, and no tested
    /// method reaches its coverage.
    #[error("one context decides it")]
    OneDecides,
    /// Omitting any unit changes nothing, so the effect of other units is unknown.
    #[error("leaving out any unit changes nothing")]
    AllAlike,
    /// The figure is undefined, or undefined without some of the units.
    #[error("not defined, or not without some of the units")]
    Undefined,
    /// Recomputing the figure without each group would take minutes.
    #[error("too many scores to take it again without each group of them")]
    TooMany,
}

/// A figure with its interval over contexts, or why it has none.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct FigureEstimate<T> {
    /// The figure.
    #[serde(flatten)]
    pub figure: T,
    /// Absent if no method reaches its coverage.
    pub interval: Option<Interval>,
    /// Why it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_interval: Option<NoInterval>,
    /// Two-sided p of the figure being 0, from the method of the interval: the interval with confidence 1 − p ends at
    /// 0. Absent without an interval, and if not computed.
    #[serde(rename = "interval_p", skip_serializing_if = "Option::is_none")]
    pub p: Option<f64>,
}

impl<T> FigureEstimate<T> {
    /// A figure with its interval or the reason for its absence.
    pub fn new(figure: T, interval: Result<Interval, NoInterval>) -> Self {
        Self { figure, interval: interval.ok(), no_interval: interval.err(), p: None }
    }

    /// Transfers this interval to another figure, such as a part of it.
    pub fn with_figure<U>(self, figure: U) -> FigureEstimate<U> {
        let Self { interval, no_interval, p, .. } = self;
        FigureEstimate { figure, interval, no_interval, p }
    }

    /// Sets the p-value.
    #[must_use]
    pub(crate) fn with_p(self, p: Option<f64>) -> Self {
        Self { p, ..self }
    }
}

/// Possible range of a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Range {
    /// Any value.
    Unbounded,
    /// Between two values, which also bound the interval.
    Within(f64, f64),
    /// A correlation coefficient or a mean of them: the interval is computed on Fisher's scale z = artanh r and
    /// transformed back.
    Correlation,
}

impl Range {
    /// Shares, rates and accuracies.
    pub const SHARE: Self = Self::Within(0.0, 1.0);

    /// The range of a difference between two such figures.
    #[must_use]
    pub fn for_difference(self) -> Self {
        self.ends().map_or(Self::Unbounded, |(low, high)| Self::Within(low - high, high - low))
    }

    /// The bounds; `None` if unbounded.
    fn ends(self) -> Option<(f64, f64)> {
        match self {
            Self::Unbounded => None,
            Self::Within(low, high) => Some((low, high)),
            Self::Correlation => Some((-1.0, 1.0)),
        }
    }

    fn on_scale(self, value: f64) -> f64 {
        if self == Self::Correlation { value.atanh() } else { value }
    }

    fn turned_back(self, value: f64) -> f64 {
        match self {
            Self::Unbounded => value,
            Self::Within(low, high) => value.clamp(low, high),
            Self::Correlation => value.tanh(),
        }
    }
}

/// A figure, its standard error, and the number of groups.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Jackknifed {
    /// The range, which defines their scale.
    range: Range,
    value: f64,
    error: f64,
    degrees: f64,
}

impl Jackknifed {
    /// Computes the statistic over all units and without each group of them. It receives unit indices in ascending
    /// order.
    ///
    /// The variance is that of groups of unequal size (Busing, Meijer and van der Leeden 1999, eq. 9), which equals the
    /// usual one for groups of one.
    pub(crate) fn new(
        units: usize,
        range: Range,
        mut statistic: impl FnMut(&[usize]) -> Option<f64>,
    ) -> Result<Self, NoInterval> {
        if units < 2 {
            return Err(NoInterval::TooFew);
        }
        let mut over = |units: &[usize]| statistic(units).filter(|value| value.is_finite());
        let all: Vec<usize> = (0..units).collect();
        let value = over(&all).ok_or(NoInterval::Undefined)?;
        let groups = units.min(GROUPS);
        let mut kept = Vec::with_capacity(units);
        let mut without = Vec::with_capacity(groups);
        for group in 0..groups {
            let left_out = group * units / groups..(group + 1) * units / groups;
            kept.clear();
            kept.extend(all.iter().filter(|unit| !left_out.contains(unit)));
            let share = units as f64 / left_out.len() as f64;
            without.push((share, over(&kept).ok_or(NoInterval::Undefined)?));
        }
        Self::from_groups(value, without, units, range)
    }

    /// Jackknife of Σ sum / Σ weight that omits single units, however many there are: the rest follows from the total.
    fn from_ratio(units: &[(f64, f64)], range: Range) -> Result<Self, NoInterval> {
        let (sum, weight) =
            (ordered_sum(units.iter().map(|unit| unit.0)), ordered_sum(units.iter().map(|unit| unit.1)));
        let ratio = |(sum, weight): (f64, f64)| {
            (weight > 0.0).then(|| sum / weight).filter(|ratio| ratio.is_finite()).ok_or(NoInterval::Undefined)
        };
        let share = units.len() as f64;
        let without = |unit: &(f64, f64)| Ok((share, ratio((sum - unit.0, weight - unit.1))?));
        let without = units.iter().map(without).collect::<Result<_, _>>()?;
        Self::from_groups(ratio((sum, weight))?, without, units.len(), range)
    }

    /// Jackknife from the statistic over all units, and from its values without each group, each with the ratio of all
    /// units to the size of that group.
    fn from_groups(value: f64, without: Vec<(f64, f64)>, units: usize, range: Range) -> Result<Self, NoInterval> {
        let groups = without.len();
        // On Fisher's scale before any subtraction: the jackknife error is that of z, which is nearly normal.
        let values = || without.iter().map(|(_, value)| *value).chain([value]);
        if range == Range::Correlation && values().any(|one| one.abs() > NEAREST_TO_ONE) {
            // If all are ±1, no single one decides.
            let alike = values().all(|one| (one - value).abs() <= 1.0 - NEAREST_TO_ONE);
            return Err(if alike { NoInterval::AllAlike } else { NoInterval::OneDecides });
        }
        let value = range.on_scale(value);
        let pseudo: Vec<(f64, f64)> =
            without.into_iter().map(|(share, without)| (share, value - range.on_scale(without))).collect();
        let farthest = pseudo.iter().fold(0.0_f64, |most, (_, difference)| most.max(difference.abs()));
        if range == Range::Correlation && units >= FEW && farthest > FARTHEST {
            return Err(NoInterval::OneDecides);
        }
        // A pseudo-value is value + (share − 1) · difference; their weighted mean minus the value is the bias
        // correction.
        let bias = ordered_sum(pseudo.iter().map(|(share, difference)| (1.0 - 1.0 / share) * difference));
        let squares =
            pseudo.iter().map(|(share, difference)| ((share - 1.0) * difference - bias).powi(2) / (share - 1.0));
        let error = (ordered_sum(squares) / groups as f64).sqrt();
        // Rounding turns zero differences into small ones; an interval of that width would suggest certainty.
        if error <= 1e-10 * value.abs().max(farthest) {
            return Err(NoInterval::AllAlike);
        }
        Ok(Self { range, value, error, degrees: (groups - 1) as f64 })
    }

    pub(crate) fn interval(&self, confidence: f64) -> Interval {
        let reach = t_quantile(confidence, self.degrees) * self.error;
        let end = |value| self.range.turned_back(value);
        Interval { low: end(self.value - reach), high: end(self.value + reach) }
    }

    /// Two-sided p of the figure equalling `chance`, from the distance on the scale of the range.
    pub(crate) fn p(&self, chance: f64) -> f64 {
        two_sided_t((self.value - self.range.on_scale(chance)) / self.error, self.degrees)
    }
}

/// Jackknife interval of any statistic of units.
///
/// # Errors
/// The reason if no interval is known to reach its coverage.
pub fn jackknife(
    units: usize,
    confidence: f64,
    range: Range,
    statistic: impl FnMut(&[usize]) -> Option<f64>,
) -> Result<Interval, NoInterval> {
    Jackknifed::new(units, range, statistic).map(|found| found.interval(confidence))
}

/// The interval of Σ sum / Σ weight over units, each a `(sum, weight)`, whose ratio lies in the range.
///
/// Units of weight 1 that are each at an end of the range or halfway are verdicts: they use Clopper and Pearson's
/// interval, even if all are at the same end. So do coefficients of which [one decides](NoInterval::OneDecides), each
/// counting as a partial hit: among values between the same ends, verdicts have the largest spread. All others use the
/// jackknife, including coefficients that are all 0, since a context with constant scores counts as 0 by convention and
/// says nothing about the true coefficient.
///
/// # Errors
/// The reason if no interval is known to reach its coverage.
pub fn ratio_interval(units: &[(f64, f64)], confidence: f64, range: Range) -> Result<Interval, NoInterval> {
    Ratio::from_units(units, range).map(|found| found.interval(confidence))
}

/// Σ sum / Σ weight over units, with the method of its interval.
pub(crate) enum Ratio {
    /// Hits among trials, between these ends.
    Verdicts {
        hits: f64,
        n: usize,
        ends: (f64, f64),
    },
    Jackknifed(Jackknifed),
}

impl Ratio {
    fn from_units(units: &[(f64, f64)], range: Range) -> Result<Self, NoInterval> {
        if units.is_empty() {
            return Err(NoInterval::TooFew);
        }
        let verdicts = range.ends().and_then(|ends| Some((points(units, ends)?, ends)));
        let as_verdicts =
            |points: &[f64], ends| Self::Verdicts { hits: ordered_sum(points.iter().copied()), n: points.len(), ends };
        // Before the jackknife, whose error is 0 if all verdicts are equal.
        if let Some((points, ends)) = &verdicts
            && points.iter().all(|point| [0.0, 0.5, 1.0].contains(point))
            && (range != Range::Correlation || points.iter().any(|point| *point != 0.5))
        {
            return Ok(as_verdicts(points, *ends));
        }
        let found = if units.len() > GROUPS {
            Jackknifed::from_ratio(units, range)
        } else {
            Jackknifed::new(units.len(), range, |kept| {
                let of = |part: fn(&(f64, f64)) -> f64| ordered_sum(kept.iter().map(|unit| part(&units[*unit])));
                let (sum, weight) = (of(|unit| unit.0), of(|unit| unit.1));
                (weight > 0.0).then(|| sum / weight)
            })
        };
        match (found, verdicts) {
            (Err(NoInterval::OneDecides), Some((points, ends))) => Ok(as_verdicts(&points, ends)),
            (found, _) => found.map(Self::Jackknifed),
        }
    }

    /// A mean of verdicts and partial verdicts, such as a tie of three.
    pub(crate) fn verdicts(values: &[f64], range: Range) -> Result<Self, NoInterval> {
        let ends = range.ends().ok_or(NoInterval::Undefined)?;
        let units: Vec<(f64, f64)> = values.iter().map(|value| (*value, 1.0)).collect();
        let points = points(&units, ends).filter(|points| !points.is_empty()).ok_or(NoInterval::TooFew)?;
        Ok(Self::Verdicts { hits: ordered_sum(points.iter().copied()), n: points.len(), ends })
    }

    /// A mean of values.
    pub(crate) fn mean(values: &[f64], range: Range) -> Result<Self, NoInterval> {
        Self::from_units(&values.iter().map(|value| (*value, 1.0)).collect::<Vec<_>>(), range)
    }

    pub(crate) fn is_of_verdicts(&self) -> bool {
        matches!(self, Self::Verdicts { .. })
    }

    pub(crate) fn interval(&self, confidence: f64) -> Interval {
        match self {
            Self::Verdicts { hits, n, ends: (low, high) } => {
                let found = proportion(*hits, *n, confidence);
                Interval { low: low + (high - low) * found.low, high: low + (high - low) * found.high }
            }
            Self::Jackknifed(found) => found.interval(confidence),
        }
    }

    /// Two-sided p of the ratio equalling `chance`.
    pub(crate) fn p(&self, chance: f64) -> f64 {
        match self {
            Self::Verdicts { hits, n, ends: (low, high) } => proportion_p(*hits, *n, (chance - low) / (high - low)),
            Self::Jackknifed(found) => found.p(chance),
        }
    }
}

/// Position of each unit between the ends, from 0 to 1, if all have weight 1; positions within rounding of an end or
/// the middle are snapped to it.
fn points(units: &[(f64, f64)], (low, high): (f64, f64)) -> Option<Vec<f64>> {
    let point = |&(sum, weight): &(f64, f64)| {
        let point = (sum - low) / (high - low);
        let exact = [0.0, 0.5, 1.0].into_iter().find(|exact| (point - exact).abs() < 1e-12);
        (weight == 1.0).then(|| exact.unwrap_or(point))
    };
    units.iter().map(point).collect()
}

/// [`ratio_interval`] of a mean.
///
/// # Errors
/// The reason if no interval is known to reach its coverage.
pub fn mean_interval(values: &[f64], confidence: f64, range: Range) -> Result<Interval, NoInterval> {
    Ratio::mean(values, range).map(|found| found.interval(confidence))
}

/// Clopper and Pearson's interval of a mean of verdicts between 0 and 1, including partial hits such as a tie of three.
///
/// # Errors
/// No verdicts.
pub fn verdict_interval(points: &[f64], confidence: f64) -> Result<Interval, NoInterval> {
    Ratio::verdicts(points, Range::SHARE).map(|found| found.interval(confidence))
}

/// Approximate number of units for which the t interval of a mean has the half-width `wanted`, if the spread is as in
/// `units` units with half-width `half`. Absent beyond ten million.
pub fn units_to_reach(half: f64, units: usize, wanted: f64, confidence: f64) -> Option<usize> {
    const MOST: usize = 10_000_000;
    let reach = |units: usize| t_quantile(confidence, (units - 1) as f64) / (units as f64).sqrt();
    let enough = |more: usize| half / reach(units) * reach(more) <= wanted;
    if units < 2 || !enough(MOST) {
        return None;
    }
    let (mut few, mut many) = (units, MOST);
    while few + 1 < many {
        let middle = few.midpoint(many);
        if enough(middle) { many = middle } else { few = middle }
    }
    Some(many)
}

/// Clopper and Pearson's interval (1934) of a share, with ties as partial hits: it covers at least at its nominal rate,
/// for any n.
pub(crate) fn proportion(hits: f64, n: usize, confidence: f64) -> Interval {
    let (misses, tail) = (n as f64 - hits, (1.0 - confidence) / 2.0);
    Interval {
        // Without a hit or without a miss the beta distribution is undefined: the interval ends at the end of the
        // range.
        low: if hits > 0.0 { beta_quantile(tail, hits, misses + 1.0) } else { 0.0 },
        high: if misses > 0.0 { 1.0 - beta_quantile(tail, misses, hits + 1.0) } else { 1.0 },
    }
}

/// Two-sided p of a share equalling `chance`, in (0, 1): [`proportion`] with confidence 1 − p ends there.
fn proportion_p(hits: f64, n: usize, chance: f64) -> f64 {
    let misses = n as f64 - hits;
    let at_least = if hits > 0.0 { beta_share(hits, misses + 1.0, chance) } else { 1.0 };
    let at_most = if misses > 0.0 { beta_share(misses, hits + 1.0, 1.0 - chance) } else { 1.0 };
    (2.0 * at_least.min(at_most)).min(1.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::correlation::spearman;
    use crate::golden::GOLDEN;

    fn near(found: Interval, (low, high): (f64, f64)) {
        assert!((found.low - low).abs() < 1e-9 && (found.high - high).abs() < 1e-9, "{found:?} {low} {high}");
    }

    #[test]
    fn intervals_of_means_and_correlations_are_scipys() {
        let (a, b) = (&GOLDEN.units_a, &GOLDEN.units_b);
        near(mean_interval(a, 0.95, Range::Unbounded).expect("defined"), GOLDEN.mean_interval);
        let of = |kept: &[usize], list: &[f64]| kept.iter().map(|unit| list[*unit]).collect::<Vec<f64>>();
        let rho = |kept: &[usize]| spearman(&of(kept, a), &of(kept, b));
        near(jackknife(a.len(), 0.95, Range::Correlation, rho).expect("defined"), GOLDEN.spearman_interval);
    }

    #[test]
    fn of_many_units_too_the_interval_of_a_mean_is_students_and_their_order_does_not_matter() {
        let mut values: Vec<f64> = (0..777).map(|k| f64::from(k * 7919 % 101) / 10.0).collect();
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let error = (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0) / n).sqrt();
        let reach = t_quantile(0.95, n - 1.0) * error;
        near(mean_interval(&values, 0.95, Range::Unbounded).expect("defined"), (mean - reach, mean + reach));
        values.sort_by(f64::total_cmp);
        near(mean_interval(&values, 0.95, Range::Unbounded).expect("defined"), (mean - reach, mean + reach));
    }

    #[test]
    fn more_units_are_told_by_students_t_of_their_own_number() {
        // With two units the spread is poorly known, so their t is much too wide for more units.
        let half = |units: usize| t_quantile(0.95, (units - 1) as f64) / (units as f64).sqrt();
        for (units, wanted) in [(2, half(4)), (2, half(21)), (8, half(219)), (18, half(400))] {
            let needed = units_to_reach(half(units), units, wanted * (1.0 + 1e-9), 0.95).expect("some");
            assert!([4, 21, 219, 400].contains(&needed), "{needed}");
            assert!(half(needed) <= wanted * (1.0 + 1e-9) && half(needed - 1) > wanted);
        }
        assert_eq!((units_to_reach(1.0, 5, 0.0, 0.95), units_to_reach(1.0, 1, 0.5, 0.95)), (None, None));
    }

    #[test]
    fn intervals_of_shares_are_scipys_also_where_all_are_right() {
        for &(hits, n, low, high) in &GOLDEN.proportions {
            near(proportion(hits, n, 0.95), (low, high));
        }
        let right = mean_interval(&[1.0; 20], 0.95, Range::SHARE).expect("verdicts");
        assert!(right.high == 1.0 && (0.83..0.84).contains(&right.low), "{right:?}");
        let coefficients = mean_interval(&[1.0; 20], 0.95, Range::Correlation).expect("at an end");
        assert!((coefficients.low - (2.0 * right.low - 1.0)).abs() < 1e-12);
        let are_verdicts = |values: &[f64], range| Ratio::mean(values, range).is_ok_and(|mean| mean.is_of_verdicts());
        assert!(are_verdicts(&[1.0, 0.0, -1.0], Range::Correlation));
        assert!(!are_verdicts(&[1.0, 0.5, -1.0], Range::Correlation) && !are_verdicts(&[0.0; 2], Range::Correlation));
        assert!(!are_verdicts(&[], Range::Correlation) && !are_verdicts(&[0.3], Range::Correlation));
        assert!(are_verdicts(&[0.5, 1.0], Range::SHARE) && !are_verdicts(&[1.0 / 3.0, 1.0], Range::SHARE));
    }

    #[test]
    fn the_interval_of_confidence_1_minus_p_ends_at_chance() {
        let many: Vec<f64> = (0..30).map(|k| f64::from(k * 7 % 11) / 10.0 - 0.35).collect();
        for (values, range, chance) in [
            (&[1.0, 1.0, 0.0, 1.0, 0.5, 1.0, 1.0][..], Range::SHARE, 0.5),
            (&[0.0, 0.0, 1.0, 0.0, 0.0, 0.0], Range::SHARE, 0.5),
            (&[1.0, 1.0, 0.9, 1.0], Range::Correlation, 0.0),
            (&many, Range::Correlation, 0.0),
            (&many, Range::Unbounded, 0.0),
            (&[0.25, 0.75, 0.8, 0.3, 1.0], Range::SHARE, 1.0 / 3.0),
        ] {
            let p = Ratio::mean(values, range).expect("defined").p(chance);
            let found = mean_interval(values, 1.0 - p, range).expect("defined");
            let ends = [found.low, found.high].map(|end| (end - chance).abs());
            assert!(ends[0].min(ends[1]) < 1e-6, "{values:?} {p} {found:?}");
        }
        assert!(Ratio::mean(&[], Range::SHARE).is_err() && Ratio::mean(&[0.3], Range::Correlation).is_err());
        assert_eq!(Ratio::mean(&[0.5; 4], Range::SHARE).expect("ties are verdicts").p(0.5), 1.0);
    }

    #[test]
    fn what_no_method_covers_has_a_reason_instead() {
        assert_eq!(mean_interval(&[], 0.95, Range::SHARE), Err(NoInterval::TooFew));
        assert_eq!(mean_interval(&[0.3], 0.95, Range::SHARE), Err(NoInterval::TooFew));
        assert_eq!(mean_interval(&[0.3; 5], 0.95, Range::SHARE), Err(NoInterval::AllAlike));
        assert_eq!(jackknife(3, 0.95, Range::Unbounded, |_| None), Err(NoInterval::Undefined));
        assert_eq!(
            jackknife(3, 0.95, Range::Unbounded, |kept| kept.contains(&0).then_some(1.0)),
            Err(NoInterval::Undefined)
        );
        // The conventional 0 of constant scores is not a measured coefficient.
        assert_eq!(mean_interval(&[0.0], 0.95, Range::Correlation), Err(NoInterval::TooFew));
        assert_eq!(mean_interval(&[0.0; 5], 0.95, Range::Correlation), Err(NoInterval::AllAlike));
        assert!(mean_interval(&[0.0, 1.0], 0.95, Range::Correlation).is_ok());
        assert!(mean_interval(&[0.5; 5], 0.95, Range::SHARE).is_ok(), "ties are verdicts");
        // Without the one imperfect context the mean is exactly 1.
        let mut nearly = [1.0; 100];
        let perfect = mean_interval(&nearly, 0.95, Range::Correlation).expect("at an end");
        nearly[17] = 0.5;
        let found = mean_interval(&nearly, 0.95, Range::Correlation).expect("nearly at an end");
        assert!(perfect.low > found.low && found.low > 0.9 && found.high < 1.0, "{found:?}");
        let mirrored = mean_interval(&nearly.map(|value| -value), 0.95, Range::Correlation).expect("at the other end");
        assert!((mirrored.low + found.high).abs() < 1e-9 && (mirrored.high + found.low).abs() < 1e-9, "{mirrored:?}");
        // With two units away from the end, Fisher's scale applies and gives about the same interval.
        nearly[60] = 0.5;
        let two = mean_interval(&nearly, 0.95, Range::Correlation).expect("on Fisher's scale");
        assert!((two.low - found.low).abs() < 0.05, "{two:?} {found:?}");
        // One can decide even if the others are not exactly 1.
        let near: Vec<f64> = (0..40).map(|k| if k == 17 { 0.5 } else { 0.9999 }).collect();
        let found = mean_interval(&near, 0.95, Range::Correlation).expect("as verdicts");
        assert!((0.7..0.9).contains(&found.low), "{found:?}");
        let shuffled = |kept: &[usize]| Some(if kept.contains(&17) { 0.993 } else { 0.99999 });
        assert_eq!(jackknife(40, 0.95, Range::Correlation, shuffled), Err(NoInterval::OneDecides));
        let estimate = FigureEstimate::new((), mean_interval(&[0.3; 5], 0.95, Range::SHARE));
        assert_eq!((estimate.interval, estimate.no_interval), (None, Some(NoInterval::AllAlike)));
    }

    #[test]
    fn groups_of_unequal_size_say_about_what_single_units_do() {
        let values: Vec<f64> = (0..450).map(|k: u32| f64::from((k * k * 7919 + 31 * k) % 10_007 % 101)).collect();
        let mean = values.iter().sum::<f64>() / 450.0;
        let deviation = (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 449.0 / 450.0).sqrt();
        let found = mean_interval(&values, 0.95, Range::Unbounded).expect("defined");
        assert!(((found.high - found.low) / (2.0 * 1.97 * deviation) - 1.0).abs() < 0.1, "{found:?} {deviation}");
        assert!((f64::midpoint(found.low, found.high) - mean).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn an_interval_is_in_order_holds_the_figure_and_stays_in_its_range(
            values in prop::collection::vec(0.0_f64..1.0, 2..40),
            weights in prop::collection::vec(1.0_f64..3.0, 40),
        ) {
            let units: Vec<(f64, f64)> = values.iter().zip(&weights).map(|(v, w)| (v * w, *w)).collect();
            let ratio = units.iter().map(|u| u.0).sum::<f64>() / units.iter().map(|u| u.1).sum::<f64>();
            let found = ratio_interval(&units, 0.9, Range::SHARE).expect("values differ");
            prop_assert!(0.0 <= found.low && found.low <= ratio && ratio <= found.high && found.high <= 1.0);
            let surer = ratio_interval(&units, 0.99, Range::SHARE).expect("values differ");
            prop_assert!(surer.low <= found.low && found.high <= surer.high);
        }
    }
}

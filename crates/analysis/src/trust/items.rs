//! Scores joined with human judgements, by item.

use std::collections::{BTreeMap, BTreeSet};

use probity_stats::{CheckedVerdict, order};

/// A candidate's score, and the human score if there is one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct JudgedText<'a> {
    /// Candidate id.
    pub(crate) candidate: &'a str,
    /// Higher is better.
    pub(crate) score: f64,
    /// Human score; absent if there is none.
    pub(crate) people: Option<f64>,
}

/// Scored candidates by item id, and the pairs that people compared.
#[derive(Debug, Clone, Default)]
pub(crate) struct JudgedItems<'a> {
    items: BTreeMap<&'a str, Vec<JudgedText<'a>>>,
    /// Item, preferred candidate and other candidate.
    preferred: BTreeSet<(&'a str, &'a str, &'a str)>,
    /// Item and two candidates that people judged as a tie.
    level: BTreeSet<(&'a str, &'a str, &'a str)>,
}

/// Pairs of an item.
pub(super) fn pairs<'a, 'i>(
    item: &'i [JudgedText<'a>],
) -> impl Iterator<Item = (&'i JudgedText<'a>, &'i JudgedText<'a>)> {
    item.iter().enumerate().flat_map(|(place, first)| item[place + 1..].iter().map(move |second| (first, second)))
}

/// Absolute difference of two scores.
pub(super) fn apart(first: &JudgedText<'_>, second: &JudgedText<'_>) -> f64 {
    // Scores that differ by rounding alone are equal, in whatever order they were summed.
    if order(first.score, second.score).is_eq() { 0.0 } else { (first.score - second.score).abs() }
}

impl<'a> JudgedItems<'a> {
    /// Adds a candidate of an item.
    pub(crate) fn add(&mut self, item: &'a str, text: JudgedText<'a>) {
        let texts = self.items.entry(item).or_default();
        // Sorted by id, so that draws do not depend on the order of rows.
        texts.insert(texts.partition_point(|before| before.candidate <= text.candidate), text);
    }

    /// Records that people prefer one of a pair.
    pub(crate) fn prefer(&mut self, item: &'a str, preferred: &'a str, other: &'a str) {
        self.preferred.insert((item, preferred, other));
    }

    /// Records that people see a tie.
    pub(crate) fn level(&mut self, item: &'a str, one: &'a str, other: &'a str) {
        self.level.insert((item, one, other));
    }

    /// Records a tie for all pairs of the selected items added so far.
    pub(crate) fn level_where(&mut self, is_level: impl Fn(&str) -> bool) {
        for (id, item) in self.items.iter().filter(|(id, _)| is_level(id)) {
            self.level.extend(pairs(item).map(|(first, second)| (*id, first.candidate, second.candidate)));
        }
    }

    /// Whether people judged a pair, including ties. Two human scores also count, unless they only encode that another
    /// candidate is preferred.
    pub(super) fn is_seen(
        &self,
        item: &str,
        first: &JudgedText<'_>,
        second: &JudgedText<'_>,
        are_scores: bool,
    ) -> bool {
        let (a, b) = (first.candidate, second.candidate);
        let is_level = || {
            [&self.level, &self.preferred]
                .iter()
                .any(|said| said.contains(&(item, a, b)) || said.contains(&(item, b, a)))
        };
        let both = are_scores && first.people.is_some() && second.people.is_some();
        both || self.disagrees(item, first, second).is_some() || is_level()
    }

    /// All items.
    pub(super) fn texts(&self) -> impl Iterator<Item = (&'a str, &[JudgedText<'a>])> {
        self.items.iter().map(|(id, item)| (*id, item.as_slice()))
    }

    /// All pairs of all items.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&'a str, &JudgedText<'a>, &JudgedText<'a>)> {
        self.texts().flat_map(|(id, item)| pairs(item).map(move |(first, second)| (id, first, second)))
    }

    /// Whether people disagree with the scores on a pair; `None` if they did not judge it or saw a tie.
    pub(super) fn disagrees(&self, item: &str, first: &JudgedText<'_>, second: &JudgedText<'_>) -> Option<bool> {
        let said = |a: &str, b: &str| self.preferred.contains(&(item, a, b));
        let people = match (said(first.candidate, second.candidate), said(second.candidate, first.candidate)) {
            (true, false) => 1.0,
            (false, true) => -1.0,
            _ => first.people? - second.people?,
        };
        let scores = order(first.score, second.score) as i8;
        (people != 0.0).then_some(f64::from(scores) * people <= 0.0)
    }

    /// Number of items without a decided pair that have a pair to judge.
    pub(super) fn unlabelled(&self, are_scores: bool) -> usize {
        let labelled = self.labelled();
        let unseen = |(id, item): &(&'a str, &[JudgedText<'a>])| {
            !labelled.contains(id) && pairs(item).any(|(first, second)| !self.is_seen(id, first, second, are_scores))
        };
        self.texts().filter(unseen).count()
    }

    /// Items with a pair that people decided.
    pub(super) fn labelled(&self) -> BTreeSet<&'a str> {
        let seen = self.pairs().filter(|(id, first, second)| self.disagrees(id, first, second).is_some());
        seen.map(|(id, ..)| id).collect()
    }

    /// Judged pairs by item.
    pub(super) fn checked(&self) -> Vec<Vec<CheckedVerdict>> {
        let of_item = |(id, item): (&str, &[JudgedText<'_>])| {
            let checked = |(first, second): (&JudgedText<'_>, &JudgedText<'_>)| {
                let disagrees = self.disagrees(id, first, second)?;
                Some(CheckedVerdict { confidence: apart(first, second), disagrees })
            };
            pairs(item).filter_map(checked).collect()
        };
        self.texts().map(of_item).collect()
    }

    /// Median difference of the scores of a pair; `None` without pairs.
    pub(super) fn middle(&self) -> Option<f64> {
        let mut all: Vec<f64> = self.pairs().map(|(_, first, second)| apart(first, second)).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied()
    }

    /// Whether people judged pairs, and more often those with a large difference.
    pub(super) fn is_dense_above(&self, middle: f64) -> bool {
        if self.preferred.is_empty() {
            return false;
        }
        let mut seen = [(0_usize, 0_usize); 2];
        for (id, first, second) in self.pairs() {
            let half = &mut seen[usize::from(apart(first, second) >= middle)];
            half.0 += usize::from(self.disagrees(id, first, second).is_some());
            half.1 += 1;
        }
        let [below, above] = seen.map(|(seen, all)| seen as f64 / all.max(1) as f64);
        // Smaller differences may be chance.
        below < 0.8 * above
    }
}

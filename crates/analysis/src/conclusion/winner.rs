//! The winner among several systems, by the judge's scores and corrected by labels.

use std::collections::BTreeSet;

use probity_lm::text::counted;
use probity_stats::{CONFIDENCE, CorrectedShare, Interval, corrected_share, equalised, sign_test};
use serde_json::json;

use super::{ConclusionCase, Doubt, Finding, NO_GOLD, mean, percent, percents, point};
use crate::figures::{share_interval, sums_by_id};
use crate::thresholds::SIGNIFICANT;

/// Prefixes of ids that only number the texts of a sample.
const TEXTS: [&str; 13] = [
    "", "answer", "candidate", "completion", "generation", "hypothesis", "option", "output", "reply", "response",
    "summary", "text", "translation",
];

/// Ids that name a label or a position.
const PLACES: [&str; 6] = ["chosen", "first", "left", "rejected", "right", "second"];

/// Whether an id names a position (`1`, `A`, `response_b`), which may hold a different system in each sample.
pub fn is_position(id: &str) -> bool {
    let id = id.to_lowercase();
    if PLACES.contains(&id.as_str()) {
        return true;
    }
    let is_separator = |c: char| matches!(c, '_' | '-' | '.' | ' ');
    let text = id.trim_end_matches(|c: char| c.is_ascii_digit());
    let is_number = text.len() < id.len();
    let text = match text.char_indices().next_back() {
        // A single letter from `a` to `h`, or one after a separator.
        Some((at, 'a'..='h')) if !is_number => {
            let before = &text[..at];
            if before.is_empty() || before.ends_with(is_separator) { before } else { return false }
        }
        _ if is_number => text,
        _ => return false,
    };
    TEXTS.contains(&text.trim_end_matches(is_separator))
}

/// Wins and losses of two candidates over the samples that score both.
struct HeadToHead {
    wins: usize,
    ties: usize,
    losses: usize,
    share: f64,
    interval: Option<Interval>,
    /// p-value of a two-sided sign test.
    p: Option<f64>,
    /// Win rate corrected with the labels of some samples; absent for fewer than two labels.
    corrected: Option<CorrectedShare>,
    /// Labels that are ties.
    label_ties: usize,
}

/// What decides the winner: of two systems the one with more wins, of more the best by mean score.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Naming {
    /// The scores; labels do not contradict them.
    ByScores,
    /// The labels; the scores name no winner.
    ByLabels,
    /// No winner.
    Unnamed,
}

impl HeadToHead {
    fn new(case: &ConclusionCase<'_>, first: &str, second: &str) -> Option<Self> {
        let (mut labelled, mut unlabelled) = (Vec::new(), Vec::new());
        for (sample, scores) in case.samples.iter().zip(case.scores) {
            let place = |id: &str| sample.candidates.iter().position(|candidate| candidate.id == id);
            let Some((one, other)) = place(first).zip(place(second)) else { continue };
            let Some((score, against)) = scores[one].zip(scores[other]) else { continue };
            let by_judge = point(score, against);
            match case.by_people(sample, one, other) {
                Some(by_people) => labelled.push((by_judge, by_people)),
                None => unlabelled.push(by_judge),
            }
        }
        let points: Vec<f64> =
            labelled.iter().map(|(by_judge, _)| *by_judge).chain(unlabelled.iter().copied()).collect();
        let count = |value: f64| points.iter().filter(|point| **point == value).count();
        let (wins, ties, losses) = (count(1.0), count(0.5), count(0.0));
        Some(Self {
            wins,
            ties,
            losses,
            share: mean(points.iter().copied())?,
            interval: share_interval(&points).ok(),
            p: sign_test(wins, losses),
            corrected: corrected_share(&labelled, &unlabelled, CONFIDENCE).ok(),
            label_ties: labelled.iter().filter(|(_, by_people)| *by_people == 0.5).count(),
        })
    }

    /// `24 of 30 samples (80.0% [61.4, 92.3], sign test p = 0.001)`.
    fn text(&self, debiased: bool) -> String {
        let Self { wins, ties, losses, share, interval, p, .. } = self;
        let tied = if *ties == 0 { String::new() } else { format!(" and ties in {ties}") };
        let samples = counted(wins + ties + losses, "sample");
        let debiased = if debiased { "debiased, " } else { "" };
        let interval = percents(*interval, CONFIDENCE);
        format!("{wins} of {samples}{tied} ({debiased}{}{interval}, {})", percent(*share), p_text(*p))
    }

    /// Side of one half on which the corrected share lies: 1, −1, or 0 if its interval contains 0.5 or there is none.
    fn corrected_side(&self) -> i8 {
        match self.corrected.map(|corrected| corrected.interval) {
            Some(Interval { low, .. }) if low > 0.5 => 1,
            Some(Interval { high, .. }) if high < 0.5 => -1,
            _ => 0,
        }
    }

    /// `corrected with 12 labels (3 ties, each half a win), gpt wins 74.1% [52.0, 96.2]`; `None` without labels.
    fn corrected_text(&self, first: &str) -> Option<String> {
        let CorrectedShare { share, interval, labels, unlabelled, .. } = self.corrected?;
        let by = match unlabelled {
            0 => "by the labels of all samples".to_owned(),
            _ => format!("corrected with {}", counted(labels, "label")),
        };
        let ties = match self.label_ties {
            0 => "",
            1 => " (1 tie, half a win)",
            ties => &format!(" ({ties} ties, each half a win)"),
        };
        Some(format!("{by}{ties}, {first} wins {}{}", percent(share), percents(Some(interval), CONFIDENCE)))
    }
}

/// Systems by mean score, best first; of two, the winner first. Sentence and figures use only [`SystemRanking::naming`].
struct SystemRanking<'s> {
    systems: &'s [(&'s str, f64)],
    met: &'s HeadToHead,
    /// Whether the scores are trusted.
    trusted: bool,
    debiased: bool,
    judge: &'static str,
    /// The system that labels find best, if more than two systems tie by score.
    by_labels: Option<String>,
}

impl SystemRanking<'_> {
    fn is_tie(&self) -> bool {
        match self.systems {
            [_, _] => self.met.wins == self.met.losses,
            systems => systems[0].1 == systems[1].1,
        }
    }

    /// Labels take precedence over scores: a corrected share whose interval excludes 0.5 holds however bad the judge
    /// is. It covers one pair, so it decides the winner only if there are two systems.
    fn naming(&self) -> Naming {
        let Self { met, trusted, .. } = self;
        let side = met.corrected_side();
        let is_significant = met.p.is_some_and(|p| p < SIGNIFICANT);
        let by_scores = *trusted && !self.is_tie() && met.wins > met.losses;
        if by_scores && (side > 0 || side == 0 && is_significant) {
            Naming::ByScores
        } else if self.systems.len() == 2 && side > 0 {
            Naming::ByLabels
        } else {
            Naming::Unnamed
        }
    }

    fn says(&self) -> String {
        let Self { systems, met, trusted, judge, .. } = self;
        let [(first, _), (second, _), ..] = **systems else { unreachable!("two at least") };
        let counts = met.text(self.debiased);
        let naming = self.naming();
        let corrected = met.corrected_text(first);
        let by_scores = match (systems.len(), naming) {
            (2, Naming::ByLabels) => {
                let corrected = corrected.unwrap_or_default();
                let untrusted = if *trusted { "" } else { ", whose scores are not trusted," };
                return format!("{first} beats {second}: {corrected}; by the {judge}{untrusted} it wins {counts}");
            }
            (2, Naming::ByScores) => format!("{first} beats {second} in {counts}"),
            (2, Naming::Unnamed) if self.is_tie() => format!("{first} and {second} tie: each wins {counts}"),
            (2, Naming::Unnamed) if *trusted => format!("No clear winner: {first} beats {second} in {counts}"),
            (2, Naming::Unnamed) => {
                format!("No winner: untrusted scores prefer {first} to {second} in {counts}")
            }
            // One pair does not decide between systems with equal mean scores.
            _ if self.is_tie() => return self.level_text(),
            (all, naming) => {
                let beats = format!("beats {second} in {counts}");
                match naming {
                    Naming::ByScores => format!("Best of {all}: {first} has the highest mean score and {beats}"),
                    _ if *trusted => {
                        format!("No clear winner of {all}: {first} has the highest mean score and {beats}")
                    }
                    _ => format!("No winner of {all}: by untrusted scores {first} is first and {beats}"),
                }
            }
        };
        let Some(corrected) = corrected else { return by_scores };
        let so = match (met.corrected_side(), naming) {
            (0, _) => ", which is inconclusive",
            (_, Naming::Unnamed) => ", which decides only between these two",
            _ => "",
        };
        format!("{by_scores}; {corrected}{so}")
    }

    /// Sentence for more than two systems that tie for the highest mean.
    fn level_text(&self) -> String {
        let [(first, mean), (second, _), ..] = *self.systems else { unreachable!("two at least") };
        let all = self.systems.len();
        let level = self.systems.iter().filter(|(_, other)| *other == mean).count();
        let says = match level {
            _ if level == all => format!("All {all} candidates tie"),
            2 => format!("Best of {all} by mean score: {first} and {second} tie"),
            _ => format!("Best of {all} by mean score: {first}, {second} and {} more tie", level - 2),
        };
        let untrusted = if self.trusted { "" } else { ", by untrusted scores" };
        let by_labels = self.by_labels.as_ref().map(|labels| format!("; {labels}")).unwrap_or_default();
        format!("{says}{untrusted}{by_labels}")
    }

    /// Doubt about the winner without labels.
    fn doubt(&self) -> Doubt {
        let is_significant = self.met.p.is_some_and(|p| p < SIGNIFICANT);
        Doubt::Caution(match self.naming() {
            Naming::ByLabels => "decided by human labels, not by scores".to_owned(),
            _ if self.is_tie() => "they tie".to_owned(),
            _ if !is_significant => format!("the difference may be chance ({})", p_text(self.met.p)),
            // If systems miss samples, their means are over different samples.
            _ if self.met.wins < self.met.losses => "the second wins in more samples".to_owned(),
            _ => format!("it was {NO_GOLD}"),
        })
    }
}

impl ConclusionCase<'_> {
    /// Compares the best recurring system with the next, or reports why the ids name no systems. `None` if no sample
    /// has two scored candidates. `trusted`: whether the scores are trusted.
    pub(super) fn winner(&self, trusted: bool) -> Option<Finding> {
        let has_two = |scores: &Vec<Option<f64>>| scores.iter().flatten().count() > 1;
        if !self.scores.iter().any(has_two) {
            return None;
        }
        // Ids that occur once name texts, not systems; in a single sample no id can recur.
        let is_single = self.samples.len() == 1;
        let sums = sums_by_id(self.samples, self.scores);
        let recurring = sums.into_iter().filter(|(_, (_, n))| is_single || *n > 1);
        let (ids, means): (Vec<&str>, Vec<f64>) = recurring.map(|(id, (sum, n))| (id, sum / n as f64)).unzip();
        if !is_single && ids.len() > 1 && ids.iter().all(|id| is_position(id)) {
            return Some(unnamed(&format!("the ids {} are positions, not systems", listed(&ids))));
        }
        let mut systems: Vec<(&str, f64)> = ids.into_iter().zip(equalised(&means)).collect();
        // Equal means are sorted by name, so that the sentence does not depend on the order of the file.
        systems.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(b.0)));
        self.put_most_met_second(&mut systems);
        let [first, second, ..] = systems[..] else {
            return Some(unnamed("no two candidate ids occur in several samples"));
        };
        let Some(met) = HeadToHead::new(self, first.0, second.0) else {
            return Some(unnamed(&format!("{} and {} share no sample", first.0, second.0)));
        };
        // Two systems are ordered by labels if these decide, else by wins, as in the sign test; more systems by mean
        // score.
        let next_wins = match met.corrected_side() {
            0 => met.losses > met.wins,
            side => side < 0,
        };
        if systems.len() == 2 && next_wins {
            return Some(self.ranked(&[second, first], &HeadToHead::new(self, second.0, first.0)?, trusted));
        }
        Some(self.ranked(&systems, &met, trusted))
    }

    /// Of systems tied for second, moves the one with the most samples in common with the first to second place.
    fn put_most_met_second(&self, systems: &mut [(&str, f64)]) {
        let [first, rest @ ..] = systems else { return };
        let Some(mean) = rest.first().map(|second| second.1).filter(|mean| *mean < first.1) else { return };
        let met = |id: &str| HeadToHead::new(self, first.0, id).map_or(0, |met| met.wins + met.ties + met.losses);
        let level = rest.iter().take_while(|other| other.1 == mean).map(|other| met(other.0));
        // Of equal counts the first, which is the first by name.
        let most = level.enumerate().max_by_key(|(place, met)| (*met, std::cmp::Reverse(*place)));
        rest[..=most.map_or(0, |(place, _)| place)].rotate_right(1);
    }

    fn ranked(&self, systems: &[(&str, f64)], met: &HeadToHead, trusted: bool) -> Finding {
        let by_labels = if systems.len() > 2 { self.best_by_labels() } else { None };
        let (debiased, judge) = (self.debiased, self.judge);
        let ranking = SystemRanking { systems, met, trusted, debiased, judge, by_labels };
        let [(first, mean), (second, second_mean), ..] = *systems else { unreachable!("two at least") };
        let winner = (ranking.naming() != Naming::Unnamed).then_some(first);
        let means = [mean, second_mean].map(|mean| self.direction.upwards(mean));
        let figures = json!({ "head_to_head": {
            "winner": winner, "clear": winner.is_some(), "first": first, "second": second, "candidates": systems.len(),
            "means": means, "win_rate": met.share, "interval": met.interval, "wins": met.wins, "ties": met.ties,
            "losses": met.losses, "p": met.p, "corrected": met.corrected, "label_ties": met.label_ties,
        } });
        Finding::new(ranking.says(), figures, ranking.doubt())
    }
}

/// The finding if no winner is named.
fn unnamed(why: &str) -> Finding {
    let doubt = Doubt::Caution(format!("the scores were {NO_GOLD}"));
    Finding::new(format!("No winner: {why}"), json!({}), doubt)
}

/// `1, 2 and 3`; a long list is shortened.
fn listed(ids: &[&str]) -> String {
    const SHOWN: usize = 4;
    let ids: BTreeSet<&str> = ids.iter().copied().collect();
    let shown: Vec<&str> = ids.iter().take(SHOWN).copied().collect();
    match (&shown[..], ids.len()) {
        ([before @ .., last], all) if all <= SHOWN => format!("{} and {last}", before.join(", ")),
        (shown, all) => format!("{} and {} more", shown.join(", "), all - shown.len()),
    }
}

fn p_text(p: Option<f64>) -> String {
    match p {
        None => "no sign test".to_owned(),
        Some(p) if p < 0.001 => "sign test p < 0.001".to_owned(),
        Some(p) => format!("sign test p = {p:.3}"),
    }
}

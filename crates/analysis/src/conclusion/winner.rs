//! Which of several systems won, by a judge's scores and corrected by labels.

use std::collections::BTreeSet;

use probity_lm::text::counted;
use probity_stats::{CONFIDENCE, CorrectedShare, Interval, corrected_share, equalised, sign_test};
use serde_json::json;

use super::{ConclusionCase, Doubt, Finding, NO_GOLD, mean, percent, percents, point};
use crate::figures::{share_interval, sums_by_id};
use crate::thresholds::SIGNIFICANT;

/// What a text is called where its id says only which of the texts it is.
const TEXTS: [&str; 13] = [
    "", "answer", "candidate", "completion", "generation", "hypothesis", "option", "output", "reply", "response",
    "summary", "text", "translation",
];

/// Ids that say what people said of a text, or where it is.
const PLACES: [&str; 6] = ["chosen", "first", "left", "rejected", "right", "second"];

/// Whether an id names a position (`1`, `A`, `response_b`), which may hold another system's text in each sample.
pub fn is_position(id: &str) -> bool {
    let id = id.to_lowercase();
    if PLACES.contains(&id.as_str()) {
        return true;
    }
    let is_separator = |c: char| matches!(c, '_' | '-' | '.' | ' ');
    let text = id.trim_end_matches(|c: char| c.is_ascii_digit());
    let is_number = text.len() < id.len();
    let text = match text.char_indices().next_back() {
        // One of the first letters by itself, or behind a separator.
        Some((at, 'a'..='h')) if !is_number => {
            let before = &text[..at];
            if before.is_empty() || before.ends_with(is_separator) { before } else { return false }
        }
        _ if is_number => text,
        _ => return false,
    };
    TEXTS.contains(&text.trim_end_matches(is_separator))
}

/// How two candidates fare against each other in the samples that have scores of both.
struct HeadToHead {
    wins: usize,
    ties: usize,
    losses: usize,
    share: f64,
    interval: Option<Interval>,
    /// Of a two-sided sign test.
    p: Option<f64>,
    /// The share that people would give, from the labels of some samples; absent of fewer than two.
    corrected: Option<CorrectedShare>,
    /// Labels that see no difference.
    label_ties: usize,
}

/// What names a winner: of two systems the one that wins, of more the best by mean score.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Naming {
    /// The scores, and no labels against them.
    ByScores,
    /// The labels, where the scores name nobody.
    ByLabels,
    /// Nothing does.
    Unnamed,
}

impl HeadToHead {
    fn of(case: &ConclusionCase<'_>, first: &str, second: &str) -> Option<Self> {
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

    /// On which side of one half the corrected share lies: 1, −1, or 0 where its interval contains it or there is none.
    fn corrected_side(&self) -> i8 {
        match self.corrected.map(|corrected| corrected.interval) {
            Some(Interval { low, .. }) if low > 0.5 => 1,
            Some(Interval { high, .. }) if high < 0.5 => -1,
            _ => 0,
        }
    }

    /// `corrected with 12 human labels (3 ties, each half a win), gpt wins 74.1% [52.0, 96.2]`; nothing without labels.
    fn corrected_text(&self, first: &str) -> Option<String> {
        let CorrectedShare { share, interval, labels, unlabelled, .. } = self.corrected?;
        let by = match unlabelled {
            0 => "by the human labels of all samples".to_owned(),
            _ => format!("corrected with {}", counted(labels, "human label")),
        };
        let ties = match self.label_ties {
            0 => "",
            1 => " (1 tie, half a win)",
            ties => &format!(" ({ties} ties, each half a win)"),
        };
        Some(format!("{by}{ties}, {first} wins {}{}", percent(share), percents(Some(interval), CONFIDENCE)))
    }
}

/// Systems by mean score, the best first; of two the winner first. Sentence and figures read [`Ranking::naming`] alone.
struct Ranking<'s> {
    systems: &'s [(&'s str, f64)],
    met: &'s HeadToHead,
    /// Whether the scores can be trusted at all.
    trusted: bool,
    debiased: bool,
    judge: &'static str,
    /// Of more than two that are level by score, which the labels find best.
    by_labels: Option<String>,
}

impl Ranking<'_> {
    fn is_tie(&self) -> bool {
        match self.systems {
            [_, _] => self.met.wins == self.met.losses,
            systems => systems[0].1 == systems[1].1,
        }
    }

    /// Labels decide before the scores do: a corrected share that is clear of one half holds however bad the judge is. That
    /// share is of one pair, so of more than two systems it makes none the best by itself.
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
            // The samples of one pair say nothing of systems that are level by mean score.
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

    /// Of more than two systems, which are level at the top.
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

    /// What speaks against it where there is no agreement with labels.
    fn doubt(&self) -> Doubt {
        let is_significant = self.met.p.is_some_and(|p| p < SIGNIFICANT);
        Doubt::Caution(match self.naming() {
            Naming::ByLabels => "decided by human labels, not by scores".to_owned(),
            _ if self.is_tie() => "they tie".to_owned(),
            _ if !is_significant => format!("the difference may be chance ({})", p_text(self.met.p)),
            // In systems that are not in every sample, means are over different samples.
            _ if self.met.wins < self.met.losses => "the second wins in more samples".to_owned(),
            _ => format!("it was {NO_GOLD}"),
        })
    }
}

impl ConclusionCase<'_> {
    /// The best of the systems that recur from sample to sample, against the next; of ids that name no systems, why
    /// there is none. Nothing where no sample has two candidates with a score.
    /// `trusted`: whether the scores can be trusted at all.
    pub(super) fn winner(&self, trusted: bool) -> Option<Finding> {
        let has_two = |scores: &Vec<Option<f64>>| scores.iter().flatten().count() > 1;
        if !self.scores.iter().any(has_two) {
            return None;
        }
        // Ids that occur once are names of texts, not of systems; in a single sample none can recur.
        let is_single = self.samples.len() == 1;
        let sums = sums_by_id(self.samples, self.scores);
        let recurring = sums.into_iter().filter(|(_, (_, n))| is_single || *n > 1);
        let (ids, means): (Vec<&str>, Vec<f64>) = recurring.map(|(id, (sum, n))| (id, sum / n as f64)).unzip();
        if !is_single && ids.len() > 1 && ids.iter().all(|id| is_position(id)) {
            return Some(unnamed(&format!("the ids {} are positions, not systems", listed(&ids))));
        }
        let mut systems: Vec<(&str, f64)> = ids.into_iter().zip(equalised(&means)).collect();
        // By name where means are equal, so that the sentence does not depend on the order of the file.
        systems.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(b.0)));
        self.put_most_met_second(&mut systems);
        let [first, second, ..] = systems[..] else {
            return Some(unnamed("no two candidate ids occur in several samples"));
        };
        let Some(met) = HeadToHead::of(self, first.0, second.0) else {
            return Some(unnamed(&format!("{} and {} share no sample", first.0, second.0)));
        };
        // Of two the labels decide where they can, else the samples, as the sign test counts them; of more, the mean over
        // all that they met.
        let next_wins = match met.corrected_side() {
            0 => met.losses > met.wins,
            side => side < 0,
        };
        if systems.len() == 2 && next_wins {
            return Some(self.ranked(&[second, first], &HeadToHead::of(self, second.0, first.0)?, trusted));
        }
        Some(self.ranked(&systems, &met, trusted))
    }

    /// Of several that are level behind the first, the second is the one that the first met in most samples.
    fn put_most_met_second(&self, systems: &mut [(&str, f64)]) {
        let [first, rest @ ..] = systems else { return };
        let Some(mean) = rest.first().map(|second| second.1).filter(|mean| *mean < first.1) else { return };
        let met = |id: &str| HeadToHead::of(self, first.0, id).map_or(0, |met| met.wins + met.ties + met.losses);
        let level = rest.iter().take_while(|other| other.1 == mean).map(|other| met(other.0));
        // The first of those that are equal here too, which is by name.
        let most = level.enumerate().max_by_key(|(place, met)| (*met, std::cmp::Reverse(*place)));
        rest[..=most.map_or(0, |(place, _)| place)].rotate_right(1);
    }

    fn ranked(&self, systems: &[(&str, f64)], met: &HeadToHead, trusted: bool) -> Finding {
        let by_labels = if systems.len() > 2 { self.best_by_labels() } else { None };
        let (debiased, judge) = (self.debiased, self.judge);
        let ranking = Ranking { systems, met, trusted, debiased, judge, by_labels };
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

/// Why no winner is named.
fn unnamed(why: &str) -> Finding {
    let doubt = Doubt::Caution(format!("the scores were {NO_GOLD}"));
    Finding::new(format!("No winner: {why}"), json!({}), doubt)
}

/// `1, 2 and 3`; of many the first.
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

//! Which of several systems won, by a judge's scores and corrected by labels.

use std::collections::BTreeSet;

use probity_data::{Preference, Sample};
use probity_lm::text::counted;
use probity_stats::{CONFIDENCE, CorrectedShare, Interval, corrected_share, equalised, order, sign_test};
use serde_json::json;

use super::{ConclusionCase, Doubt, Finding, SIGNIFICANT, mean, percent, percents};
use crate::figures::{share_interval, sums_by_id};

/// What a text is called where its id says only which of the texts it is.
const TEXTS: [&str; 13] = [
    "", "answer", "candidate", "completion", "generation", "hypothesis", "option", "output", "reply", "response",
    "summary", "text", "translation",
];

/// Ids that say what people said of a text, or where it is.
const PLACES: [&str; 6] = ["chosen", "first", "left", "rejected", "right", "second"];

/// Whether an id names a position (`1`, `A`, `response_b`), which may hold another system's text in each sample.
fn is_position(id: &str) -> bool {
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
        })
    }

    /// `24 of 30 samples: 80.0 % [61.4, 92.3], sign test p = 0.001`.
    fn text(&self) -> String {
        let Self { wins, ties, losses, share, interval, p, .. } = self;
        let tied = if *ties == 0 { String::new() } else { format!(" and ties in {ties}") };
        let samples = counted(wins + ties + losses, "sample");
        format!("{wins} of {samples}{tied}: {}{}, {}", percent(*share), percents(*interval, CONFIDENCE), p_text(*p))
    }

    /// On which side of one half the corrected share lies: 1, −1, or 0 where its interval contains it or there is none.
    fn corrected_side(&self) -> i8 {
        match self.corrected.map(|corrected| corrected.interval) {
            Some(Interval { low, .. }) if low > 0.5 => 1,
            Some(Interval { high, .. }) if high < 0.5 => -1,
            _ => 0,
        }
    }

    /// `; corrected by 12 labels gpt wins 74.1 % [52.0, 96.2]`; nothing without labels.
    fn corrected_text(&self, first: &str) -> String {
        let Some(CorrectedShare { share, interval, labels, unlabelled, .. }) = self.corrected else {
            return String::new();
        };
        let by = match unlabelled {
            0 => "by the labels of all samples".to_owned(),
            _ => format!("corrected by {}", counted(labels, "label")),
        };
        let open = if self.corrected_side() == 0 { ", which leaves it open" } else { "" };
        format!("; {by} {first} wins {}{}{open}", percent(share), percents(Some(interval), CONFIDENCE))
    }
}

impl ConclusionCase<'_> {
    /// What people say of two candidates of a sample: 1 where the first is better, ½ where they see no difference;
    /// absent where they have not said.
    fn by_people(&self, sample: &Sample, first: usize, second: usize) -> Option<f64> {
        let [one, other] = [first, second].map(|place| &sample.candidates[place]);
        // The labels that agreement is computed with.
        if let (Some(_), Some(attribute)) = (self.gold, self.attribute) {
            return Some(point(*one.scores.get(attribute)?, *other.scores.get(attribute)?));
        }
        match sample.preference.as_ref().filter(|_| self.preferences)? {
            Preference::Tie => Some(0.5),
            Preference::Candidate(id) if *id == one.id => Some(1.0),
            Preference::Candidate(id) if *id == other.id => Some(0.0),
            Preference::Candidate(_) => None,
        }
    }

    /// The best of the systems that recur from sample to sample, against the next; of ids that name no systems, why
    /// there is none. Nothing where no sample has two candidates with a score.
    pub(super) fn winner(&self) -> Option<Finding> {
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
        let [first, second, ..] = systems[..] else {
            return Some(unnamed("no two candidate ids recur from sample to sample"));
        };
        let Some(met) = HeadToHead::of(self, first.0, second.0) else {
            return Some(unnamed(&format!("{} and {} are in no sample together", first.0, second.0)));
        };
        // Of two the samples decide, as the sign test counts them; of more, the mean over all that they met.
        if systems.len() == 2 && met.losses > met.wins {
            return Some(self.ranked(&[second, first], &HeadToHead::of(self, second.0, first.0)?));
        }
        Some(self.ranked(&systems, &met))
    }

    fn ranked(&self, systems: &[(&str, f64)], met: &HeadToHead) -> Finding {
        let [(first, mean), (second, second_mean), ..] = *systems else { unreachable!("two at least") };
        let all = systems.len();
        let tie = if all == 2 { met.wins == met.losses } else { mean == second_mean };
        // Of systems that are not in every sample, means are over different samples.
        let led = met.wins > met.losses;
        let clear = met.p.is_some_and(|p| p < SIGNIFICANT);
        let side = met.corrected_side();
        let doubt = Doubt::Caution(match (tie, clear) {
            (true, _) => "they are level".to_owned(),
            (false, true) if !led => "sample by sample the next one wins".to_owned(),
            (false, true) => "it was held against no gold".to_owned(),
            (false, false) => format!("the difference may be chance ({})", p_text(met.p)),
        });
        let is_named = !tie && led && (clear || side > 0) && side >= 0;
        let level = systems.iter().filter(|(_, other)| *other == mean).count();
        let counts = met.text();
        let (before, beats) = (format!("{first}, before {second}"), format!("which it beats in {counts}"));
        let says = match (all, tie) {
            (2, true) => format!("{first} and {second} are level: each wins {counts}"),
            (2, false) if is_named => format!("{first} beats {second} in {counts}"),
            (2, false) if side < 0 => format!("No winner: by the judge {first} beats {second} in {counts}"),
            (2, false) => format!("No clear winner: {first} beats {second} in {counts}"),
            (_, true) if level == all => format!("All {all} candidates are level"),
            (_, true) if level == 2 => format!("Best of {all} by mean score: {first} and {second} are level"),
            (_, true) => format!("Best of {all} by mean score: {first}, {second} and {} more are level", level - 2),
            (_, false) if is_named => format!("Best of {all} by mean score: {before}, {beats}"),
            (_, false) => format!("No clear winner of {all}: first by mean score is {before}, {beats}"),
        };
        // An unreliable judge names no winner, whatever its figures say.
        let unbelieved = (!tie).then(|| match all {
            2 => format!("No winner: scores that cannot be trusted put {first} before {second} in {counts}"),
            _ => format!(
                "None of {all} is the best: scores that cannot be trusted put {first} first, before {second}, {beats}"
            ),
        });
        let corrected = if all == 2 || !tie { met.corrected_text(first) } else { String::new() };
        let means = [mean, second_mean].map(|mean| self.direction.upwards(mean));
        let figures = json!({ "head_to_head": {
            "winner": (!tie).then_some(first), "runner_up": second, "clear": is_named, "candidates": all, "means": means,
            "win_rate": met.share, "interval": met.interval, "wins": met.wins, "ties": met.ties, "losses": met.losses, "p": met.p,
            "corrected": met.corrected,
        } });
        let [says, unbelieved] = [Some(says), unbelieved].map(|text| text.map(|text| text + &corrected));
        Finding { says: says.unwrap_or_default(), unbelieved, figures, doubt }
    }
}

/// Why no winner is named.
fn unnamed(why: &str) -> Finding {
    let doubt = Doubt::Caution("the scores were held against no gold".to_owned());
    Finding::new(format!("No winner is named: {why}"), json!({}), doubt)
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

/// 1 where the first is greater, ½ where rounding alone parts them.
fn point(first: f64, second: f64) -> f64 {
    match order(first, second) {
        std::cmp::Ordering::Greater => 1.0,
        std::cmp::Ordering::Equal => 0.5,
        std::cmp::Ordering::Less => 0.0,
    }
}

fn p_text(p: Option<f64>) -> String {
    match p {
        None => "no sign test".to_owned(),
        Some(p) if p < 0.001 => "sign test p < 0.001".to_owned(),
        Some(p) => format!("sign test p = {p:.3}"),
    }
}

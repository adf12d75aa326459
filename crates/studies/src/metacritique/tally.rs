//! Tallies of claim labels and the resulting scores of a critique (equations 1 to 5).

use serde::Serialize;

use super::options::Unread;

/// The number of claims by label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub(super) struct Tally {
    /// True claims.
    #[serde(rename = "true")]
    pub(super) yes: usize,
    /// False claims.
    #[serde(rename = "false")]
    pub(super) no: usize,
    /// Claims with an unreadable label.
    pub(super) unread: usize,
}

impl Tally {
    pub(super) fn from_labels(labels: impl IntoIterator<Item = Option<bool>>) -> Self {
        labels.into_iter().fold(Self::default(), |tally, label| match label {
            Some(true) => Self { yes: tally.yes + 1, ..tally },
            Some(false) => Self { no: tally.no + 1, ..tally },
            None => Self { unread: tally.unread + 1, ..tally },
        })
    }

    /// The number of true claims and the total; `None` without claims.
    pub(super) fn part(self, unread: Unread) -> Option<(usize, usize)> {
        let all = self.yes + self.no + if unread == Unread::False { self.unread } else { 0 };
        (all > 0).then_some((self.yes, all))
    }

    /// The share of true claims.
    pub(super) fn share(self, unread: Unread) -> Option<f64> {
        self.part(unread).map(|(yes, all)| yes as f64 / all as f64)
    }
}

/// The labels of a critique's claims, and of the reference's claims in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub(super) struct CritiqueTally {
    pub(super) precision: Tally,
    pub(super) recall: Tally,
}

/// The three scores of a critique; each is absent without claims to decide.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub(super) struct CritiqueScores {
    pub(super) precision: Option<f64>,
    pub(super) recall: Option<f64>,
    pub(super) f1: Option<f64>,
}

/// The names of the scores in the order of the fields.
pub(super) const SCORES: [&str; 3] = ["precision", "recall", "f1"];

impl CritiqueScores {
    /// From precision and recall.
    pub(super) fn new(precision: Option<f64>, recall: Option<f64>) -> Self {
        Self { precision, recall, f1: precision.zip(recall).map(|(p, r)| harmonic(p, r)) }
    }

    /// In the order of [`SCORES`].
    pub(super) fn all(self) -> [Option<f64>; 3] {
        [self.precision, self.recall, self.f1]
    }
}

impl CritiqueTally {
    pub(super) fn scores(self, unread: Unread) -> CritiqueScores {
        CritiqueScores::new(self.precision.share(unread), self.recall.share(unread))
    }
}

/// The harmonic mean (equation 5); 0 if either is 0.
pub(super) fn harmonic(precision: f64, recall: f64) -> f64 {
    let sum = precision + recall;
    if sum == 0.0 { 0.0 } else { 2.0 * precision * recall / sum }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_false_or_left_out() {
        let precision = Tally::from_labels([Some(true), Some(true), None, Some(false)]);
        let recall = Tally::from_labels([Some(true), None]);
        let tally = CritiqueTally { precision, recall };
        assert_eq!(tally.scores(Unread::False).all(), [Some(0.5), Some(0.5), Some(0.5)]);
        let left_out = tally.scores(Unread::LeftOut);
        assert_eq!((left_out.precision, left_out.recall), (Some(2.0 / 3.0), Some(1.0)));
        assert!((left_out.f1.expect("both") - 0.8).abs() < 1e-12);
        let nothing = CritiqueTally::default().scores(Unread::False);
        assert_eq!(nothing.all(), [None; 3]);
        let unread = CritiqueTally { precision: Tally::from_labels([None]), recall };
        assert_eq!((unread.scores(Unread::False).f1, unread.scores(Unread::LeftOut).f1), (Some(0.0), None));
    }
}

//! Pairs of revisions with human preferences.

use std::collections::BTreeSet;

use probity_data::{LineError, Preference, Sample};
use serde::Serialize;

use super::forms::CATEGORIES;

/// A revision.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct RevisionText<'a> {
    pub(super) sample: &'a Sample,
    /// Position among the sample's candidates.
    pub(super) place: usize,
}

/// Two revisions of one text.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RevisionPair<'a> {
    pub(super) sample: &'a Sample,
    /// Positions among the sample's candidates.
    pub(super) places: [usize; 2],
    /// Positions among all revisions.
    pub(super) texts: [usize; 2],
    /// The human preference: 1 for the first, −1 for the second, 0 for neither; absent if unknown.
    pub(super) human: Option<i8>,
    pub(super) difficulty: Option<Difficulty>,
}

/// All revisions, and all pairs of revisions of the same text.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Revisions<'a> {
    pub(super) texts: Vec<RevisionText<'a>>,
    pub(super) pairs: Vec<RevisionPair<'a>>,
}

impl<'a> Revisions<'a> {
    /// From samples with at least two candidates.
    pub(super) fn from_samples(samples: &'a [Sample]) -> Self {
        let mut all = Self { texts: Vec::new(), pairs: Vec::new() };
        for sample in samples.iter().filter(|sample| sample.candidates.len() > 1) {
            let (before, count) = (all.texts.len(), sample.candidates.len());
            all.texts.extend((0..count).map(|place| RevisionText { sample, place }));
            let pairs = (0..count).flat_map(|first| (first + 1..count).map(move |second| [first, second]));
            all.pairs.extend(pairs.map(|places| {
                let human = human(sample, places);
                let difficulty = Difficulty::from_answers(sample, places, human);
                RevisionPair { sample, places, texts: places.map(|place| before + place), human, difficulty }
            }));
        }
        all
    }
}

impl<'a> RevisionText<'a> {
    pub(super) fn id(&self) -> &'a str {
        &self.sample.candidates[self.place].id
    }

    pub(super) fn text(&self) -> &'a str {
        &self.sample.candidates[self.place].text
    }
}

/// The difficulty of choosing the preferred revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Difficulty {
    /// Only one follows the instruction.
    Easy,
    /// Both follow it, and only one is acceptable.
    Medium,
    /// Both are acceptable, and one is preferred.
    Hard,
}

impl Difficulty {
    pub(super) const ALL: [Self; 3] = [Self::Easy, Self::Medium, Self::Hard];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Easy => "easy",
            Self::Medium => "medium",
            Self::Hard => "hard",
        }
    }

    /// From human answers about a pair; `None` if they are missing or do not distinguish the two.
    fn from_answers(sample: &Sample, [first, second]: [usize; 2], human: Option<i8>) -> Option<Self> {
        let both = |attribute: &str| -> Option<[bool; 2]> {
            let of = |place: usize| sample.candidates[place].scores.get(attribute).map(|score| *score > 0.0);
            Some([of(first)?, of(second)?])
        };
        let (related, acceptable) = (both("relatedness")?, both("acceptable")?);
        match (related, acceptable) {
            ([a, b], _) if a != b => Some(Self::Easy),
            ([true, true], [a, b]) if a != b => Some(Self::Medium),
            (_, [true, true]) if human.is_some_and(|side| side != 0) => Some(Self::Hard),
            _ => None,
        }
    }
}

impl<'a> RevisionPair<'a> {
    /// The group of dependent pairs: those of one paragraph are drawn together.
    pub(super) fn group(&self) -> &'a str {
        self.sample.text("paragraph").unwrap_or(&self.sample.id)
    }

    /// Whether it has this category of revisions.
    pub(super) fn is_of(&self, category: &str) -> bool {
        categories(self.sample).contains(category)
    }
}

fn human(sample: &Sample, places: [usize; 2]) -> Option<i8> {
    match sample.preference.as_ref()? {
        // With more than two candidates a tie does not show which of them are equal.
        Preference::Tie => (sample.candidates.len() == 2).then_some(0),
        Preference::Candidate(id) => {
            let preferred = sample.candidates.iter().position(|candidate| candidate.id == *id)?;
            [1, -1].into_iter().zip(places).find(|(_, place)| *place == preferred).map(|(side, _)| side)
        }
    }
}

/// Human answers that are no possible answer of their question, so that nothing can be compared with them.
pub(super) fn impossible_answers(sample: &Sample) -> Vec<LineError> {
    let answers = |name: &str| match name {
        "relatedness" => Some((
            &[0.0, 1.0, 2.0][..],
            "0 (does not follow the instruction), 1 (with further changes) or 2 \
                                         (strictly)",
        )),
        "acceptable" => Some((&[0.0, 1.0][..], "0 (no) or 1 (yes)")),
        _ => {
            let known = CATEGORIES.iter().any(|(category, ..)| *category == name);
            known.then_some((&[0.0, 1.0][..], "0 (not better in it) or 1 (better)"))
        }
    };
    let mut wrong = Vec::new();
    for (place, candidate) in sample.candidates.iter().enumerate() {
        for (name, score) in &candidate.scores {
            if let Some((known, meaning)) = answers(name)
                && !known.contains(score)
            {
                let field = format!("candidates[{place}].scores.{name}");
                let error =
                    LineError::content(field, format!("{score} is not a valid answer to this question: {meaning}"));
                wrong.push(error.with_hint("rename scores with another scale"));
            }
        }
    }
    wrong
}

/// The categories of a revision: the lines of the text `categories`.
pub(super) fn categories(sample: &Sample) -> BTreeSet<&str> {
    sample.text("categories").into_iter().flat_map(str::lines).map(str::trim).filter(|line| !line.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::sample;

    #[test]
    fn what_parts_two_revisions_is_their_difficulty() {
        let made = |related: [f64; 2], acceptable: [f64; 2], preferred: Option<&str>| {
            let mut one = sample("a", &[0.0, 0.0]);
            for place in 0..2 {
                one.candidates[place].scores.insert("relatedness".into(), related[place]);
                one.candidates[place].scores.insert("acceptable".into(), acceptable[place]);
            }
            let id = |place: usize| one.candidates[place].id.clone();
            one.preference = Some(match preferred {
                Some("first") => Preference::Candidate(id(0)),
                Some(_) => Preference::Candidate(id(1)),
                None => Preference::Tie,
            });
            let samples = [one];
            let all = Revisions::from_samples(&samples).pairs;
            (all[0].human, all[0].difficulty)
        };
        assert_eq!(made([2.0, 0.0], [1.0, 1.0], Some("first")), (Some(1), Some(Difficulty::Easy)));
        assert_eq!(made([2.0, 1.0], [0.0, 1.0], Some("second")), (Some(-1), Some(Difficulty::Medium)));
        assert_eq!(made([1.0, 1.0], [1.0, 1.0], Some("second")), (Some(-1), Some(Difficulty::Hard)));
        assert_eq!(made([1.0, 1.0], [1.0, 1.0], None), (Some(0), None));
        assert_eq!(made([0.0, 0.0], [0.0, 0.0], None), (Some(0), None));
    }

    #[test]
    fn answers_that_no_question_has_are_named() {
        let mut one = sample("a", &[3.0]);
        one.candidates[0].scores.extend([("relatedness".to_owned(), 1.0), ("acceptable".to_owned(), 1.0)]);
        assert!(impossible_answers(&one).is_empty(), "other scores are anything");
        one.candidates[0].scores.extend([("relatedness".to_owned(), 7.0), ("concision".to_owned(), 0.5)]);
        let told: Vec<String> = impossible_answers(&one).iter().map(ToString::to_string).collect();
        assert!(
            told.len() == 2 && told[1].contains("candidates[0].scores.relatedness") && told[1].contains('7'),
            "{told:?}"
        );
    }

    #[test]
    fn of_several_revisions_each_two_are_a_pair() {
        let mut one = sample("a", &[1.0, 2.0, 3.0]);
        one.preference = Some(Preference::Candidate(one.candidates[1].id.clone()));
        let samples = [sample("alone", &[1.0]), one];
        let all = Revisions::from_samples(&samples);
        let pairs: Vec<_> = all.pairs.iter().map(|pair| (pair.places, pair.texts, pair.human)).collect();
        assert_eq!(pairs, [([0, 1], [0, 1], Some(-1)), ([0, 2], [0, 2], None), ([1, 2], [1, 2], Some(1))]);
        assert_eq!(all.texts.len(), 3);
    }
}

//! Figures of an examination.

use std::collections::BTreeMap;

use probity_analysis::plot::{Drawing, LineAxis, Plot, Point, Series};
use probity_stats::{FigureEstimate, Interval, KappaWeights, Range, Resampling, cohen_kappa, jackknife};
use serde::Serialize;

use super::judgements::{Verdict, verdict};
use super::units::{Passage, Unit};
use super::words::INTERROGATIVES;
use super::work::{AskedUnits, ExaminationResults, RoundTally, UnitState};
use crate::figures::{ShareFigure, TokenTally, bounds, decimals, number};
use crate::{Cell, Table, cells};

/// Counts of units by verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub(super) struct UnitTally {
    pub(super) units: usize,
    pub(super) correct: usize,
    pub(super) incorrect: usize,
}

impl UnitTally {
    fn add(&mut self, state: &UnitState) {
        self.units += 1;
        match state.covered {
            Some((true, ..)) => self.correct += 1,
            Some((false, ..)) => self.incorrect += 1,
            None => {}
        }
    }

    fn covered(self) -> usize {
        self.correct + self.incorrect
    }
}

/// A share of units: its name, and its numerator and denominator.
pub(super) type DocumentShare = (&'static str, fn(UnitTally) -> (usize, usize));

/// The shares reported for each document and overall.
pub(super) const SHARES: [DocumentShare; 3] = [
    ("accuracy by document", |one| (one.correct, one.covered())),
    ("coverage by document", |one| (one.covered(), one.units)),
    ("recall by document", |one| (one.correct, one.units)),
];

/// The units of each document that has any, in order.
pub(super) fn by_document<'a>(
    passages: &'a [Passage],
    units: &[Unit],
    states: &[UnitState],
) -> Vec<(&'a str, UnitTally)> {
    let mut all: Vec<(&str, UnitTally)> = Vec::new();
    for (unit, state) in units.iter().zip(states) {
        let document = passages[unit.passage].document.as_str();
        // Passages of a document are adjacent.
        if all.last().is_none_or(|(known, _)| *known != document) {
            all.push((document, UnitTally::default()));
        }
        if let Some((_, tally)) = all.last_mut() {
            tally.add(state);
        }
    }
    all
}

/// The figures over all units.
#[derive(Debug, Clone, Serialize)]
pub(super) struct ExaminationFigures {
    #[serde(flatten)]
    pub(super) tally: UnitTally,
    /// Correct units as a share of covered ones.
    pub(super) accuracy: FigureEstimate<ShareFigure>,
    /// Covered units as a share of all.
    pub(super) coverage: FigureEstimate<ShareFigure>,
    /// Units that some question asked for, with the covered ones among them. The remaining gap in coverage is due to
    /// the questions, not the answers.
    pub(super) asked_for: usize,
    pub(super) coverage_of_asked: Option<f64>,
    /// Correct units as a share of all: unweighted nugget recall (`A_strict`).
    pub(super) recall: FigureEstimate<ShareFigure>,
    /// Units with a known weight; those without count as vital.
    pub(super) weighed: usize,
    pub(super) vital: UnitTally,
    pub(super) okay: UnitTally,
    /// Correct vital units as a share of vital ones (`V_strict`).
    pub(super) vital_recall: Option<f64>,
    /// Recall with okay units at half weight (`W_strict`).
    pub(super) weighted_recall: Option<f64>,
}

impl ExaminationFigures {
    pub(super) fn new(passages: &[Passage], units: &[Unit], states: &[UnitState]) -> Self {
        let by_document = by_document(passages, units, states);
        let (mut tally, mut vital, mut okay) = (UnitTally::default(), UnitTally::default(), UnitTally::default());
        for (unit, state) in units.iter().zip(states) {
            tally.add(state);
            if unit.vital.unwrap_or(true) { &mut vital } else { &mut okay }.add(state);
        }
        // Units of one document are dependent, so documents are the sampling unit.
        let estimate = |(_, of): DocumentShare| {
            let ratio = |one: UnitTally| {
                let (part, whole) = of(one);
                (part as f64, whole as f64)
            };
            let own: Vec<(f64, f64)> =
                by_document.iter().map(|(_, one)| ratio(*one)).filter(|one| one.1 > 0.0).collect();
            let (part, whole) = ratio(tally);
            let share = (whole > 0.0).then(|| part / whole);
            // Proportions of a few units are not binary, even if all are 0 or 1, so the jackknife is used alone.
            let interval = jackknife(own.len(), Resampling::default().confidence, Range::SHARE, |kept| {
                let sum = |of: fn(&(f64, f64)) -> f64| kept.iter().map(|&place| of(&own[place])).sum::<f64>();
                Some(sum(|one| one.0) / sum(|one| one.1)).filter(|share| share.is_finite())
            });
            FigureEstimate::new(ShareFigure { share }, interval)
        };
        let share = |part: f64, whole: f64| (whole > 0.0).then(|| part / whole);
        let weighted = |of: fn(UnitTally) -> usize| of(vital) as f64 + 0.5 * of(okay) as f64;
        let asked_for = states.iter().filter(|state| state.asked > 0).count();
        Self {
            tally,
            asked_for,
            coverage_of_asked: share(tally.covered() as f64, asked_for as f64),
            accuracy: estimate(SHARES[0]),
            coverage: estimate(SHARES[1]),
            recall: estimate(SHARES[2]),
            weighed: units.iter().filter(|unit| unit.vital.is_some()).count(),
            vital,
            okay,
            vital_recall: share(vital.correct as f64, vital.units as f64),
            weighted_recall: share(weighted(|one| one.correct), weighted(|one| one.units)),
        }
    }

    /// The figures as a table.
    pub(super) fn table(&self) -> Table {
        let mut table = Table::new("Knowledge", ["figure", "value", "95% interval", "of"]);
        let mut row = |name: &str, value: Option<f64>, interval: Cell, of: String| {
            table.push(cells![name, number(value), interval, of]);
        };
        let UnitTally { units, correct, incorrect } = self.tally;
        let covered = correct + incorrect;
        let of = |part: usize, whole: usize, what: &str| format!("{part} of {whole} {what}");
        let share = |one: &FigureEstimate<ShareFigure>| (one.figure.share, bounds(one.interval));
        let (value, interval) = share(&self.accuracy);
        row("accuracy", value, interval, of(correct, covered, "covered units"));
        let (value, interval) = share(&self.coverage);
        row("coverage", value, interval, of(covered, units, "units"));
        let asked = of(covered, self.asked_for, "units that were asked for");
        row("coverage of units asked for", self.coverage_of_asked, Cell::Missing, asked);
        let (value, interval) = share(&self.recall);
        row("recall (all)", value, interval, of(correct, units, "units"));
        if self.weighed > 0 {
            let vital = self.vital;
            row("recall (vital)", self.vital_recall, Cell::Missing, of(vital.correct, vital.units, "vital units"));
            let okay = format!("{} okay units count half", self.okay.units);
            row("recall (weighted)", self.weighted_recall, Cell::Missing, okay);
        }
        table.note(
            "Accuracy: correct units among those covered by answers. Coverage: covered units among all; units that no \
             question asked for count as uncovered. Recall: correct units among all. Intervals are from the jackknife \
             over documents.",
        );
        table
    }
}

/// The remaining units by round.
pub(super) fn rounds_table(rounds: &[RoundTally], ended: &str) -> Table {
    let columns = ["round", "open", "clusters", "questions", "follow-ups", "covered", "correct", "left"];
    let mut table = Table::new("Rounds", columns);
    for one in rounds {
        let cells =
            [one.round, one.open, one.clusters, one.questions, one.follow_ups, one.covered, one.correct, one.left];
        table.push(cells);
    }
    table.note(format!("Reason for ending: {ended}."));
    let point = |round: usize, open: usize| Point { x: round as f64, y: open as f64, band: None };
    let first = rounds.first().map(|first| point(0, first.open));
    let points = first.into_iter().chain(rounds.iter().map(|one| point(one.round, one.left))).collect();
    table.plots.push(Plot {
        id: "rounds".to_owned(),
        title: "Uncovered units by round".to_owned(),
        caption: "Knowledge units not covered by any answer after each round. A steep line means that the evaluated \
                  model covers many units per round, a flat line that nothing new is covered."
            .to_owned(),
        drawing: Drawing::Lines {
            x: LineAxis::Counts("round".to_owned()),
            y: "units".to_owned(),
            series: vec![Series { name: "open units".to_owned(), points }],
        },
    });
    table
}

/// Figures of questions with one interrogative.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct InterrogativeFigures {
    word: &'static str,
    questions: usize,
    /// Units that these questions asked for.
    units: usize,
    correct: usize,
    incorrect: usize,
}

/// The interrogative of a question: its first word that is one.
fn interrogative(question: &str) -> &'static str {
    let lower = question.to_lowercase();
    let mut words = lower.split(|c: char| !c.is_alphanumeric());
    let known = words.find_map(|word| INTERROGATIVES.iter().find(|known| **known == word));
    known.copied().unwrap_or("none")
}

/// By interrogative, most frequent first.
pub(super) fn interrogatives(asked: &[AskedUnits]) -> Vec<InterrogativeFigures> {
    let mut by_word: BTreeMap<&'static str, InterrogativeFigures> = BTreeMap::new();
    for one in asked {
        let word = interrogative(&one.question);
        let figures = by_word.entry(word).or_insert(InterrogativeFigures {
            word,
            questions: 0,
            units: 0,
            correct: 0,
            incorrect: 0,
        });
        figures.questions += 1;
        for (_, judgement) in &one.judged {
            figures.units += 1;
            figures.correct += usize::from(verdict(judgement) == Some(Verdict::Correct));
            figures.incorrect += usize::from(verdict(judgement) == Some(Verdict::Incorrect));
        }
    }
    let mut all: Vec<InterrogativeFigures> = by_word.into_values().collect();
    all.sort_by(|a, b| b.questions.cmp(&a.questions).then(a.word.cmp(b.word)));
    all
}

/// The figures as a table.
pub(super) fn interrogatives_table(all: &[InterrogativeFigures]) -> Table {
    let columns = ["question word", "questions", "units asked for", "covered", "correct", "accuracy"];
    let mut table = Table::new("Questions by interrogative", columns);
    for one in all {
        let covered = one.correct + one.incorrect;
        let accuracy = (covered > 0).then(|| one.correct as f64 / covered as f64);
        table.push(cells![one.word, one.questions, one.units, covered, one.correct, number(accuracy)]);
    }
    table
}

/// The number of uncovered units by how many answers ignored them; `None` for units that no question asked for.
pub(super) fn ignored(states: &[UnitState]) -> BTreeMap<Option<usize>, usize> {
    let mut counts = BTreeMap::new();
    for state in states {
        *counts.entry((state.asked > 0).then_some(state.ignored)).or_default() += 1;
    }
    counts
}

/// The counts as a table.
pub(super) fn ignored_table(counts: &BTreeMap<Option<usize>, usize>) -> Table {
    let mut table = Table::new("Ignored units", ["number of answers that ignored them", "units"]);
    for (times, units) in counts {
        table.push(cells![times.map_or_else(|| Cell::from("never asked for"), Cell::from), *units]);
    }
    table
}

/// Tokens per unit.
pub(super) fn cost_table(tokens: &BTreeMap<&'static str, TokenTally>, units: usize) -> Table {
    let columns = ["stage", "requests", "tokens in", "tokens out", "requests per unit", "in per unit", "out per unit"];
    let mut table = Table::new("Cost per unit", columns);
    let each = |count: usize| decimals((units > 0).then(|| count as f64 / units as f64), 2);
    for (stage, one) in tokens {
        push_cost(&mut table, stage, *one, &each);
    }
    push_cost(&mut table, "all", TokenTally::sum(tokens.values().copied()), &each);
    table.note("Tokens without prefix sharing; seconds by stage are in the manifest (`stages`).");
    table
}

fn push_cost(table: &mut Table, stage: &str, one: TokenTally, each: &dyn Fn(usize) -> Cell) {
    let TokenTally { requests, tokens_in, tokens_out } = one;
    let counts = [requests, tokens_in, tokens_out];
    table.push(cells![stage].into_iter().chain(counts.map(Cell::from)).chain(counts.map(each)));
}

/// Agreement between two sets of unit verdicts, over units that both judge correct or incorrect.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct VerdictAgreement {
    /// The source compared.
    pub(super) by: &'static str,
    /// Units with both verdicts; human verdicts may also be `unrelated`.
    pub(super) units: usize,
    /// The share of correct units by this source, over all units it covers.
    pub(super) accuracy: Option<f64>,
    /// The share of units with the same verdict.
    pub(super) agree: Option<f64>,
    /// The agreement of always choosing the other source's most frequent verdict.
    pub(super) majority: Option<f64>,
    pub(super) kappa: Option<f64>,
    /// From the jackknife over documents.
    pub(super) kappa_interval: Option<Interval>,
}

impl VerdictAgreement {
    /// Compares `said` with `other`, both by unit; `documents` has the document of each unit.
    pub(super) fn new(
        by: &'static str,
        said: &[Option<Verdict>],
        other: &[Option<Verdict>],
        documents: &[usize],
    ) -> Self {
        let verdicts = said.iter().zip(other).zip(documents);
        let by_unit: Vec<(usize, Verdict, Verdict)> =
            verdicts.filter_map(|((a, b), document)| Some((*document, (*a)?, (*b)?))).collect();
        let both: Vec<(Verdict, Verdict)> = by_unit.iter().map(|(_, a, b)| (*a, *b)).collect();
        let (a, b): (Vec<Verdict>, Vec<Verdict>) = both.iter().copied().unzip();
        let groups: Vec<&[(usize, Verdict, Verdict)]> = by_unit.chunk_by(|one, next| one.0 == next.0).collect();
        let kappa_interval =
            jackknife(groups.len(), Resampling::default().confidence, Range::Within(-1.0, 1.0), |kept| {
                let kept = kept.iter().flat_map(|group| groups[*group]);
                let (a, b): (Vec<Verdict>, Vec<Verdict>) = kept.map(|(_, a, b)| (*a, *b)).unzip();
                cohen_kappa(&a, &b, KappaWeights::Plain)
            });
        let own: Vec<bool> = said.iter().flatten().filter_map(|verdict| verdict.is_right()).collect();
        let share =
            |all: &[bool]| (!all.is_empty()).then(|| all.iter().filter(|one| **one).count() as f64 / all.len() as f64);
        let same: Vec<bool> = both.iter().map(|(a, b)| a == b).collect();
        Self {
            by,
            units: both.len(),
            accuracy: share(&own),
            agree: share(&same),
            majority: Verdict::ALL
                .into_iter()
                .filter_map(|verdict| share(&b.iter().map(|one| *one == verdict).collect::<Vec<_>>()))
                .reduce(f64::max),
            kappa: cohen_kappa(&a, &b, KappaWeights::Plain),
            kappa_interval: kappa_interval.ok(),
        }
    }

    /// The figures as a table.
    pub(super) fn table(title: &str, all: &[Self]) -> Table {
        let mut table = Table::new(title, ["by", "accuracy", "units in both", "agree", "majority", "κ", "95% of κ"]);
        for one in all {
            let numbers = [one.agree, one.majority, one.kappa].map(number);
            let cells = cells![one.by, number(one.accuracy), one.units];
            table.push(cells.into_iter().chain(numbers).chain([bounds(one.kappa_interval)]));
        }
        table
    }
}

/// The verdict on each covered unit.
pub(super) fn covered_verdicts(results: &ExaminationResults) -> Vec<Option<Verdict>> {
    results.units.iter().map(|unit| unit.covered.map(|(is_right, ..)| Verdict::from_correctness(is_right))).collect()
}

/// The verdict on each unit, with `unrelated` for units that were asked for but not covered.
pub(super) fn verdicts_with_unrelated(results: &ExaminationResults) -> Vec<Option<Verdict>> {
    let open = results.units.iter().map(|unit| (unit.asked > 0).then_some(Verdict::Unrelated));
    covered_verdicts(results).into_iter().zip(open).map(|(said, open)| said.or(open)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_of_a_question_is_its_first_interrogative() {
        for (question, word) in [
            ("What became of the mill?", "what"),
            ("In which year did it burn, and why?", "which"),
            ("Name the builders.", "none"),
            ("HOW high?", "how"),
        ] {
            assert_eq!(interrogative(question), word);
        }
    }
}

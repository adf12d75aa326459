//! The report of `metacritique`: claim labels, baselines and refinements.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use probity_data::Sample;
use probity_lm::text::{counted, fixed, thousands};
use probity_stats::{Resampling, order};
use serde_json::{Value, json};

use super::accuracy::AccuracyFigures;
use super::leaderboard::{CritiqueSystem, Leaderboard, ScoredCritique};
use super::options::{MetaCritiqueParams, Unread};
use super::preferences::{CritiquePreferences, PreferredPair, point, preferred};
use super::tally::{CritiqueScores, CritiqueTally, SCORES, Tally};
use crate::answer::Answer;
use crate::conclusion::percent;
use crate::figures::{Mass, mean, number};
use crate::thresholds::FEW_UNITS;
use crate::{
    Conclusion, Headline, MethodError, MethodReport, Outcomes, Run, RunScores, Signature, Table, Trust, cells, gold,
    row,
};

/// The table of scores.
const SCORES_TABLE: &str = "scores";

/// A comparison of two texts of a sample: critiques, or answers refined with them.
#[derive(Debug, Clone, Copy)]
pub(super) struct ComparedPair {
    pub(super) item: usize,
    pub(super) first: usize,
    /// Absent for the original answer.
    pub(super) second: Option<usize>,
    /// The preference for the first, from 0 to 1.
    pub(super) p: Option<f64>,
}

impl ComparedPair {
    /// The point for one of the two: 1, 0, or ½ for a tie.
    fn point_for(&self, better: usize) -> Option<f64> {
        let p = self.p?;
        Some(point(if better == self.first { p } else { 1.0 - p }, 0.5))
    }
}

/// The results so far.
pub(super) struct CritiqueFindings<'a> {
    params: &'a MetaCritiqueParams,
    samples: &'a [Sample],
    pub(super) outcomes: Outcomes,
    /// Generated references.
    pub(super) written_references: usize,
    /// Duplicate claims in lists.
    pub(super) repeated: usize,
    /// One per critique, sample by sample.
    pub(super) tallies: Vec<CritiqueTally>,
    /// Empty without human labels of the same claims.
    pub(super) accuracy: Vec<AccuracyFigures>,
    /// The baseline's rating of each critique.
    pub(super) single: Option<Vec<Option<f64>>>,
    /// The baseline's verdict on each pair of critiques.
    pub(super) pairwise: Option<Vec<ComparedPair>>,
    pub(super) refined: Option<Vec<ComparedPair>>,
    mass: Vec<(f64, bool)>,
}

/// The baselines' verdicts on a system's critiques.
#[derive(Default)]
struct WholeCritiques<'a> {
    system: &'a str,
    ratings: Vec<f64>,
    /// One value per pair: 1, ½ or 0.
    won: Vec<f64>,
}

impl<'a> CritiqueFindings<'a> {
    pub(super) fn new(params: &'a MetaCritiqueParams, samples: &'a [Sample]) -> Self {
        Self {
            params,
            samples,
            outcomes: Outcomes::default(),
            written_references: 0,
            repeated: 0,
            tallies: Vec::new(),
            accuracy: Vec::new(),
            single: None,
            pairwise: None,
            refined: None,
            mass: Vec::new(),
        }
    }

    /// Counts a decided claim.
    pub(super) fn decided(&mut self, verdict: &Answer<usize>) {
        self.outcomes.add(&verdict.outcome);
        self.mass.extend(verdict.mass.map(|mass| (mass, verdict.outcome.is_low_mass())));
    }

    fn other_convention(&self) -> Unread {
        if self.params.unread == Unread::False { Unread::LeftOut } else { Unread::False }
    }

    fn scores(&self) -> Vec<CritiqueScores> {
        self.tallies.iter().map(|tally| tally.scores(self.params.unread)).collect()
    }

    /// Groups values by sample and candidate.
    fn by_sample<T: Copy>(&self, all: &[T]) -> Vec<Vec<T>> {
        let mut rest = all;
        let own = |sample: &Sample| {
            let (own, after) = rest.split_at(sample.candidates.len());
            rest = after;
            own.to_vec()
        };
        self.samples.iter().map(own).collect()
    }

    /// Writes the scores and returns the report.
    pub(super) fn report(self, signature: Signature, run: &mut Run<'_>) -> Result<MethodReport, MethodError> {
        self.write_scores(run)?;
        let resampling =
            Resampling { rounds: self.params.rounds as usize, seed: self.params.seed, ..Resampling::default() };
        let critiques = ScoredCritique::all(self.samples, &self.tallies);
        let board = Leaderboard::new(&critiques, self.params.unread, resampling);
        let mass = Mass::from_answers(self.mass.iter().copied());
        let mut values = json!({
            "items": self.samples.len(),
            "critiques": self.tallies.len(),
            "leaderboard": board,
            "written_references": self.written_references,
            "repeated_claims": self.repeated,
        });
        if mass.answers > 0 {
            values["mass"] = json!(mass);
        }
        let mut tables = board.tables();
        let all = &board.together[0];
        if all.f1.critiques < all.critiques {
            let (scored, every) = (all.f1.critiques, counted(all.critiques, "critique"));
            tables[0].note(format!(
                "{scored} of {every} have an F1; the others lack claims or labels for precision or \
                                    recall"
            ));
        }
        if self.repeated > 0 {
            tables[0].note(format!("duplicate claims, which count once: {}", self.repeated));
        }
        if self.written_references > 0 {
            let count = counted(self.written_references, "reference");
            tables[0].note(format!("{count} generated by the model because the data lack them; scores depend on them"));
        }
        let is_judged = signature.model.is_some();
        if !self.accuracy.is_empty() {
            values["accuracy"] = json!(self.accuracy);
            tables.push(AccuracyFigures::table(&self.accuracy));
        }
        if is_judged && !self.params.no_gold {
            self.against_gold(&mut values, &mut tables);
        }
        self.baselines(&mut values, &mut tables);
        self.refinements(&mut values, &mut tables);
        tables.retain(|table| !table.rows.is_empty());
        let verdict = self.conclusions(&board, is_judged);
        let headline = board.together[0]
            .scores()
            .into_iter()
            .map(|(name, figures)| Headline::new("mean", Some(name), figures.of_critiques.figure.share));
        let headline = headline.collect();
        let scores = RunScores::new(Some([0.0, 1.0]));
        let outcomes = self.outcomes;
        Ok(MethodReport { values, tables, outcomes, headline, verdict, scores, ..MethodReport::new(signature) })
    }

    fn write_scores(&self, run: &mut Run<'_>) -> Result<(), MethodError> {
        let singles = self.single.as_ref().map_or(0, Vec::len);
        run.table(SCORES_TABLE, self.tallies.len() * SCORES.len() + singles)?;
        let places = self.samples.iter().flat_map(|sample| sample.candidates.iter().map(move |one| (sample, one)));
        let places: Vec<_> = places.collect();
        let mut index = 0;
        for (place, ((sample, candidate), tally)) in places.iter().zip(&self.tallies).enumerate() {
            let scores = tally.scores(self.params.unread).all();
            let others = tally.scores(self.other_convention()).all();
            // F1 combines the labels of both.
            let claims = [Some(tally.precision), Some(tally.recall), None];
            let row =
                |attribute: &str, score: Option<f64>, other: Option<f64>, claims: Option<Tally>, without: &str| {
                    let outcome = if score.is_some() { "scored" } else { without };
                    row! {
                        "item": sample.id, "candidate": candidate.id, "attribute": attribute, "score": score,
                        "other_convention": other, "claims"?: claims, "outcome": outcome,
                    }
                };
            for (number, attribute) in SCORES.into_iter().enumerate() {
                let row = row(attribute, scores[number], others[number], claims[number], "no_aius");
                run.row(SCORES_TABLE, index, &row)?;
                index += 1;
            }
            if let Some(single) = &self.single {
                run.row(SCORES_TABLE, index, &row("single", single[place], single[place], None, "unparsed"))?;
                index += 1;
            }
        }
        Ok(())
    }

    /// Compares scores and judges with the gold scores and preferences in the data.
    fn against_gold(&self, values: &mut Value, tables: &mut Vec<Table>) {
        let has = |attribute: &str| {
            self.samples.iter().flat_map(|sample| &sample.candidates).any(|one| one.scores.contains_key(attribute))
        };
        let scores = self.scores();
        let mut table = gold::table();
        let mut figures = Vec::new();
        let mut add = |name: &str, attribute: &'static str, scores: &[Vec<Option<f64>>]| {
            let found = gold::against(self.samples, attribute, scores);
            gold::push(&found, attribute, name, &mut table);
            figures.push(json!({ "attribute": attribute, "scores": name, "figures": found }));
        };
        for (place, attribute) in SCORES.into_iter().enumerate().filter(|(_, attribute)| has(attribute)) {
            let own: Vec<Option<f64>> = scores.iter().map(|one| one.all()[place]).collect();
            add(attribute, attribute, &self.by_sample(&own));
        }
        if let Some(single) = self.single.as_ref().filter(|_| has("f1")) {
            add("single", "f1", &self.by_sample(single));
        }
        if !figures.is_empty() {
            values["gold"] = json!(figures);
            tables.push(table);
        }
        let pairs = preferred(self.samples);
        if pairs.is_empty() {
            return;
        }
        let found = self.preferences(&pairs);
        values["preferences"] = json!(found);
        let mut table = CritiquePreferences::table("Agreement with human preferences", "by", "right", &found);
        table.note(
            "Over pairs of model critiques of one answer: how often the one with the higher gold F1 (or the preferred \
             one) has the higher score; ties count as half.",
        );
        tables.push(table);
    }

    fn preferences(&self, pairs: &[PreferredPair]) -> Vec<CritiquePreferences> {
        let scores = self.by_sample(&self.scores());
        let mut found = Vec::new();
        let mut add = |name, says: &dyn Fn(&PreferredPair) -> Option<f64>| {
            let points: Vec<_> = pairs.iter().map(|pair| (pair.item, says(pair))).collect();
            found.push(CritiquePreferences::from_pairs(name, &points));
        };
        for (place, name) in SCORES.into_iter().enumerate() {
            add(name, &|pair| {
                let of = |k: usize| scores[pair.item][k].all()[place];
                Some(point(of(pair.better)?, of(pair.worse)?))
            });
        }
        if let Some(single) = &self.single {
            let single = self.by_sample(single);
            add("single", &|pair| Some(point(single[pair.item][pair.better]?, single[pair.item][pair.worse]?)));
        }
        if let Some(pairwise) = &self.pairwise {
            let said: BTreeMap<_, _> =
                pairwise.iter().filter_map(|one| Some(((one.item, one.first, one.second?), one))).collect();
            add("pairwise", &|pair| {
                let (first, second) = (pair.better.min(pair.worse), pair.better.max(pair.worse));
                said.get(&(pair.item, first, second))?.point_for(pair.better)
            });
        }
        found
    }

    /// The baselines' verdicts by system.
    fn baselines(&self, values: &mut Value, tables: &mut Vec<Table>) {
        if self.single.is_none() && self.pairwise.is_none() {
            return;
        }
        let mut systems: BTreeMap<&str, WholeCritiques<'_>> = BTreeMap::new();
        let names = self.samples.iter().flat_map(|sample| sample.candidates.iter().map(|one| one.id.as_str()));
        for (place, system) in names.enumerate() {
            let own = systems.entry(system).or_insert(WholeCritiques { system, ..WholeCritiques::default() });
            own.ratings.extend(self.single.as_ref().and_then(|ratings| ratings[place]));
        }
        for pair in self.pairwise.iter().flatten() {
            let (Some(p), Some(second)) = (pair.p, pair.second) else { continue };
            for (k, won) in [(pair.first, point(p, 0.5)), (second, point(0.5, p))] {
                let system = self.samples[pair.item].candidates[k].id.as_str();
                systems.entry(system).or_default().won.push(won);
            }
        }
        let mut table =
            Table::new("Whole critiques", ["critiques by", "mean rating", "rated", "wins", "pairs", "level"]);
        let mut found = Vec::new();
        for own in systems.values() {
            let level = own.won.iter().filter(|won| **won == 0.5).count();
            let (rating, wins) = (mean(own.ratings.iter().copied()), mean(own.won.iter().copied()));
            table.push(cells![own.system, number(rating), own.ratings.len(), number(wins), own.won.len(), level,]);
            found.push(json!({
                "system": own.system, "mean_rating": rating, "rated": own.ratings.len(), "wins": wins,
                "pairs": own.won.len(), "level": level,
            }));
        }
        table.note(
            "Ratings are from 1 to 7. Wins: share of pairs that the system's critique wins; ties and verdicts that \
             change with presentation order are level and count as half.",
        );
        values["whole_critiques"] = json!(found);
        tables.push(table);
    }

    /// How often a refined answer wins: against the original answer, and the better critique's against the other's.
    fn refinements(&self, values: &mut Value, tables: &mut Vec<Table>) {
        let Some(units) = &self.refined else { return };
        let scores = self.by_sample(&self.scores());
        let over_answer: Vec<_> = units
            .iter()
            .filter(|unit| unit.second.is_none())
            .map(|unit| (unit.item, unit.point_for(unit.first)))
            .collect();
        let mut found = vec![CritiquePreferences::from_pairs("refined answer over the answer", &over_answer)];
        for (place, name) in [
            (2, "refined by the critique of higher F1"),
            (0, "refined by the critique of higher precision"),
            (1, "refined by the critique of higher recall"),
        ] {
            let mut pairs = Vec::new();
            for unit in units {
                let Some(second) = unit.second else { continue };
                let of = |k: usize| scores[unit.item][k].all()[place];
                let Some((a, b)) = of(unit.first).zip(of(second)) else { continue };
                let better = match order(a, b) {
                    Ordering::Greater => unit.first,
                    Ordering::Less => second,
                    Ordering::Equal => continue,
                };
                pairs.push((unit.item, unit.point_for(better)));
            }
            found.push(CritiquePreferences::from_pairs(name, &pairs));
        }
        values["refinement"] = json!(found);
        let mut table = CritiquePreferences::table("Refined answers", "which", "wins", &found);
        table.note(
            "Judged by the model in both orders; a verdict that changes with presentation order counts as half. Pairs \
             of critiques with equal scores are omitted.",
        );
        tables.push(table);
    }

    fn conclusions(&self, board: &Leaderboard, is_judged: bool) -> Vec<Conclusion> {
        if !is_judged {
            return vec![conclude_labels(board)];
        }
        if self.accuracy.is_empty() {
            vec![self.conclude_scores(board)]
        } else {
            self.accuracy.iter().filter_map(conclude_task).collect()
        }
    }

    /// The conclusion for a judge without human labels.
    fn conclude_scores(&self, board: &Leaderboard) -> Conclusion {
        let all = &board.together[0];
        let [precision, recall, f1] = all.scores().map(|(_, figures)| figures.of_critiques.figure.share);
        let says = format!(
            "Mean over {}: precision {}, recall {}, F1 {}{}",
            counted(all.critiques, "critique"),
            number(precision),
            number(recall),
            number(f1),
            best(board).unwrap_or_default(),
        );
        let claims = [all.claims.precision, all.claims.recall];
        let asked: usize = claims.iter().map(|one| one.yes + one.no + one.unread).sum();
        let unread: usize = claims.iter().map(|one| one.unread).sum();
        let share = |part: usize| if asked == 0 { 0.0 } else { part as f64 / asked as f64 };
        let yes: usize = claims.iter().map(|one| one.yes).sum();
        let one_label = asked > 1 && (yes == 0 || yes == asked);
        let low = Mass::from_answers(self.mass.iter().copied()).low_share.unwrap_or(0.0);
        let (trust, because) = if f1.is_none() {
            (Trust::Unreliable, "no critique has a score; see the outcomes".to_owned())
        } else if one_label {
            (Trust::Unreliable, "all claims have the same label, which carries no information".to_owned())
        } else if share(unread) > 0.5 || low > 0.5 {
            (Trust::Unreliable, "most labels are unreadable or have low label mass".to_owned())
        } else {
            let why = "not compared with human labels (--labels)".to_owned();
            let doubt = board.doubt().filter(|_| board.systems.len() > 1);
            (Trust::Caution, doubt.map_or(why.clone(), |doubt| format!("{doubt}; {why}")))
        };
        let figures = json!({ "precision": precision, "recall": recall, "f1": f1, "unread": share(unread) });
        Conclusion { about: None, says, agreement: None, trust, because, figures }
    }
}

/// The conclusion for human labels.
fn conclude_labels(board: &Leaderboard) -> Conclusion {
    let all = &board.together[0];
    let [precision, recall, f1] = all.scores().map(|(_, figures)| figures.of_critiques.figure.share);
    let best = best(board).unwrap_or_default();
    let says = format!(
        "Human labels, mean over {}: precision {}, recall {}, F1 {}{best}",
        counted(all.critiques, "critique"),
        number(precision),
        number(recall),
        number(f1)
    );
    let (trust, because) = match (f1, board.doubt()) {
        (None, _) => (Trust::Unreliable, "no critique has labels for both precision and recall".to_owned()),
        (Some(_), None) => {
            (Trust::Reliable, "these are human labels, and the first system is clearly ahead of the second".to_owned())
        }
        (Some(_), Some(why)) => (Trust::Caution, format!("these are human labels, but {why}")),
    };
    Conclusion {
        about: None,
        says,
        agreement: None,
        trust,
        because,
        figures: json!({ "precision": precision, "recall": recall, "f1": f1 }),
    }
}

/// `; best: gpt-4 with F1 .612`, if there are several systems; `first` instead of `best` if it is not clearly better.
fn best(board: &Leaderboard) -> Option<String> {
    let first: &CritiqueSystem = board.systems.first().filter(|_| board.systems.len() > 1)?;
    let value = |system: &CritiqueSystem| system.f1.of_critiques.figure.share;
    let level = board.systems.iter().filter(|other| value(other) == value(first)).count();
    if level > 1 {
        return Some(format!("; {level} systems tie with F1 {}", fixed(value(first)?, 3)));
    }
    let (called, clear) = if board.doubt().is_none() {
        ("best", "")
    } else {
        (
            "first",
            ", not clearly ahead of the \
                                                                                        second",
        )
    };
    Some(format!("; {called}: {} with F1 {}{clear}", first.system, fixed(first.f1.of_critiques.figure.share?, 3)))
}

/// The agreement of a judge's labels in one task, over all critiques.
fn conclude_task(figures: &AccuracyFigures) -> Option<Conclusion> {
    if figures.critiques != "all" {
        return None;
    }
    let accuracy = figures.accuracy.figure.share?;
    let says = format!(
        "Agreement with human labels on {} of {}; the majority label has {}",
        percent(accuracy),
        counted(figures.claims, "claim"),
        percent(figures.majority)
    );
    let chance = figures.kappa_interval.is_none_or(|interval| interval.low <= 0.0);
    let above = figures.above_majority.and_then(|above| above.interval).is_some_and(|interval| interval.low > 0.0);
    let unread = figures.claims - figures.read;
    // If omitting any sample changes nothing there is no interval; with perfect agreement that is expected.
    let is_perfect = figures.kappa == Some(1.0) && unread == 0;
    let (trust, because) = if is_perfect && figures.samples >= FEW_UNITS {
        (Trust::Reliable, format!("agrees with people on every claim of {}", counted(figures.samples, "sample")))
    } else if figures.samples < FEW_UNITS && (is_perfect || !chance && above) {
        (Trust::Caution, format!("compared with human labels in only {}", counted(figures.samples, "sample")))
    } else if figures.kappa_interval.is_none() {
        (Trust::Unreliable, "Cohen's κ has no interval: too few samples, or all labels are equal".to_owned())
    } else if chance {
        (Trust::Unreliable, "the interval of Cohen's κ includes 0 (chance)".to_owned())
    } else if !above {
        (Trust::Caution, "better than chance (κ), but not clearly better than the majority label".to_owned())
    } else if unread * 10 > figures.claims {
        (Trust::Caution, format!("{} of the labels are unreadable", thousands(unread as u64)))
    } else {
        (Trust::Reliable, "compared with human labels; better than chance and the majority label".to_owned())
    };
    let figures_value = json!({
        "accuracy": accuracy, "interval": figures.accuracy.interval, "majority": figures.majority,
        "kappa": figures.kappa, "kappa_interval": figures.kappa_interval,
    });
    Some(Conclusion {
        about: Some(figures.task.to_owned()),
        says,
        agreement: None,
        trust,
        because,
        figures: figures_value,
    })
}

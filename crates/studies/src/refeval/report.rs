//! The report of an examination: rows, figures, tables and conclusions.

use std::collections::BTreeMap;

use probity_analysis::plot::{Drawing, Plot, Point, SERIES, Series};
use probity_data::{Candidate, Sample};
use probity_lm::text::{counted, fixed, thousands};
use serde_json::json;

use super::baselines::{ParterFigures, by_unit};
use super::figures::{
    ExaminationFigures, SHARES, VerdictAgreement, by_document, cost_table, covered_verdicts, ignored, ignored_table,
    interrogatives, interrogatives_table, rounds_table, verdicts_with_unrelated,
};
use super::judgements::{Verdict, covers};
use super::plane::plane;
use super::prompts::WEIGHTS;
use super::units::{PassageUnits, Unit};
use super::work::{ExaminationResults, RefEvalWork};
use crate::answer::Answer;
use crate::figures::{Mass, bounds, number};
use crate::thresholds::{FEW_UNITS, MANY_UNSCORED};
use crate::{Conclusion, Headline, MethodError, MethodReport, Outcomes, Run, RunScores, Signature, Table, Trust, row};

/// The table of units.
const KNOWLEDGE: &str = "knowledge";

/// All results.
pub(super) struct ExaminationFindings<'a> {
    pub(super) work: &'a RefEvalWork<'a>,
    /// The units by passage.
    pub(super) passages: &'a [PassageUnits],
    pub(super) results: ExaminationResults,
    /// The results of the baseline that asks for one unit at a time.
    pub(super) single: Option<ExaminationResults>,
    /// The verdict of a judge without units on each answer.
    pub(super) blind: Option<Vec<Answer<usize>>>,
    /// Numbers that may separate correct from incorrect units.
    pub(super) parters: Vec<ParterFigures>,
    /// Human judgements by unit.
    pub(super) gold: Option<BTreeMap<String, Verdict>>,
    /// Duplicate units.
    pub(super) again: usize,
    /// Unused answers in the file.
    pub(super) unused: usize,
}

/// The table of documents.
const SCORES: &str = "scores";

/// With at least this many judgements, a judge that detects omissions leaves more than the share `HARDLY` of units
/// open.
const FEW_JUDGEMENTS: usize = 50;
const HARDLY: f64 = 0.02;

/// The maximum number of points on the map; more are thinned evenly.
const MAPPED: usize = 1500;

/// Writes the table of units and returns the report.
pub(super) fn report(
    found: &ExaminationFindings<'_>,
    mut outcomes: Outcomes,
    signature: Signature,
    run: &mut Run<'_>,
) -> Result<MethodReport, MethodError> {
    let ExaminationFindings { work, results, .. } = found;
    let places = plane(work.vectors);
    found.write(&places, run)?;
    found.write_scores(run)?;
    run.judged(found.answers());
    let blind = found.blind.iter().flatten();
    blind.for_each(|verdict| outcomes.add(&verdict.outcome));
    for (name, count) in &results.names {
        outcomes.add_several(name, *count);
    }
    for (name, count) in &results.questions {
        outcomes.add_several(if *name == "asked" { "written" } else { name }, *count);
    }
    for asked in results.asked.iter().chain(found.single.iter().flat_map(|single| &single.asked)) {
        outcomes.add_named(asked.answer.outcome());
        asked.judged.iter().for_each(|(_, judgement)| outcomes.add(&judgement.outcome));
    }
    let figures = ExaminationFigures::new(work.passages, work.units, &results.units);
    let words = interrogatives(&results.asked);
    let counts = ignored(&results.units);
    let mut values = json!({
        "documents": work.passages.iter().map(|passage| &passage.document).collect::<std::collections::BTreeSet<_>>().len(),
        "passages": work.passages.len(),
        "knowledge": figures,
        "rounds": results.rounds,
        "ended": results.ended,
        "questions": results.questions,
        "leaked_units": results.leaked,
        "ignored": counts.iter().map(|(times, units)| json!({ "times": times, "units": units })).collect::<Vec<_>>(),
        "interrogatives": words,
        "tokens": results.tokens,
    });
    let mut tables = vec![figures.table()];
    found.notes(&mut tables[0]);
    tables[0].plots.push(map(&places, results));
    tables.push(rounds_table(&results.rounds, results.ended));
    tables.push(interrogatives_table(&words));
    tables.push(ignored_table(&counts));
    tables.push(cost_table(&results.tokens, work.units.len()));
    let mass = found.mass();
    if mass.answers > 0 {
        values["mass"] = json!(mass);
    }
    let (own, documents) = (covered_verdicts(results), found.documents());
    if let Some(single) = &found.single {
        let of_single = ExaminationFigures::new(work.passages, work.units, &single.units);
        let agreement = [
            VerdictAgreement::new("in rounds", &own, &own, &documents),
            VerdictAgreement::new("one by one", &covered_verdicts(single), &own, &documents),
        ];
        values["one_by_one"] = json!({ "knowledge": of_single, "tokens": single.tokens, "agreement": agreement[1] });
        let mut table = VerdictAgreement::table("One by one", &agreement);
        table.note("Agreement with the verdicts of the rounds, over units that both cover.");
        tables.push(table);
        let mut cost = cost_table(&single.tokens, work.units.len());
        "Cost per unit, one by one".clone_into(&mut cost.title);
        tables.push(cost);
    }
    if let Some(blind) = &found.blind {
        let agreement = VerdictAgreement::new("without reference", &by_unit(results, blind), &own, &documents);
        values["no_reference"] = json!(agreement);
        let mut table = VerdictAgreement::table("The judge without reference", &[agreement]);
        table.note(
            "Each unit takes the verdict on the whole answer that covered it; agreement is with the verdicts on \
             units.",
        );
        tables.push(table);
    }
    if !found.parters.is_empty() {
        values["metrics"] = json!(found.parters);
        tables.push(ParterFigures::table(&found.parters));
    }
    let agreement = found.against_people();
    if !agreement.is_empty() {
        values["gold"] = json!(agreement);
        let mut table = VerdictAgreement::table("Agreement with human judgements", &agreement);
        table.note("Accuracy is over all units that each covers; agreement over those with a human judgement.");
        tables.push(table);
    }
    tables.retain(|table| !table.rows.is_empty());
    let verdict = vec![conclusion(&figures, found, mass, agreement.first())];
    let headline = vec![
        Headline::new("accuracy", None, figures.accuracy.figure.share),
        Headline::new("coverage", None, figures.coverage.figure.share),
    ];
    Ok(MethodReport {
        values,
        tables,
        outcomes,
        headline,
        verdict,
        scores: RunScores::new(Some([0.0, 1.0])),
        ..MethodReport::new(signature)
    })
}

/// The map of units by the round that covered them, with uncovered units last (the paper's Figure 5), thinned if large.
/// The last rounds are merged if there are more than the plot can distinguish.
fn map(places: &[[f64; 2]], results: &ExaminationResults) -> Plot {
    let every = places.len().div_ceil(MAPPED).max(1);
    let mut by_round: BTreeMap<usize, Vec<Point>> = BTreeMap::new();
    for ([x, y], unit) in places.iter().zip(&results.units).step_by(every) {
        let round = unit.covered.map_or(usize::MAX, |(_, round, _)| round);
        by_round.entry(round).or_default().push(Point { x: *x, y: *y, band: None });
    }
    let name = |round| if round == usize::MAX { "uncovered".to_owned() } else { format!("round {round}") };
    let mut groups: Vec<Series> =
        by_round.into_iter().map(|(round, points)| Series { name: name(round), points }).collect();
    if groups.len() > SERIES {
        let rest = groups.drain(SERIES - 2..groups.len() - 1).flat_map(|series| series.points).collect();
        groups.insert(SERIES - 2, Series { name: "later rounds".to_owned(), points: rest });
    }
    Plot {
        id: "map".to_owned(),
        title: "Map of the units".to_owned(),
        caption:
            "Each point is a knowledge unit, placed by the first two principal components of its embedding; close \
             points have similar content. Colours show the round in which an answer covered it."
                .to_owned(),
        drawing: Drawing::Map { groups },
    }
}

impl ExaminationFindings<'_> {
    fn write(&self, places: &[[f64; 2]], run: &mut Run<'_>) -> Result<(), MethodError> {
        run.table(KNOWLEDGE, self.work.units.len())?;
        for (index, (unit, state)) in self.work.units.iter().zip(&self.results.units).enumerate() {
            let place = places.get(index);
            // `verdict` is null if not covered; `ignored` counts answers that did not cover it; x and y are its
            // position on the map of units.
            let row = row! {
                "unit": unit.id, "document": self.work.passages[unit.passage].document, "text": unit.text,
                "weight"?: unit.vital.map(|vital| WEIGHTS[usize::from(!vital)]),
                "verdict": state.covered.map(|(is_right, ..)| Verdict::from_correctness(is_right).name()),
                "gold"?: self.gold.as_ref().and_then(|gold| gold.get(&unit.id)).map(|verdict| verdict.name()),
                "round": state.covered.map(|(_, round, _)| round), "turn": state.covered.map(|(.., turn)| turn),
                "asked": state.asked, "ignored": state.ignored, "x": place.map(|place| place[0]),
                "y": place.map(|place| place[1]),
            };
            run.row(KNOWLEDGE, index, &row)?;
        }
        Ok(())
    }

    /// Writes accuracy, coverage and recall of each document as scores, so that runs can be compared by document.
    fn write_scores(&self, run: &mut Run<'_>) -> Result<(), MethodError> {
        let tallies = by_document(self.work.passages, self.work.units, &self.results.units);
        let candidate = self.examined();
        run.table(SCORES, SHARES.len() * tallies.len())?;
        let each = tallies.iter().flat_map(|tally| SHARES.map(|share| (tally, share)));
        for (index, ((item, tally), (attribute, share))) in each.enumerate() {
            let (part, units) = share(*tally);
            let score = (units > 0).then(|| part as f64 / units as f64);
            let outcome = if units > 0 { "scored" } else { "no_units" };
            let row = row! {
                "item": item, "attribute": attribute, "candidate": candidate, "score": score, "outcome": outcome,
                "units": units,
            };
            run.row(SCORES, index, &row)?;
        }
        Ok(())
    }

    /// The answers as candidates of their questions.
    fn answers(&self) -> Vec<Sample> {
        let of = |asked: &super::work::AskedUnits| Sample {
            id: asked.id.clone(),
            context: asked.question.clone().into(),
            instruction: None,
            texts: BTreeMap::new(),
            candidates: vec![Candidate {
                id: self.examined().to_owned(),
                text: asked.answer.usable().unwrap_or_default().to_owned().into(),
                scores: BTreeMap::new(),
            }],
            references: Vec::new(),
            preference: None,
        };
        self.results.asked.iter().chain(self.single.iter().flat_map(|single| &single.asked)).map(of).collect()
    }

    /// The source of the answers: a model or a file.
    fn examined(&self) -> &str {
        self.work.params.evaluated.as_deref().unwrap_or("answers")
    }

    fn notes(&self, table: &mut Table) {
        let sum = |of: fn(&PassageUnits) -> usize| self.passages.iter().map(of).sum::<usize>();
        let (wordy, ungrounded) = (sum(|one| one.wordy), sum(|one| one.ungrounded));
        let repeated = sum(|one| one.repeated) + self.again;
        let units = self.work.units;
        let unweighed =
            if self.work.params.no_weights { 0 } else { units.iter().filter(|unit| unit.vital.is_none()).count() };
        let is_open = |unit: &str| {
            units.iter().zip(&self.results.units).any(|(known, state)| known.id == unit && state.asked == 0)
        };
        let unanswered = self.gold.iter().flatten().filter(|(unit, _)| is_open(unit)).count();
        let silent = self.passages.iter().filter(|one| one.units.is_empty()).count();
        let notes = [
            (silent, "passages have no units and are not counted"),
            (unanswered, "human labels are for units that no question asked for and are not compared"),
            (unweighed, "units have no readable weight and count as vital"),
            (wordy, "units were omitted because they have more words than --unit-words"),
            (ungrounded, "units were omitted because most of their words are not in the passage"),
            (repeated, "duplicate units count once"),
            (self.results.leaked, "units were leaked by their question and not judged with it"),
            (self.unused, "answers in the file match no question"),
        ];
        for (count, note) in notes.into_iter().filter(|(count, _)| *count > 0) {
            table.note(format!("{count} {note}"));
        }
        let not_asked: usize =
            self.results.questions.iter().filter(|(name, _)| **name != "asked").map(|(_, count)| count).sum();
        if not_asked > 0 {
            let each: Vec<String> = self
                .results
                .questions
                .iter()
                .filter(|(name, _)| **name != "asked")
                .map(|(name, count)| format!("{count} {name}"))
                .collect();
            table.note(format!("rejected questions: {}", each.join(", ")));
        }
    }

    /// The document of each unit.
    fn documents(&self) -> Vec<usize> {
        let work = self.work;
        let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
        let mut number = |unit: &Unit| {
            let next = numbers.len();
            *numbers.entry(work.passages[unit.passage].document.as_str()).or_insert(next)
        };
        work.units.iter().map(&mut number).collect()
    }

    fn judgements(&self) -> impl Iterator<Item = &Answer<usize>> {
        self.results.asked.iter().flat_map(|asked| asked.judged.iter().map(|(_, judgement)| judgement))
    }

    fn mass(&self) -> Mass {
        Mass::from_answers(self.judgements().filter_map(|one| Some((one.mass?, one.outcome.is_low_mass()))))
    }

    /// Agreement with human judgements, if available.
    fn against_people(&self) -> Vec<VerdictAgreement> {
        let Some(gold) = &self.gold else { return Vec::new() };
        let people: Vec<Option<Verdict>> = self.work.units.iter().map(|unit| gold.get(&unit.id).copied()).collect();
        let documents = self.documents();
        let own = verdicts_with_unrelated(&self.results);
        let mut all = vec![VerdictAgreement::new("in rounds", &own, &people, &documents)];
        let blind = self.blind.iter().map(|blind| by_unit(&self.results, blind));
        all.extend(blind.map(|said| VerdictAgreement::new("without reference", &said, &people, &documents)));
        all.extend(
            self.single.iter().map(|single| {
                VerdictAgreement::new("one by one", &verdicts_with_unrelated(single), &people, &documents)
            }),
        );
        all
    }
}

/// The conclusion with its trust.
fn conclusion(
    figures: &ExaminationFigures,
    found: &ExaminationFindings<'_>,
    mass: Mass,
    people: Option<&VerdictAgreement>,
) -> Conclusion {
    let tally = figures.tally;
    let rounds = counted(found.results.rounds.len(), "round");
    let never = found.results.units.iter().filter(|unit| unit.asked == 0).count();
    let says = format!(
        "Of {} in {}, {} covered {} ({}); {} of these are correct{}",
        counted(tally.units, "unit"),
        rounds,
        found.examined(),
        tally.correct + tally.incorrect,
        number(figures.coverage.figure.share),
        number(figures.accuracy.figure.share),
        if never > 0 { format!("; no question asked for {}", thousands(never as u64)) } else { String::new() }
    );
    let covered = tally.correct + tally.incorrect;
    let judged = found.judgements().count();
    let open = found.judgements().filter(|one| !covers(one)).count();
    let one_sided = covered > 1 && (tally.correct == 0 || tally.incorrect == 0);
    let low = mass.low_share.unwrap_or(0.0);
    let (trust, because) = if covered == 0 && judged == 0 {
        let ended: Vec<String> =
            found.results.questions.iter().map(|(name, count)| format!("{count} {name}")).collect();
        let ended = if ended.is_empty() { "none were written".to_owned() } else { ended.join(", ") };
        (Trust::Unreliable, format!("no valid questions ({ended}); use another evaluator"))
    } else if covered == 0 {
        (Trust::Unreliable, "no answer covers any unit".to_owned())
    } else if low > 0.5 {
        (Trust::Unreliable, "most judgements have low label mass".to_owned())
    } else if let Some(people) = people.filter(|people| people.units > 0) {
        let (trust, why) = against_people(people);
        // Even with a good judge, an examination that omits many units says little about the model's knowledge.
        let is_partial = never as f64 > MANY_UNSCORED * tally.units as f64;
        if trust == Trust::Reliable && is_partial {
            (Trust::Caution, format!("no question asked for {never} of {} units; {why}", tally.units))
        } else {
            (trust, why)
        }
    } else if one_sided {
        (Trust::Caution, "all judgements are equal, so a judge with a constant verdict cannot be ruled out".to_owned())
    } else if judged >= FEW_JUDGEMENTS && (open as f64) < HARDLY * judged as f64 {
        let why = format!(
            "of {judged} judgements only {open} find a unit uncovered: the judge may not distinguish wrong from \
             missing content; compare it with human judgements (--gold)"
        );
        (Trust::Caution, why)
    } else {
        (Trust::Caution, "not compared with human judgements (--gold)".to_owned())
    };
    let figures = json!({
        "accuracy": figures.accuracy.figure.share, "accuracy_interval": figures.accuracy.interval,
        "coverage": figures.coverage.figure.share, "coverage_interval": figures.coverage.interval,
        "units": tally.units, "low_mass": low,
    });
    Conclusion { about: None, says, agreement: None, trust, because, figures }
}

/// The trust in the judge from its agreement with human judgements.
fn against_people(people: &VerdictAgreement) -> (Trust, String) {
    let VerdictAgreement { units, agree, majority, kappa, kappa_interval, .. } = people;
    let said = format!(
        "agreement with human judgements {} on {}; the majority verdict has {}",
        number(*agree),
        counted(*units, "unit"),
        number(*majority)
    );
    match (kappa, kappa_interval) {
        _ if *units < FEW_UNITS => (
            Trust::Caution,
            format!(
                "only {} checked by people; at least {FEW_UNITS} are needed",
                if *units == 1 { "one unit was".to_owned() } else { format!("{units} units were") }
            ),
        ),
        (Some(kappa), _) if *kappa <= 0.0 => (Trust::Unreliable, format!("{said} (κ {})", fixed(*kappa, 2))),
        (Some(_), Some(interval)) if interval.low <= 0.0 => {
            (Trust::Unreliable, format!("{said} (κ {}, which may be chance)", bounds(Some(*interval))))
        }
        (Some(kappa), None) => (
            Trust::Caution,
            format!("{said} (κ {}, without an interval: too few documents, or all equal)", fixed(*kappa, 2)),
        ),
        (Some(kappa), _) if *kappa > 0.4 => (Trust::Reliable, format!("{said} (κ {})", fixed(*kappa, 2))),
        (Some(kappa), _) => (Trust::Caution, format!("{said} (κ {})", fixed(*kappa, 2))),
        (None, _) => (Trust::Caution, said),
    }
}

//! How good the judge finds candidates and references, each by itself (the paper's Tables 3 and 14).

use probity_data::Sample;
use probity_lm::Outcome;
use serde::Serialize;

use super::options::Reference;
use super::references::{Shelf, Unit};
use crate::judge::{Answer, Judging, JudgingOptions, Mode, Question, Shown, Verdict};
use crate::run::write_row;
use crate::summary::{mean, number};
use crate::{MethodError, Run, Section};

/// The table of ratings.
const RATINGS: &str = "ratings";

/// What is rated.
struct Rated<'a> {
    item: usize,
    /// `candidate 1`, `candidate`, or the kind of reference.
    of: String,
    question: Question<'a>,
}

/// The mean rating of one kind of text.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Rating {
    of: String,
    mean: Option<f64>,
    rated: usize,
    texts: usize,
}

/// The judge's options for rating by one attribute.
pub(super) fn options(judging: &JudgingOptions, attribute: &str) -> JudgingOptions {
    let own = judging.clone();
    let attribute = vec![attribute.to_owned()];
    JudgingOptions {
        mode: Mode::Pointwise,
        attribute,
        adjective: None,
        criteria: None,
        rubric: None,
        ties: false,
        template: None,
        ..own
    }
}

/// Rates every candidate of every unit and every usable reference once.
pub(super) fn rate(
    judge: &Judging<'_>,
    samples: &[Sample],
    units: &[Unit],
    references: &[Reference],
    shelf: &Shelf<'_>,
    run: &mut Run<'_>,
) -> Result<Vec<Rating>, MethodError> {
    let rated = all(samples, units, references, shelf);
    let questions: Vec<Question<'_>> = rated.iter().map(|one| one.question.clone()).collect();
    run.table(RATINGS, rated.len())?;
    let judged = judge.ask(run, &questions, &mut |index, verdict, output| {
        write_row(output, RATINGS, index, &row(samples, &rated[index], verdict))
    })?;
    let mut kinds: Vec<&str> = Vec::new();
    for one in &rated {
        if !kinds.contains(&one.of.as_str()) {
            kinds.push(&one.of);
        }
    }
    let of = |kind: &str| {
        let verdicts = || rated.iter().zip(&judged.verdicts).filter(|(one, _)| one.of == kind);
        let ratings: Vec<f64> = verdicts().filter_map(|(_, verdict)| verdict.decided.rating()).collect();
        Rating {
            of: kind.to_owned(),
            mean: mean(ratings.iter().copied()),
            rated: ratings.len(),
            texts: verdicts().count(),
        }
    };
    Ok(kinds.into_iter().map(of).collect())
}

fn all<'a>(samples: &'a [Sample], units: &[Unit], references: &[Reference], shelf: &Shelf<'a>) -> Vec<Rated<'a>> {
    let mut rated: Vec<Rated<'a>> = Vec::new();
    let mut add = |unit: Unit, of: String, name: &'a str, text: &'a str, tag: String| {
        let same = |one: &&Rated<'_>| {
            one.item == unit.item && one.of == of && one.question.shown[0].text == text && one.question.tag == tag
        };
        if rated.iter().rev().take_while(|one| one.item == unit.item).find(same).is_none() {
            let sample = &samples[unit.item];
            let question =
                Question { sample, attribute: 0, shown: vec![Shown { name, text }], references: Vec::new(), tag };
            rated.push(Rated { item: unit.item, of, question });
        }
    };
    for &unit in units {
        for candidate in unit.candidates() {
            let of =
                if unit.second.is_some() { format!("candidate {}", candidate + 1) } else { "candidate".to_owned() };
            let shown = &samples[unit.item].candidates[candidate];
            add(unit, of, &shown.id, &shown.text, String::new());
        }
        for reference in references {
            for together in shelf.references(*reference, unit) {
                for text in together.texts {
                    add(unit, reference.to_string(), "reference", text, format!("{reference}/{}", together.tag));
                }
            }
        }
    }
    rated
}

/// One rating.
#[derive(Serialize)]
struct Row<'a> {
    item: &'a str,
    of: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    tag: &'a str,
    rating: Option<f64>,
    #[serde(flatten)]
    outcome: &'a Outcome,
    answers: &'a [Answer],
    prompt_tokens: Option<usize>,
}

fn row<'r>(samples: &'r [Sample], rated: &'r Rated<'_>, verdict: &'r Verdict) -> Row<'r> {
    Row {
        item: &samples[rated.item].id,
        of: &rated.of,
        tag: &rated.question.tag,
        rating: verdict.decided.rating(),
        outcome: &verdict.decided.outcome,
        answers: &verdict.answers,
        prompt_tokens: verdict.prompt_tokens,
    }
}

pub(super) fn section(ratings: &[Rating], attribute: &str) -> Section {
    let mut section = Section::new(&format!("Mean ratings by {attribute}"), ["text", "mean", "rated"]);
    for one in ratings {
        section.push([one.of.clone(), number(one.mean), format!("{} of {}", one.rated, one.texts)]);
    }
    section.note("Each text rated by itself and without reference.");
    section
}

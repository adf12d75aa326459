//! How good the judge finds candidates and references, each by itself (the paper's Tables 3 and 14).

use probity_data::Sample;
use probity_lm::Outcome;
use serde::Serialize;
use serde_json::{Value, json};

use super::options::Reference;
use super::references::ReferencePool;
use crate::figures::{mean, number};
use crate::judge::{JudgeAnswer, JudgeQuestion, JudgeVerdict, JudgedUnit, JudgingOptions, Mode, ModelJudge, ShownText};
use crate::{KeepPart, MethodError, MethodStage, RowError, Run, Section};

/// The table of ratings.
pub(super) const RATINGS: &str = "ratings";

/// What is rated.
struct RatedText<'a> {
    item: usize,
    /// `candidate 1`, `candidate`, or the kind of reference.
    of: String,
    question: JudgeQuestion<'a>,
}

/// The mean rating of one kind of text.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct MeanRating {
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

/// The stage in which every candidate and every usable reference is rated once, by itself: a part, and a row, for each
/// text.
pub(super) struct RatingStage<'s> {
    judge: &'s ModelJudge<'s>,
    samples: &'s [Sample],
    rated: Vec<RatedText<'s>>,
    /// Settings and models, and the key of the references.
    inputs: [String; 2],
}

impl<'s> RatingStage<'s> {
    pub(super) fn new(
        judge: &'s ModelJudge<'s>,
        samples: &'s [Sample],
        units: &[JudgedUnit],
        references: &[Reference],
        pool: &ReferencePool<'s>,
        inputs: [String; 2],
    ) -> Self {
        Self { judge, samples, rated: all(samples, units, references, pool), inputs }
    }

    /// Mean ratings by kind of text, in the order in which each comes first.
    pub(super) fn means(&self, verdicts: &[JudgeVerdict]) -> Vec<MeanRating> {
        let mut kinds: Vec<&str> = Vec::new();
        for one in &self.rated {
            if !kinds.contains(&one.of.as_str()) {
                kinds.push(&one.of);
            }
        }
        let of = |kind: &str| {
            let verdicts = || self.rated.iter().zip(verdicts).filter(|(one, _)| one.of == kind);
            let ratings: Vec<f64> = verdicts().filter_map(|(_, verdict)| verdict.decided.rating()).collect();
            MeanRating {
                of: kind.to_owned(),
                mean: mean(ratings.iter().copied()),
                rated: ratings.len(),
                texts: verdicts().count(),
            }
        };
        kinds.into_iter().map(of).collect()
    }
}

impl MethodStage for RatingStage<'_> {
    type Part = JudgeVerdict;

    fn name(&self) -> &'static str {
        RATINGS
    }

    fn parts(&self) -> usize {
        self.rated.len()
    }

    fn inputs(&self) -> Vec<String> {
        self.inputs.to_vec()
    }

    fn work(&self, run: &mut Run<'_>, keep: &mut KeepPart<'_, JudgeVerdict>) -> Result<(), MethodError> {
        let questions: Vec<JudgeQuestion<'_>> = self.rated.iter().map(|one| one.question.clone()).collect();
        self.judge.ask(run, &questions, keep)
    }

    fn identity(&self, number: usize) -> Value {
        let RatedText { item, of, question } = &self.rated[number];
        json!(RatingIdentity { item: &self.samples[*item].id, of, tag: &question.tag })
    }

    fn rows(&self, number: usize, verdict: &JudgeVerdict) -> serde_json::Result<Vec<Value>> {
        let RatedText { item, of, question } = &self.rated[number];
        let row = RatingRow {
            of: RatingIdentity { item: &self.samples[*item].id, of, tag: &question.tag },
            rating: verdict.decided.rating(),
            outcome: &verdict.decided.outcome,
            answers: &verdict.answers,
            prompt_tokens: verdict.prompt_tokens,
        };
        Ok(vec![serde_json::to_value(row)?])
    }

    fn read(&self, _: usize, rows: &[Value]) -> Result<JudgeVerdict, RowError> {
        self.judge.read(&rows[0])
    }

    fn stand_in(&self, _: usize) -> JudgeVerdict {
        JudgeVerdict::none(Outcome::Empty)
    }
}

fn all<'a>(
    samples: &'a [Sample],
    units: &[JudgedUnit],
    references: &[Reference],
    pool: &ReferencePool<'a>,
) -> Vec<RatedText<'a>> {
    let mut rated: Vec<RatedText<'a>> = Vec::new();
    let mut add = |unit: JudgedUnit, of: String, name: &'a str, text: &'a str, tag: String| {
        let same = |one: &&RatedText<'_>| {
            one.item == unit.item && one.of == of && one.question.shown[0].text == text && one.question.tag == tag
        };
        if rated.iter().rev().take_while(|one| one.item == unit.item).find(same).is_none() {
            let sample = &samples[unit.item];
            let question = JudgeQuestion {
                sample,
                attribute: 0,
                shown: vec![ShownText { name, text }],
                references: Vec::new(),
                tag,
            };
            rated.push(RatedText { item: unit.item, of, question });
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
            for group in pool.references(*reference, unit) {
                for text in group.texts {
                    add(unit, reference.to_string(), "reference", text, format!("{reference}/{}", group.tag));
                }
            }
        }
    }
    rated
}

/// Which text a rating is of.
#[derive(Serialize)]
struct RatingIdentity<'a> {
    item: &'a str,
    of: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    tag: &'a str,
}

/// One rating.
#[derive(Serialize)]
struct RatingRow<'a> {
    #[serde(flatten)]
    of: RatingIdentity<'a>,
    rating: Option<f64>,
    #[serde(flatten)]
    outcome: &'a Outcome,
    answers: &'a [JudgeAnswer],
    prompt_tokens: Option<usize>,
}

pub(super) fn section(ratings: &[MeanRating], attribute: &str) -> Section {
    let mut section = Section::new(&format!("Mean ratings by {attribute}"), ["text", "mean", "rated"]);
    for one in ratings {
        section.push([one.of.clone(), number(one.mean), format!("{} of {}", one.rated, one.texts)]);
    }
    section.note("Each text rated by itself and without reference.");
    section
}

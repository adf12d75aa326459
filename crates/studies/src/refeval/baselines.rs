//! Baselines for unit judgements: a judge that sees no unit, BLEU, and embeddings.

use probity_lm::TextEncoder;
use probity_metrics::{MetricItem, Score, choose};
use probity_stats::pairwise_accuracy;
use serde::Serialize;
use serde_json::json;

use super::clustering::{cosine, embed};
use super::judgements::{Verdict, covers};
use super::options::RefEvalBaseline;
use super::prompts::VERDICTS;
use super::work::{AskedUnits, ExaminationResults, RefEvalWork};
use crate::answer::{Answer, ChoiceFields};
use crate::figures::{mean, number};
use crate::query::{ChoiceReadout, Query, QueryStage};
use crate::question::labels_in_any_case;
use crate::{MethodError, Run, Table, cells};

/// The stage without units, and its table.
pub(super) const NO_REFERENCE: &str = "no_reference";

/// The stage that judges these answers without units.
pub(super) fn no_reference<'a>(
    work: &'a RefEvalWork<'_>,
    asked: &'a [AskedUnits],
    key: &str,
) -> Result<QueryStage<'a, ChoiceReadout>, MethodError> {
    let prompt = work.prompts.get("no-reference");
    let fields = ChoiceFields::binary("verdict", [VERDICTS[0], VERDICTS[1]]);
    let query = |one: &'a AskedUnits| {
        let slots = vec![("question", one.question.as_str()), ("answer", one.answer.usable().unwrap_or_default())];
        let id = format!("{}/{NO_REFERENCE}", one.id);
        let query = Query::new(id, one.id.as_str(), json!({ "id": one.id }), prompt, slots);
        Query { is_asked: one.answer.usable().is_some(), ..query }
    };
    Ok(QueryStage::new(
        NO_REFERENCE,
        work.evaluator,
        asked.iter().map(query).collect(),
        ChoiceReadout::new(labels_in_any_case(&VERDICTS[..2])?, fields),
        work.inputs(NO_REFERENCE, "no-reference", work.evaluator, key),
    ))
}

/// The verdict of the judge without units for each unit: its verdict on the answer that covered it.
pub(super) fn by_unit(results: &ExaminationResults, verdicts: &[Answer<usize>]) -> Vec<Option<Verdict>> {
    let mut said = vec![None; results.units.len()];
    for (asked, verdict) in results.asked.iter().zip(verdicts) {
        for (unit, judgement) in &asked.judged {
            if covers(judgement) {
                said[*unit] = verdict.value.map(|option| Verdict::from_correctness(option == 0));
            }
        }
    }
    said
}

/// How well a number separates correct from incorrect units.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct ParterFigures {
    by: &'static str,
    mean_correct: Option<f64>,
    mean_incorrect: Option<f64>,
    /// The probability that a correct unit has a higher value than an incorrect one; ties count as half.
    auc: Option<f64>,
    units: usize,
}

impl ParterFigures {
    fn from_scores(by: &'static str, scored: &[(f64, bool)]) -> Self {
        let values =
            |is_right: bool| scored.iter().filter(move |(_, right)| *right == is_right).map(|(value, _)| *value);
        let (scores, gold): (Vec<f64>, Vec<f64>) =
            scored.iter().map(|(value, is_right)| (*value, f64::from(u8::from(*is_right)))).unzip();
        Self {
            by,
            mean_correct: mean(values(true)),
            mean_incorrect: mean(values(false)),
            auc: pairwise_accuracy([(scores.as_slice(), gold.as_slice())]).accuracy,
            units: scored.len(),
        }
    }

    /// The figures as a table.
    pub(super) fn table(all: &[Self]) -> Table {
        let columns = ["by", "units", "mean if correct", "mean if incorrect", "AUC"];
        let mut table = Table::new("Metrics of answers and units", columns);
        for one in all {
            let numbers = [one.mean_correct, one.mean_incorrect, one.auc].map(number);
            table.push(cells![one.by, one.units].into_iter().chain(numbers));
        }
        table.note(
            "Each unit is compared with the answer that covered it. AUC: probability that a correct unit has a higher \
             number than an incorrect one; chance is 0.5. Correctness is from human judgements if available, else from \
             the judge.",
        );
        table
    }
}

/// The chosen numbers over covered units.
pub(super) fn parters(
    work: &RefEvalWork<'_>,
    results: &ExaminationResults,
    encoder: &dyn TextEncoder,
    is_right: impl Fn(usize) -> Option<bool>,
    run: &mut Run<'_>,
) -> Result<Vec<ParterFigures>, MethodError> {
    let covered: Vec<(&str, usize)> = results
        .asked
        .iter()
        .flat_map(|asked| {
            let answer = asked.answer.usable().unwrap_or_default();
            asked.judged.iter().filter(|(_, judgement)| covers(judgement)).map(move |(unit, _)| (answer, *unit))
        })
        .collect();
    let part = |by: &'static str, values: &[Option<f64>]| {
        let scored = covered.iter().zip(values).filter_map(|((_, unit), value)| Some(((*value)?, is_right(*unit)?)));
        ParterFigures::from_scores(by, &scored.collect::<Vec<_>>())
    };
    let mut all = Vec::new();
    if work.params.has(RefEvalBaseline::Bleu) && !covered.is_empty() {
        let chosen = choose("bleu")?.remove(0);
        let metric = chosen.build(run.metric_models())?;
        let items: Vec<MetricItem<'_>> = covered
            .iter()
            .map(|&(candidate, unit)| MetricItem {
                candidate,
                references: vec![work.units[unit].text.as_str()],
                ..MetricItem::default()
            })
            .collect();
        let scores = run.measure(Some("bleu"), &*metric, &items)?;
        let values: Vec<Option<f64>> = scores.items.iter().map(|row| Score::value(row[0])).collect();
        all.push(part("BLEU", &values));
    }
    if work.params.has(RefEvalBaseline::Embedding) && !covered.is_empty() {
        let answers: Vec<&str> = covered.iter().map(|(answer, _)| *answer).collect();
        let vectors = embed(encoder, &answers, run)?;
        let values: Vec<Option<f64>> =
            covered.iter().zip(&vectors).map(|((_, unit), own)| Some(cosine(own, &work.vectors[*unit]))).collect();
        all.push(part("embedding", &values));
    }
    Ok(all)
}

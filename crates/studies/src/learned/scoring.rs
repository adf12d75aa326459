//! Scores texts with a head.

use probity_data::Sample;
use probity_learn::FeatureTable;
use probity_lm::ModelDescription;
use probity_lm::text::{counted, fixed};
use probity_stats::AgreementFigures;
use serde_json::json;

use super::head_file::{LearnedHead, read_heads};
use super::key_of_data;
use super::options::LearnedParams;
use super::study::WayKind;
use super::table::{FeaturedCandidates, GivenScores, SCORES_BLOCK};
use crate::candidate_report::{CandidateReport, SCORES, ScoreFigures, Scores, write_scores};
use crate::conclusion::ConclusionCase;
use crate::question::short_hash;
use crate::{Conclusion, Headline, MethodError, MethodReport, Run, RunScores, Signature, Table, Trust, cells};

/// The share of texts outside the training distribution above which a warning is shown.
const MANY_FAR: f64 = 0.1;

/// The requested heads.
pub(super) fn heads(params: &LearnedParams) -> Result<Vec<LearnedHead>, MethodError> {
    let heads = read_heads(&params.head)?;
    if let Some(unknown) = params.attribute.iter().find(|name| heads.iter().all(|head| head.name() != name.as_str())) {
        let known: Vec<&str> = heads.iter().map(LearnedHead::name).collect();
        let why = "the file has no head for it";
        return MethodError::refuse(format!("--attribute {unknown}"), why, format!("it has {}", known.join(", ")));
    }
    let is_asked =
        |head: &LearnedHead| params.attribute.is_empty() || params.attribute.iter().any(|one| one == head.name());
    let (model, prompt) = (heads[0].origin.model.clone(), heads[0].origin.prompt.clone());
    if heads.iter().any(|head| head.origin.model != model || head.origin.prompt != prompt) {
        let hint = "use the heads of a single run of `probity learn`";
        return MethodError::refuse("--head", "its rows have different models or prompts", hint);
    }
    Ok(heads.into_iter().filter(is_asked).collect())
}

/// Refuses features of a model other than the head's.
pub(super) fn refuse_other_model(head: &LearnedHead, model: &ModelDescription) -> Result<(), MethodError> {
    if head.asks_model() && model.fingerprint != head.origin.model.fingerprint {
        let why = format!(
            "learnt with `{}` ({}), but this model is `{}` ({})",
            head.origin.model.name,
            short(&head.origin.model.fingerprint),
            model.name,
            short(&model.fingerprint)
        );
        let hint = "use the model that it was learnt with, or learn again with this one";
        return MethodError::refuse("--head", why, hint);
    }
    Ok(())
}

/// Refuses missing score columns that a head uses.
pub(super) fn refuse_other_columns(heads: &[LearnedHead], given: &GivenScores) -> Result<(), MethodError> {
    for head in heads {
        let columns = head.blocks.iter().filter(|block| block.name == SCORES_BLOCK).flat_map(|block| &block.columns);
        if let Some(missing) = columns.into_iter().find(|column| !given.has(column)) {
            let why =
                format!("the head for {} uses the scores `{}`, which are missing", head.name(), missing.escape_debug());
            let hint = "pass the tables that it was learnt with, for these samples, in the same order: --scores FILE";
            return MethodError::refuse("--scores", why, hint);
        }
    }
    Ok(())
}

fn short(fingerprint: &str) -> &str {
    fingerprint.get(..12).unwrap_or(fingerprint)
}

/// Twelve hex digits of a hash over the heads.
pub(super) fn hash(heads: &[LearnedHead]) -> String {
    let texts: Vec<String> =
        heads.iter().map(|head| serde_json::to_string(head).expect("plain values under string keys")).collect();
    short_hash(texts.iter().map(String::as_str))
}

/// The scores of all candidates by one head, by sample and candidate.
fn scores_of(head: &LearnedHead, table: &FeatureTable, featured: &FeaturedCandidates) -> Vec<Vec<Option<f64>>> {
    let table = if head.centred { &table.centred(&featured.groups()) } else { table };
    let table = if head.ends.is_empty() { table } else { &table.within(&head.ends) };
    let score = |row: &Option<usize>| row.map(|row| head.fitted.head.predict(table.row(row)));
    featured.rows.iter().map(|rows| rows.iter().map(score).collect()).collect()
}

/// Scores all candidates and summarises.
pub(super) fn score(
    params: &LearnedParams,
    heads: &[LearnedHead],
    samples: &[Sample],
    featured: &FeaturedCandidates,
    given: &GivenScores,
    signature: Signature,
    run: &mut Run<'_>,
) -> Result<MethodReport, MethodError> {
    let model = run.model().description().clone();
    let known = samples.iter().flat_map(|sample| &sample.candidates);
    let has_gold = |name: &str| known.clone().any(|candidate| candidate.scores.contains_key(name));
    run.table(SCORES, heads.len() * samples.iter().map(|sample| sample.candidates.len()).sum::<usize>())?;
    let columns = ScoreFigures::COLUMNS.into_iter().chain(["by", "learnt from", "cross-validated"]);
    let mut report = CandidateReport::new(samples, Table::new("Scores", columns), "score", None);
    let (mut headline, mut row) = (Vec::new(), 0);
    for head in heads {
        let Some(own) = featured.table.select(&head.blocks) else {
            let why = format!("the head for {} uses other features", head.name());
            let hint = "pass --from features=FILE with the same model and layer";
            return MethodError::refuse("--head", why, hint);
        };
        let scores = scores_of(head, &own, featured);
        let attribute = head.attribute.as_deref();
        row += write_scores(samples, attribute, &scores, row, "no_features", run)?;
        let figures = ScoreFigures::from_scores(&scores);
        let learnt = cells![probity_options::name(&head.uses), counted(head.labels, "label"), head.agreement_text()];
        report.scores.push(figures.cells(head.name()).into_iter().chain(learnt));
        let warnings = warnings(head, &own, samples, &model);
        let about = (heads.len() > 1).then(|| head.name().to_owned());
        // A head learned from preferences predicts preferences; heads of scores are not compared with them.
        let preferences = !params.no_gold && attribute.is_none();
        let conclude = |_: &str, gold: Option<&AgreementFigures>, scores: &Scores| {
            let case = ConclusionCase { about: about.clone(), samples, scores, gold, ..ConclusionCase::default() };
            let conclusion = ConclusionCase { attribute, preferences, ..case }.conclusion();
            with_head(conclusion, head, &own, &warnings)
        };
        let used = attribute.filter(|name| !params.no_gold && has_gold(name));
        let values = json!({
            "attribute": head.name(), "scored": figures.scored, "candidates": figures.candidates, "uses": head.uses,
            "labels": head.labels, "cross_validated": head.agreement, "far": head.profile.far(&own),
        });
        report.add((head.name(), attribute), scores, values, used, conclude);
        headline.push(match report.agreement.last().filter(|_| used.is_some()) {
            Some(agreement) => agreement.clone(),
            None => Headline::new("mean", Some(head.name()), figures.mean),
        });
        for warning in warnings {
            report.scores.note(format!("{}: {warning}", head.name()));
        }
    }
    given.notes.iter().for_each(|note| report.scores.note(note.clone()));
    let report = report.finish(signature, featured.outcomes.clone(), []);
    Ok(MethodReport { headline, scores: RunScores::default(), ..report })
}

/// Adds the head's origin, its cross-validation and warnings to a conclusion.
fn with_head(mut conclusion: Conclusion, head: &LearnedHead, own: &FeatureTable, warnings: &[String]) -> Conclusion {
    let by = head.way();
    let said = conclusion.agreement.as_mut().unwrap_or(&mut conclusion.says);
    // Without gold the quality is unknown, so the distance from the training texts is reported.
    *said = format!(
        "{said}; scored by {by}, {} in cross-validation on the training data; {}% of these texts are unlike those",
        head.agreement_text(),
        fixed(100.0 * head.profile.far(own) as f64 / own.rows().max(1) as f64, 1),
    );
    let unclear = (!head.is_clear)
        .then_some((Trust::Unreliable, "its cross-validated agreement with labels is not above chance"));
    let warned = warnings.first().map(|first| (Trust::Caution, first.as_str()));
    for (trust, why) in unclear.into_iter().chain(warned) {
        let because = if conclusion.trust == Trust::Reliable { None } else { Some(conclusion.because.as_str()) };
        conclusion.because = [why].into_iter().chain(because).collect::<Vec<_>>().join("; ");
        conclusion.trust = conclusion.trust.max(trust);
    }
    conclusion
}

/// Warnings about a head's scores of these texts.
fn warnings(head: &LearnedHead, table: &FeatureTable, samples: &[Sample], model: &ModelDescription) -> Vec<String> {
    let mut warnings = Vec::new();
    if key_of_data(samples) == head.origin.data && head.uses != WayKind::LogProbability {
        warnings
            .push("these are the training samples of the head, so agreement with their labels is no test".to_owned());
    }
    let far = head.profile.far(table);
    let share = far as f64 / table.rows().max(1) as f64;
    if share > MANY_FAR {
        warnings.push(format!(
            "{}% of {} are unlike the training texts (farther from their mean than 99% of them)",
            fixed(100.0 * share, 1),
            counted(table.rows(), "text"),
        ));
    }
    if head.asks_model() && model.precision.as_str() != head.origin.model.precision {
        warnings.push(format!(
            "the head was learnt from features in the precision `{}`, but these have `{}`",
            head.origin.model.precision,
            model.precision.as_str()
        ));
    }
    let alone = samples.iter().filter(|sample| sample.candidates.len() == 1).count();
    if head.centred && alone > 0 {
        warnings.push(format!(
            "the head compares candidates of one context, but {} alone in theirs: such scores carry no information",
            if alone == 1 { "one is".to_owned() } else { format!("{alone} are") }
        ));
    }
    warnings
}

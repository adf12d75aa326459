//! Defences that change the candidates before the judge sees them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use probity_data::Sample;
use probity_lm::{Ask, GenerateRequest, Prompt, ScoreRequest, ScoreResult};

use crate::builtin::{Builtin, DataSlot};
use crate::defence::Defence;
use crate::question::LayoutOptions;
use crate::template::Template;
use crate::{MethodError, MethodReport, Run, Table, row};

/// The table of each candidate's treatment.
const DEFENDED: &str = "defended";

/// The prompt of paraphrases.
pub const PARAPHRASE: Builtin = Builtin {
    name: "paraphrase",
    source: include_str!("prompts/defence_paraphrase.j2"),
    data: &[DataSlot::required("candidate")],
};

/// Window length in tokens: short, like most injections.
const WINDOW: usize = 20;

/// The prefix of a scored text, which gives its first token a context.
const BEFORE: &str = "A text:";

/// The candidates for the judge, with counts of withheld ones.
pub(crate) struct DefendedTexts<'s> {
    pub(crate) samples: Cow<'s, [Sample]>,
    withheld: usize,
    candidates: usize,
}

impl DefendedTexts<'_> {
    /// Adds the number of withheld candidates to a report.
    pub(crate) fn report_withheld(&self, defences: &[Defence], report: &mut MethodReport) {
        if !defences.iter().any(Defence::is_of_texts) {
            return;
        }
        let mut told = Table::new::<&str>("Defences", []);
        if defences.contains(&Defence::Paraphrase) {
            told.note("the judge saw paraphrases of the candidates (`defended.jsonl`)");
        }
        if defences.iter().any(|defence| matches!(defence, Defence::Perplexity(_))) {
            told.note(format!(
                "{} of {} candidates were withheld because a span of the text exceeds the perplexity limit (outcome \
                 `empty`)",
                self.withheld, self.candidates
            ));
        }
        report.tables.push(told);
    }
}

/// The samples for the judge, after the defences. Each distinct text is processed once.
pub(crate) fn defended<'s>(
    defences: &[Defence],
    samples: &'s [Sample],
    run: &mut Run<'_>,
) -> Result<DefendedTexts<'s>, MethodError> {
    let candidates = samples.iter().map(|sample| sample.candidates.len()).sum();
    if !defences.iter().any(Defence::is_of_texts) {
        return Ok(DefendedTexts { samples: Cow::Borrowed(samples), withheld: 0, candidates });
    }
    let texts = distinct(samples);
    let limit = defences.iter().find_map(|defence| match defence {
        Defence::Perplexity(nats) => Some(*nats),
        _ => None,
    });
    let nats = if limit.is_some() { surprise(&texts, run)? } else { vec![None; texts.len()] };
    let withheld: Vec<bool> =
        nats.iter().map(|nats| nats.zip(limit).is_some_and(|(nats, limit)| nats > limit)).collect();
    let kept: Vec<&str> =
        texts.iter().zip(&withheld).filter(|(_, withheld)| !**withheld).map(|(text, _)| *text).collect();
    let paraphrases: BTreeMap<&str, String> = if defences.contains(&Defence::Paraphrase) {
        kept.iter().copied().zip(paraphrases(&kept, run)?).collect()
    } else {
        BTreeMap::new()
    };
    let places: BTreeMap<&str, usize> = texts.iter().enumerate().map(|(place, text)| (*text, place)).collect();
    run.table(DEFENDED, candidates)?;
    let mut shown = samples.to_vec();
    let (mut row, mut away) = (0, 0);
    for (sample, shown) in samples.iter().zip(&mut shown) {
        for (candidate, shown) in sample.candidates.iter().zip(&mut shown.candidates) {
            let text: &str = &candidate.text;
            let place = places.get(text).copied();
            let is_withheld = place.is_some_and(|place| withheld[place]);
            let paraphrase = paraphrases.get(text).map(String::as_str);
            let (item, nats_per_token) = (sample.id.as_str(), place.and_then(|place| nats[place]));
            // The highest mean over any window, and the text shown instead.
            let told = row! {
                "item": item, "candidate": candidate.id, "nats_per_token"?: nats_per_token,
                "withheld"?: is_withheld.then_some(true), "paraphrase"?: paraphrase,
            };
            run.row(DEFENDED, row, &told)?;
            row += 1;
            away += usize::from(is_withheld);
            if let Some(text) = if is_withheld { Some("") } else { paraphrase } {
                shown.text = text.into();
            }
        }
    }
    Ok(DefendedTexts { samples: Cow::Owned(shown), withheld: away, candidates })
}

/// The distinct texts in order of first occurrence.
fn distinct(samples: &[Sample]) -> Vec<&str> {
    let mut seen = std::collections::BTreeSet::new();
    let texts = samples.iter().flat_map(|sample| &sample.candidates).map(|candidate| &*candidate.text);
    texts.filter(|text| !text.trim().is_empty() && seen.insert(*text)).collect()
}

/// The highest nats per token over the windows of each text; absent if the model cannot score it.
fn surprise(texts: &[&str], run: &mut Run<'_>) -> Result<Vec<Option<f64>>, MethodError> {
    let requests = texts.iter().enumerate().map(|(number, text)| ScoreRequest {
        id: format!("perplexity/{number}"),
        prompt: Prompt::Text(BEFORE.to_owned()),
        ask: Ask::Continuation(format!(" {}", text.trim())),
    });
    let mut found = vec![None; texts.len()];
    run.beforehand(|run| {
        run.score(requests, |number, result, _| {
            found[number] = most_improbable(&result);
            Ok(())
        })
    })?;
    Ok(found)
}

fn most_improbable(result: &ScoreResult) -> Option<f64> {
    let logprobs = &result.continuation()?.token_logprobs;
    let window = WINDOW.min(logprobs.len());
    let mean = |stretch: &[f64]| -stretch.iter().sum::<f64>() / stretch.len() as f64;
    logprobs.windows(window.max(1)).map(mean).reduce(f64::max)
}

/// The model's paraphrases of the texts; the texts unchanged in a dry run.
fn paraphrases(texts: &[&str], run: &mut Run<'_>) -> Result<Vec<String>, MethodError> {
    let layout = LayoutOptions::default().layout(run.model().description(), "Text:")?;
    let template = Template::load(PARAPHRASE.name, &[PARAPHRASE], BTreeMap::new(), &layout)?;
    let prompts = texts.iter().map(|text| {
        let rendered = template.render("a candidate", &[("candidate", text)])?;
        run.quotes(rendered.quoted.clone());
        Ok(rendered.prompt(&layout))
    });
    let prompts: Vec<Prompt> = prompts.collect::<Result<_, MethodError>>()?;
    let requests = prompts.into_iter().zip(texts).enumerate().map(|(number, (prompt, text))| {
        // A token rarely has fewer than two bytes, so this allows twice the text's length.
        GenerateRequest::greedy(format!("paraphrase/{number}"), prompt, text.len() + 32)
    });
    let mut found: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
    run.beforehand(|run| {
        run.generate(requests, |number, result, _| {
            result.text.trim().clone_into(&mut found[number]);
            Ok(())
        })
    })?;
    Ok(found)
}

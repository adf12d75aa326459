//! Shared test helpers: samples whose texts contain their quality, judges that read it, and running a method from
//! arguments.

use std::collections::BTreeMap;

use miette::Diagnostic;
use probity_data::{Candidate, Sample};
use probity_lm::{
    Finish, GenerateRequest, GenerateResult, LanguageModel, Outcome, Prompt, ScoreRequest, ScoreResult, ScriptedModel,
};
use probity_options::{GivenOptions, OptionKind, OptionSpec};

use serde_json::Value;

use crate::{Configured, GivenTable, MemoryOutput, MethodError, MethodReport, ModelKind, Run, Staging, method};

/// An error with its hint and those of its causes, one line each.
pub(crate) fn error_text(error: &dyn Diagnostic) -> String {
    let mut text = error.to_string();
    let mut next = Some(error);
    while let Some(error) = next {
        text.extend(error.help().map(|hint| format!("\n{hint}")));
        next = error.diagnostic_source();
    }
    text
}

/// The answer of a model to one request, for scripts that inspect the request first.
pub(crate) fn scored_by(model: &ScriptedModel, request: &ScoreRequest) -> ScoreResult {
    let mut found = None;
    let keep = &mut |_, result| {
        found = Some(result);
        Ok(())
    };
    model.score(&mut std::iter::once(request.clone()), keep).expect("scripted");
    found.expect("one result")
}

/// The generated result of a model for one request.
pub(crate) fn written_by(model: &ScriptedModel, request: &GenerateRequest) -> GenerateResult {
    let mut found = None;
    let keep = &mut |_, result| {
        found = Some(result);
        Ok(())
    };
    model.generate(&mut std::iter::once(request.clone()), keep).expect("scripted");
    found.expect("one result")
}

/// A sample whose candidates `0`, `1` … have these qualities, in the text and as gold for coherence.
pub(crate) fn sample(id: &str, qualities: &[f64]) -> Sample {
    let candidate = |(k, quality): (usize, &f64)| Candidate {
        id: k.to_string(),
        text: format!("quality={quality} is the quality of text {k}").into(),
        scores: BTreeMap::from([("coherence".to_owned(), *quality)]),
    };
    Sample {
        id: id.to_owned(),
        context: format!("the context of {id}").into(),
        instruction: None,
        texts: ["question", "answer"].map(|name| (name.to_owned(), format!("the {name} of {id}").into())).into(),
        candidates: qualities.iter().enumerate().map(candidate).collect(),
        references: Vec::new(),
        preference: None,
    }
}

/// Runs a method like the command line.
pub(crate) fn run(
    args: &str,
    samples: &[Sample],
    model: &dyn LanguageModel,
) -> (Result<MethodReport, MethodError>, MemoryOutput) {
    let mut output = MemoryOutput::default();
    let result = run_into(args, samples, model, &mut output);
    (result, output)
}

/// Runs a method with the given output.
pub(crate) fn run_into(
    args: &str,
    samples: &[Sample],
    model: &dyn LanguageModel,
    output: &mut dyn crate::RunOutput,
) -> Result<MethodReport, MethodError> {
    run_by(args, samples, model, &[], output)
}

/// Runs a method with further models.
pub(crate) fn run_by(
    args: &str,
    samples: &[Sample],
    model: &dyn LanguageModel,
    others: &[&dyn LanguageModel],
    output: &mut dyn crate::RunOutput,
) -> Result<MethodReport, MethodError> {
    let method = configured(args)?;
    let asked = method.models().into_iter().filter(|model| model.kind == ModelKind::Language);
    assert_eq!(asked.count(), others.len());
    method.run(samples, &mut Run::new(model, output).with_other_models(others))
}

/// Runs a method with a stage's table from a file `t`, one row per line; returns the error text if it is refused.
pub(crate) fn run_from(
    args: &str,
    samples: &[Sample],
    model: &dyn LanguageModel,
    stage: &str,
    rows: &[Value],
) -> Result<MethodReport, String> {
    let mut output = MemoryOutput::default();
    let staging = Staging { tables: table(stage, rows), ..Staging::default() };
    let mut run = Run::new(model, &mut output).with_staging(staging);
    configured(args).expect("valid options").run(samples, &mut run).map_err(|error| error_text(&error))
}

/// A stage's table from a file `t`.
fn table(stage: &str, rows: &[Value]) -> BTreeMap<String, GivenTable> {
    let rows = (1..).zip(rows.iter().cloned()).collect();
    BTreeMap::from([(stage.to_owned(), GivenTable { path: "t".into(), rows })])
}

/// The end of a dry run.
pub(crate) fn rehearse(args: &str, samples: &[Sample], model: &dyn LanguageModel) -> MethodError {
    rehearse_by(args, samples, model, Staging::default())
}

/// The end of a dry run with a stage's table from a file.
pub(crate) fn rehearse_from(
    args: &str,
    samples: &[Sample],
    model: &dyn LanguageModel,
    stage: &str,
    rows: &[Value],
) -> MethodError {
    rehearse_by(args, samples, model, Staging { tables: table(stage, rows), ..Staging::default() })
}

fn rehearse_by(args: &str, samples: &[Sample], model: &dyn LanguageModel, staging: Staging) -> MethodError {
    let mut output = MemoryOutput::default();
    let mut run = Run::new(model, &mut output).with_staging(Staging { stands_in: true, ..staging });
    let method = configured(args).expect("valid options");
    method.run(samples, &mut run).expect_err("a rehearsal has no summary")
}

/// Configures a method from typed options: `compare --attribute coherence --analyses`.
pub(crate) fn configured(args: &str) -> Result<Box<dyn Configured>, MethodError> {
    let (name, options) = args.split_once(' ').unwrap_or((args, ""));
    let method = method(name).expect("a registered method");
    method.with(&parse_options(&method.options(), options))
}

/// Parses typed options. Unknown ones are passed on, for the method to refuse.
pub(crate) fn parse_options(known: &[OptionSpec], text: &str) -> GivenOptions {
    let mut given = GivenOptions::new();
    for option in text.split("--").filter(|option| !option.trim().is_empty()) {
        let (name, value) = option.split_once([' ', '=']).unwrap_or((option, "yes"));
        let field = name.replace('-', "_");
        let spec = known.iter().find(|spec| spec.field == field);
        let is_flag = spec.is_none_or(|spec| spec.kind == OptionKind::Flag);
        let value = if is_flag { "yes" } else { value.trim() };
        let Some(spec) = spec else {
            given.insert(field, value.into());
            continue;
        };
        let pieces: Vec<&str> = if spec.form.ends_with(",…") { value.split(',').collect() } else { vec![value] };
        for piece in pieces {
            let value = spec.parse(piece).unwrap_or_else(|_| piece.into());
            match (given.get_mut(&field), spec.is_list) {
                (Some(Value::Array(values)), true) => values.push(value),
                (_, true) => drop(given.insert(field.clone(), Value::Array(vec![value]))),
                (_, false) => drop(given.insert(field.clone(), value)),
            }
        }
    }
    given
}

/// The qualities of the texts in a prompt, in presentation order.
pub(crate) fn qualities(prompt: &Prompt) -> Vec<f64> {
    let text = prompt.text();
    let values = text.split("quality=").skip(1).map(|rest| rest.split_whitespace().next().expect("a value"));
    values.map(|value| value.parse().expect("a number")).collect()
}

/// A finished generated text.
pub(crate) fn generated(text: &str) -> GenerateResult {
    let (outcome, finish) = (Outcome::Scored, Some(Finish::EndOfTurn));
    GenerateResult { text: text.to_owned(), token_ids: vec![1], finish, ..GenerateResult::without_text(outcome, 7) }
}

pub(crate) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// A pairwise judge that knows the qualities: log-odds of the first are `sharpness · difference + bias`.
pub(crate) fn pair_judge(sharpness: f64, bias: f64) -> ScriptedModel {
    ScriptedModel::from_probabilities(move |request: &ScoreRequest| {
        let shown = qualities(&request.prompt);
        let p = sigmoid(sharpness * (shown[0] - shown[1]) + bias);
        vec![0.9 * p, 0.9 * (1.0 - p)]
    })
}

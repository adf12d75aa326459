//! What the tests of all methods share: samples whose texts carry their quality, judges that read it, and the way from
//! arguments to summary.

use std::collections::BTreeMap;

use miette::Diagnostic;
use probity_data::{Candidate, Sample};
use probity_lm::{
    Finish, GenerateRequest, GenerateResult, LanguageModel, Outcome, Prompt, ScoreRequest, ScoreResult, ScriptedModel,
};
use probity_options::{GivenOptions, OptionKind, OptionSpec};

use serde_json::Value;

use crate::{Configured, GivenTable, MemoryOutput, MethodError, ModelKind, Run, RunSummary, Staging, method};

/// What an error says, its hint and those of its causes, a line each.
pub(crate) fn told(error: &dyn Diagnostic) -> String {
    let mut text = error.to_string();
    let mut next = Some(error);
    while let Some(error) = next {
        text.extend(error.help().map(|hint| format!("\n{hint}")));
        next = error.diagnostic_source();
    }
    text
}

/// What a model answers to one request, for a script that looks at the request first.
pub(crate) fn scored_by(model: &ScriptedModel, request: &ScoreRequest) -> ScoreResult {
    let mut found = None;
    let keep = &mut |_, result| {
        found = Some(result);
        Ok(())
    };
    model.score(&mut std::iter::once(request.clone()), keep).expect("scripted");
    found.expect("one result")
}

/// What a model writes for one request.
pub(crate) fn written_by(model: &ScriptedModel, request: &GenerateRequest) -> GenerateResult {
    let mut found = None;
    let keep = &mut |_, result| {
        found = Some(result);
        Ok(())
    };
    model.generate(&mut std::iter::once(request.clone()), keep).expect("scripted");
    found.expect("one result")
}

/// A sample whose candidates `0`, `1` … have these qualities, in text and as gold for coherence.
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

/// Runs a method as the command line would.
pub(crate) fn run(
    args: &str,
    samples: &[Sample],
    model: &dyn LanguageModel,
) -> (Result<RunSummary, MethodError>, MemoryOutput) {
    let mut output = MemoryOutput::default();
    let result = run_into(args, samples, model, &mut output);
    (result, output)
}

/// The same into any output.
pub(crate) fn run_into(
    args: &str,
    samples: &[Sample],
    model: &dyn LanguageModel,
    output: &mut dyn crate::RunOutput,
) -> Result<RunSummary, MethodError> {
    run_by(args, samples, model, &[], output)
}

/// The same with further models.
pub(crate) fn run_by(
    args: &str,
    samples: &[Sample],
    model: &dyn LanguageModel,
    others: &[&dyn LanguageModel],
    output: &mut dyn crate::RunOutput,
) -> Result<RunSummary, MethodError> {
    let method = configured(args)?;
    let asked = method.models().into_iter().filter(|model| model.kind == ModelKind::Language);
    assert_eq!(asked.count(), others.len());
    method.run(samples, &mut Run::new(model, output).with_other_models(others))
}

/// Runs a method with a stage's table as a file `t` would have it, a row in each line; what is told of it where it is
/// refused.
pub(crate) fn run_from(
    args: &str,
    samples: &[Sample],
    model: &dyn LanguageModel,
    stage: &str,
    rows: &[Value],
) -> Result<RunSummary, String> {
    let mut output = MemoryOutput::default();
    let staging = Staging { tables: table(stage, rows), ..Staging::default() };
    let mut run = Run::new(model, &mut output).with_staging(staging);
    configured(args).expect("valid options").run(samples, &mut run).map_err(|error| told(&error))
}

/// A stage's table as a file `t` would have it.
fn table(stage: &str, rows: &[Value]) -> BTreeMap<String, GivenTable> {
    let rows = (1..).zip(rows.iter().cloned()).collect();
    BTreeMap::from([(stage.to_owned(), GivenTable { path: "t".into(), rows })])
}

/// How a rehearsal of the same ends; what the model says is not looked at.
pub(crate) fn rehearse(args: &str, samples: &[Sample], model: &dyn LanguageModel) -> MethodError {
    rehearse_by(args, samples, model, Staging::default())
}

/// The same with a stage's table from a file.
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

/// `compare --attribute coherence --analyses`: a method with options as they are typed.
pub(crate) fn configured(args: &str) -> Result<Box<dyn Configured>, MethodError> {
    let (name, options) = args.split_once(' ').unwrap_or((args, ""));
    let method = method(name).expect("a registered method");
    method.with(&given(&method.options(), options))
}

/// Options as they are typed. Those that are none of `known` are given as they are, and the method refuses them.
pub(crate) fn given(known: &[OptionSpec], text: &str) -> GivenOptions {
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

/// The qualities of the texts in a prompt, in the order shown.
pub(crate) fn qualities(prompt: &Prompt) -> Vec<f64> {
    let text = prompt.text();
    let values = text.split("quality=").skip(1).map(|rest| rest.split_whitespace().next().expect("a value"));
    values.map(|value| value.parse().expect("a number")).collect()
}

/// A text that the model generated before it ended its turn.
pub(crate) fn generated(text: &str) -> GenerateResult {
    let (outcome, finish) = (Outcome::Scored, Some(Finish::EndOfTurn));
    GenerateResult { text: text.to_owned(), token_ids: vec![1], finish, ..GenerateResult::without_text(outcome, 7) }
}

pub(crate) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// A pairwise judge who knows the qualities: log-odds of the first are `sharpness · difference + bias`.
pub(crate) fn pair_judge(sharpness: f64, bias: f64) -> ScriptedModel {
    ScriptedModel::from_probabilities(move |request: &ScoreRequest| {
        let shown = qualities(&request.prompt);
        let p = sigmoid(sharpness * (shown[0] - shown[1]) + bias);
        vec![0.9 * p, 0.9 * (1.0 - p)]
    })
}

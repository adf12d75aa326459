//! `probity show`: a sample of a run with the model's input and output.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use miette::IntoDiagnostic as _;
use probity_data::{Sample, SampleSource};
use probity_lm::text::fixed;
use probity_lm::{
    Ask, ClassScore, ContinuationAnswer, GenerateResult, LabelAnswer, LabelScore, LanguageModel, Message, Outcome,
    PooledState, Prompt, Reading, ReadingAnswer, ScoreAnswer, ScoreRequest, ScoreResult, TokensAnswer, nearest,
};
use probity_options::name;
use probity_report::{Options, ReportedRun, RunReport};
use probity_runtime::encoder::PromptEncoder;
use probity_runtime::hub::{LocateError, LocatedModel, locate};
use probity_runtime::{Checkpoint, DeviceList, LoadOptions, Model};
use probity_store::{ANSWERS, AnsweredRequest, Answers, AnyAnswer, Manifest, SAMPLES, sample_of};
use serde_json::Value;

use crate::error::JsonError;
use crate::events::verdict_text;
use crate::exit::Completed;
use crate::terminal::{counted, print, table, table_text, visible, visible_line};

pub(crate) const LONG_ABOUT: &str = "\
Print a sample of a run: its texts, each question that was put about it, the prompt as the model saw it, and the \
answer token by token.

Without an id, the samples are listed. With a sample's id, its texts and its questions follow, and the first of these \
whole; with a question's id, that question: the prompt as the model saw it, special tokens between ⟦ and ⟧, and the \
probability of every token that was asked about. The prompt is laid out by the model's own template, so the model must \
be on this machine, though it is not loaded; where it is not, the messages are shown.

--recompute loads the model, asks again, and says whether the answer has the same bits.

Examples:
  probity show runs/coherence
  probity show runs/coherence article-7
  probity show runs/coherence article-7/coherence/1/M11/M13 --recompute";

/// Options of `show`.
#[derive(Debug, Args)]
pub(crate) struct RunShowArgs {
    /// The folder of the run
    run: PathBuf,
    /// A sample's or a question's id
    id: Option<String>,
    /// Where the run's model is now, if not where it was
    #[arg(long, value_name = "NAME|PATH")]
    model: Option<String>,
    /// Load the model, query it again, and compare the bits
    #[arg(long, requires = "id")]
    recompute: bool,
    /// Print the verdict and all tables of the run, its cost and its signature
    #[arg(long, conflicts_with_all = ["id", "model"])]
    all: bool,
}

/// The answers of a run; the error has a hint if there are none.
pub(crate) fn open_answers(run: &Path) -> miette::Result<(Manifest, Answers)> {
    let manifest = Manifest::read(run)?;
    // Modified files are not shown.
    manifest.check_files(run)?;
    let path = run.join(ANSWERS);
    if !path.exists() {
        let hint = match (manifest.info.command.as_str(), manifest.info.model.is_null()) {
            (command, true) => {
                format!("`{command}` asks no model, so there are no questions; probity report shows its figures")
            }
            _ => "it was run with --no-store or by an older version; run it again with --overwrite".to_owned(),
        };
        return Err(ShowError::NoAnswers { run: run.to_owned(), hint }.into());
    }
    Ok((manifest, Answers::open_read_only(&path)?))
}

impl RunShowArgs {
    pub(crate) fn run(self) -> miette::Result<Completed> {
        if self.all {
            return self.tables();
        }
        let (manifest, answers) = open_answers(&self.run)?;
        let samples = samples(&self.run)?;
        let Some(id) = &self.id else { return list(&answers, &samples) };
        let asked = answers.named(id)?;
        let sample = samples.iter().find(|sample| sample.id == *id);
        if let Some(sample) = sample {
            print(&texts(sample))?;
        }
        match &asked[..] {
            [] if sample.is_none() => return Err(unknown(id, &samples, &self.run).into()),
            [] => print("no queries about it")?,
            [one] => print(&self.question(one, &manifest)?)?,
            [first, ..] => print(&format!("{}\n\n{}", questions(&asked), self.question(first, &manifest)?))?,
        }
        if self.recompute { recompute(&asked, &self.load(&manifest)?) } else { Ok(Completed::Success) }
    }

    /// Prints all tables of the run.
    fn tables(&self) -> miette::Result<Completed> {
        let run = ReportedRun::open(&self.run)?;
        let verdict = run.verdict();
        let signature = run.signature().map(visible_line);
        let report = RunReport::new(vec![run], Options::default())?;
        print(&verdict_text(&verdict))?;
        let tables = report.tables().filter(|table| table.id != RunReport::VERDICTS);
        tables.into_iter().try_for_each(|table| print(&table_text(table)))?;
        signature.iter().try_for_each(|line| print(line))?;
        Ok(Completed::Success)
    }

    /// The prompt as the model saw it, and the answer.
    fn question(&self, asked: &AnsweredRequest, manifest: &Manifest) -> miette::Result<String> {
        let name = self.model_name(manifest);
        let open = || -> miette::Result<Checkpoint> {
            let checkpoint = Checkpoint::open(&self.located(manifest)?)?;
            // Another model's template would show a different prompt.
            if manifest.info.model["fingerprint"] != checkpoint.fingerprint()? {
                return Err(ShowError::OtherFiles { name: name.to_owned() }.into());
            }
            Ok(checkpoint)
        };
        let prompt = match open().and_then(|checkpoint| seen(&checkpoint.encoder, asked)) {
            Ok(prompt) => prompt,
            Err(error) => format!(
                "{}\n\n(messages as they were given: {}; --model says where the model is)",
                messages(&asked.prompt),
                visible(&error.to_string())
            ),
        };
        let outcome = outcome_line(&asked.answer)?;
        Ok(format!("{}\n\n{prompt}\n\n{}\n{outcome}", heading(&asked.request), answer(&asked.answer)))
    }

    fn model_name<'m>(&'m self, manifest: &'m Manifest) -> &'m str {
        self.model.as_deref().or_else(|| manifest.info.model["name"].as_str()).unwrap_or_default()
    }

    fn located(&self, manifest: &Manifest) -> Result<LocatedModel, LocateError> {
        Ok(locate(self.model_name(manifest))?.with_adapter(manifest.info.model["adapter"].as_str().map(PathBuf::from)))
    }

    /// The run's model with the run's options.
    fn load(&self, manifest: &Manifest) -> miette::Result<Model> {
        let of_run = |name: &str| manifest.info.arguments_in_force["model"][name].clone();
        let defaults = LoadOptions::default();
        // Only options that affect answers: threads and budgets do not.
        let options = LoadOptions {
            precision: serde_json::from_value(of_run("precision"))
                .map_err(JsonError::context("the manifest names no precision"))?,
            // One of several copies is enough for one sample.
            devices: of_run("device").as_str().unwrap_or("cpu").parse::<DeviceList>()?.one_copy(),
            min_mass: of_run("min_mass").as_f64().unwrap_or(defaults.min_mass),
            ..defaults
        };
        let model = Model::load(&self.located(manifest)?, options)?;
        let same = manifest.info.model["fingerprint"] == model.description().fingerprint.as_str();
        if same { Ok(model) } else { Err(ShowError::OtherModel { name: model.description().name.clone() }.into()) }
    }
}

/// The judged samples; empty if the run has not stored them.
fn samples(run: &Path) -> miette::Result<Vec<Sample>> {
    let path = run.join(SAMPLES);
    if path.exists() { Ok(SampleSource::new(&path).samples()?) } else { Ok(Vec::new()) }
}

fn unknown(id: &str, samples: &[Sample], run: &Path) -> ShowError {
    let near = nearest(id, samples.iter().map(|sample| sample.id.as_str()));
    let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    ShowError::Unknown { id: id.to_owned(), near, run: run.to_owned() }
}

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
enum ShowError {
    #[error("{} holds no answers", run.display())]
    #[diagnostic(help("{hint}"))]
    NoAnswers { run: PathBuf, hint: String },
    #[error("no sample and no question is called `{id}`{near}")]
    #[diagnostic(help("probity show {} lists the samples", run.display()))]
    Unknown { id: String, near: String, run: PathBuf },
    #[error("`{name}` is another model now than that of the run")]
    OtherFiles { name: String },
    #[error("{name} is another model now than that of the run")]
    #[diagnostic(help("say with --model where that is"))]
    OtherModel { name: String },
}

/// Lists every sample with its queries and their outcomes, in the order of the run.
fn list(answers: &Answers, samples: &[Sample]) -> miette::Result<Completed> {
    let known: BTreeSet<&str> = samples.iter().map(|sample| sample.id.as_str()).collect();
    let mut rows: Vec<(String, usize, BTreeMap<String, usize>)> = Vec::new();
    answers.outcomes(|request, is_text, outcome| {
        let sample = sample_of(request, |id| known.get(id).copied()).unwrap_or(request);
        if rows.last().is_none_or(|(last, ..)| last != sample) {
            rows.push((sample.to_owned(), 0, BTreeMap::new()));
        }
        if let Some((_, questions, outcomes)) = rows.last_mut() {
            *questions += 1;
            *outcomes.entry(outcome_name(is_text, outcome).to_owned()).or_default() += 1;
        }
    })?;
    let asked: BTreeSet<String> = rows.iter().map(|(id, ..)| id.clone()).collect();
    let not_asked = samples.iter().filter(|sample| !asked.contains(&sample.id));
    rows.extend(not_asked.map(|sample| (sample.id.clone(), 0, BTreeMap::new())));
    let outcomes = |counts: BTreeMap<String, usize>| {
        if counts.is_empty() {
            return "no queries".to_owned();
        }
        counts.iter().map(|(name, n)| format!("{n} {name}")).collect::<Vec<_>>().join(", ")
    };
    let rows: Vec<Vec<String>> =
        rows.into_iter().map(|(id, n, counts)| vec![id, n.to_string(), outcomes(counts)]).collect();
    print(&table(&["sample", "questions", "outcomes"].map(str::to_owned), &rows))?;
    Ok(Completed::Success)
}

fn heading(text: &str) -> String {
    format!("── {} ──", visible_line(text))
}

/// All texts of a sample.
fn texts(sample: &Sample) -> String {
    let mut parts = vec![(format!("sample {}", sample.id), None)];
    let mut part = |name: String, text: &str| parts.push((name, Some(text.to_owned())));
    part("context".into(), &sample.context);
    if let Some(instruction) = &sample.instruction {
        part("instruction".into(), instruction);
    }
    for candidate in &sample.candidates {
        let scores = candidate.scores.iter().map(|(name, score)| format!("{name} {score}"));
        let title: Vec<String> = std::iter::once(format!("candidate {}", candidate.id)).chain(scores).collect();
        part(title.join(", "), &candidate.text);
    }
    for (index, reference) in sample.references.iter().enumerate() {
        part(format!("reference {}", index + 1), reference);
    }
    let mut text = String::new();
    for (name, content) in parts {
        let _ = writeln!(text, "{}", heading(&name));
        if let Some(content) = content {
            let shown = match content.trim() {
                "" if content.is_empty() => "(empty)".to_owned(),
                "" => "(white space only)".to_owned(),
                _ => visible(&content),
            };
            let _ = writeln!(text, "{shown}\n");
        }
    }
    text
}

/// Shares and mass of labels in a table.
fn label_cells(answer: &LabelAnswer) -> (String, String) {
    let labels: Vec<String> = answer.labels.iter().map(|label| format!("{} {:.4}", label.name, label.prob)).collect();
    (labels.join("  "), format!("{:.4}", answer.mass))
}

/// A table of queries with short answers. Several answers to one question, after several thoughts, are followed by
/// their mean, which is the result.
fn questions(asked: &[AnsweredRequest]) -> String {
    let row = |one: &AnsweredRequest| {
        let (said, mass) = match &one.answer {
            AnyAnswer::Score(result) => match &result.answer {
                Some(ScoreAnswer::Labels(labels)) => label_cells(labels),
                Some(
                    ScoreAnswer::Continuation(answer)
                    | ScoreAnswer::Reading(ReadingAnswer { continuation: answer, .. })
                    | ScoreAnswer::Tokens(TokensAnswer { continuation: answer, .. }),
                ) => (format!("log P = {}", fixed(answer.logprob, 4)), String::new()),
                Some(ScoreAnswer::Classes(answer)) => {
                    let said: Vec<String> = answer.classes.iter().map(|class| format!("{class:.4}")).collect();
                    (said.join("  "), String::new())
                }
                None => Default::default(),
            },
            AnyAnswer::Generate(result) => (result.text.chars().take(60).collect(), String::new()),
        };
        let is_text = matches!(one.answer, AnyAnswer::Generate(_));
        let outcome = outcome_name(is_text, one.answer.outcome().name()).to_owned();
        vec![one.request.clone(), outcome, said, mass]
    };
    let mean = |answers: &[AnsweredRequest]| {
        let labels = |one: &AnsweredRequest| match &one.answer {
            AnyAnswer::Score(result) => result.labels().cloned(),
            AnyAnswer::Generate(_) => None,
        };
        let labels: Vec<LabelAnswer> = answers.iter().map(labels).collect::<Option<_>>()?;
        let (said, mass) = label_cells(&LabelAnswer::mean(&labels.iter().collect::<Vec<_>>())?);
        Some(vec![answers[0].request.clone(), format!("mean of {}", labels.len()), said, mass])
    };
    let same = asked.chunk_by(|a, b| a.request == b.request);
    let rows = same.flat_map(|one| one.iter().map(row).chain((one.len() > 1).then(|| mean(one)).flatten()));
    let rows: Vec<Vec<String>> = rows.collect();
    format!(
        "{}\n\nThe first of them is below; `probity show RUN QUESTION` prints any.",
        table(&["question", "outcome", "answer", "mass"].map(str::to_owned), &rows)
    )
}

/// The messages of a prompt with their roles.
pub(crate) fn messages(prompt: &Prompt) -> String {
    match prompt {
        Prompt::Text(text) => visible(text),
        Prompt::Tokens(ids) => format!("{ids:?}"),
        Prompt::Pair { source, answer } => format!("{source:?}\n\n[assistant]\n{answer:?}"),
        Prompt::Chat { messages, answer_prefix, format } => {
            let turn = |message: &Message| format!("[{}]\n{}", message.role.as_str(), visible(&message.content));
            let mut text: Vec<String> = messages.iter().map(turn).collect();
            text.extend(format.differences().iter().map(|(name, text)| format!("[{name}]\n{}", visible(text))));
            text.push(format!("[assistant]\n{}", visible(answer_prefix)));
            text.join("\n\n")
        }
    }
}

/// The model's input before the queried tokens, with control tokens between ⟦ and ⟧. These two characters are escaped
/// in texts.
fn seen(encoder: &PromptEncoder, asked: &AnsweredRequest) -> miette::Result<String> {
    let ids = match &asked.ask {
        Some(Ask::Labels(set)) => encoder.encode_labels(&asked.prompt, set)?.prefix,
        Some(Ask::Continuation(text) | Ask::Reading(Reading { text, .. })) => {
            encoder.encode_continuation(&asked.prompt, text)?.prefix
        }
        Some(Ask::Classes) => encoder.encode_whole_prompt(&asked.prompt)?,
        Some(Ask::Tokens(_)) | None => encoder.encode_prompt(&asked.prompt)?,
    };
    let tokenizer = encoder.tokenizer();
    let mut text = String::new();
    // Ordinary tokens are decoded together, because a character may span several.
    for run in ids.chunk_by(|a, b| !tokenizer.steers(*a) && !tokenizer.steers(*b)) {
        if tokenizer.steers(run[0]) {
            let _ = write!(text, "⟦{}⟧", visible(&tokenizer.token_text(run[0])));
        } else {
            text.push_str(&visible(&tokenizer.decode(run)?).replace('⟦', "\\u{27e6}").replace('⟧', "\\u{27e7}"));
        }
    }
    Ok(format!("{text}\n\n({})", counted(ids.len(), "token")))
}

/// An answer by token.
fn answer(answer: &AnyAnswer) -> String {
    match answer {
        AnyAnswer::Score(ScoreResult { answer: None, .. }) => "no answer".to_owned(),
        AnyAnswer::Score(ScoreResult { answer: Some(ScoreAnswer::Labels(labels)), .. }) => label_tables(labels),
        AnyAnswer::Score(ScoreResult { answer: Some(ScoreAnswer::Continuation(answer)), .. }) => continuation(answer),
        AnyAnswer::Score(ScoreResult { answer: Some(ScoreAnswer::Tokens(answer)), .. }) => {
            continuation(&answer.continuation)
        }
        AnyAnswer::Score(ScoreResult { answer: Some(ScoreAnswer::Reading(answer)), .. }) => {
            let state = |state: &PooledState| {
                let length = state.values.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
                format!("\nstate behind layer {}: {} numbers of length {length:.3}", state.layer, state.values.len())
            };
            continuation(&answer.continuation) + &answer.states.iter().map(state).collect::<String>()
        }
        AnyAnswer::Score(ScoreResult { answer: Some(ScoreAnswer::Classes(answer)), .. }) => {
            let row = |class: &ClassScore| vec![class.name.clone(), class.logit.to_string()];
            let rows: Vec<Vec<String>> = answer.classes.iter().map(row).collect();
            table(&["class", "logit"].map(str::to_owned), &rows)
        }
        AnyAnswer::Generate(result) => generated(result),
    }
}

fn continuation(answer: &ContinuationAnswer) -> String {
    let rows: Vec<Vec<String>> = tokens(answer).collect();
    let greedy =
        if answer.is_greedy { "this is what greedy decoding gives" } else { "greedy decoding gives another text" };
    format!("{}\nlog P = {}; {greedy}", table(&TOKENS.map(str::to_owned), &rows), answer.logprob)
}

const TOKENS: [&str; 4] = ["token", "id", "log P", "P"];

fn tokens(answer: &ContinuationAnswer) -> impl Iterator<Item = Vec<String>> {
    let parts = answer.tokens.iter().zip(&answer.token_ids).zip(&answer.token_logprobs);
    parts
        .map(|((token, id), logprob)| vec![format!("{token:?}"), id.to_string(), fixed(*logprob, 6), percent(*logprob)])
}

fn percent(logprob: f64) -> String {
    format!("{:.4}%", logprob.exp() * 100.0)
}

fn label_tables(answer: &LabelAnswer) -> String {
    let label = |label: &LabelScore| {
        vec![label.name.clone(), fixed(label.logprob, 6), percent(label.logprob), format!("{:.6}", label.prob)]
    };
    let labels: Vec<Vec<String>> = answer.labels.iter().map(label).collect();
    let of_label = |label: &LabelScore| -> Vec<Vec<String>> {
        let variant = |(index, variant)| {
            tokens(variant)
                .map(move |cells| [vec![format!("{} {}", label.name, index + 1)], cells].concat())
                .collect::<Vec<_>>()
        };
        label.variants.iter().enumerate().flat_map(variant).collect()
    };
    let variants: Vec<Vec<String>> = answer.labels.iter().flat_map(of_label).collect();
    let columns = ["label", "log P", "P", "share"].map(str::to_owned);
    let mut text = format!("{}\nmass of the labels: {:.6}", table(&columns, &labels), answer.mass);
    if !variants.is_empty() {
        let columns: Vec<String> = ["variant"].iter().chain(&TOKENS).map(|&column| column.to_owned()).collect();
        let _ = write!(text, "\n\n{}", table(&columns, &variants));
    }
    text
}

fn generated(result: &GenerateResult) -> String {
    let finish = result.finish.map(|finish| format!(", ended by {}", name(&finish))).unwrap_or_default();
    let mut text = format!("{}\n\n{}{finish}", visible(&result.text), counted(result.token_ids.len(), "token"));
    if let Some(verdict) = &result.verdict {
        let _ = write!(text, "\n\nat the verdict\n{}", answer(&AnyAnswer::Score(verdict.clone())));
    }
    text
}

/// Queries the model again and compares bits.
fn recompute(asked: &[AnsweredRequest], model: &Model) -> miette::Result<Completed> {
    let mut same = 0;
    for one in asked {
        let Some(ask) = &one.ask else { continue };
        let request = ScoreRequest { id: one.request.clone(), prompt: one.prompt.clone(), ask: ask.clone() };
        let again = model.score_all(&[request])?.into_iter().next().map(AnyAnswer::Score);
        if again.as_ref() == Some(&one.answer) {
            same += 1;
        } else if let Some(again) = again {
            print(&format!("{} differs; asked again:\n{}", visible_line(&one.request), answer(&again)))?;
        }
    }
    let scored = asked.iter().filter(|one| one.ask.is_some()).count();
    print(&format!("asked again: the same bits in {same} of {}", counted(scored, "answer")))?;
    if scored < asked.len() {
        print(&format!("not asked again: {}", counted(asked.len() - scored, "generated text")))?;
    }
    Ok(if same == scored { Completed::Success } else { Completed::Differs })
}

/// The name of an outcome as in tables. For a generated text it only says that the text exists; its content is
/// interpreted by the method and stored in the run's tables.
fn outcome_name(is_text: bool, outcome: &str) -> &str {
    if is_text && outcome == Outcome::Scored.name() { "written" } else { outcome }
}

/// The outcome's name with its other fields.
fn outcome_line(answer: &AnyAnswer) -> miette::Result<String> {
    let Value::Object(mut fields) = serde_json::to_value(answer.outcome()).into_diagnostic()? else {
        unreachable!("an outcome is an object")
    };
    fields.remove("outcome");
    let fields = fields.iter().map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ");
    let fields = if fields.is_empty() { fields } else { format!(" ({fields})") };
    let name = outcome_name(matches!(answer, AnyAnswer::Generate(_)), answer.outcome().name());
    Ok(visible_line(&format!("outcome: {name}{fields}")))
}

//! Measures the runtime through its public interface, for `scripts/bench`. Prints one JSON object per line.
//!
//! ```text
//! cargo run --release -p probity-runtime --example throughput -- --model PATH --precision dots --threads 2 --work FILE --repetitions 3
//! ```
//!
//! `--work` is a JSON file of token prompts, `{"prompts": [[1, 2, …], …]}`, each scored for the labels `A` and `B`, or
//! several such files separated by commas. `--decode N` measures N decoding steps of one text, in addition or alone.
//! `--texts FILE` generates greedy texts, `{"texts": [{"tokens": [1, 2, …], "max_tokens": 200}, …]}`, with an optional
//! JSON `schema` as a constraint, `--side-by-side N` and `--draft off|lookup`. A first prompt or text warms up and is
//! not reported; `--warm-up whole` warms up with the whole work. `--device` selects the device.

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Instant;

use probity_lm::{
    Ask, Constraint, GenerateRequest, Label, LabelSet, LanguageModel as _, Precision, Prompt, ScoreAnswer,
    ScoreRequest, ScoreResult, Usage,
};
use probity_runtime::hub::locate;
use probity_runtime::{Drafting, Isa, LoadOptions, Model};
use serde_json::{Value, json};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let arguments = arguments()?;
    let get = |name: &str| arguments.get(name).map(String::as_str);
    let number = |name: &str, default: usize| get(name).map_or(Ok(default), str::parse);
    let start = Instant::now();
    let model = Model::load(&locate(get("model").ok_or("--model is needed")?)?, options(&arguments)?)?;
    let load_seconds = start.elapsed().as_secs_f64();
    println!(
        "{}",
        json!({"load_seconds": load_seconds, "isa": model.options().isa.map(Isa::name), "model": model.description()})
    );
    let works = get("work").into_iter().flat_map(|files| files.split(','));
    let mut tasks = works.map(|file| Ok(Task::Score(read_work(file)?))).collect::<Result<Vec<Task>>>()?;
    if let Some(file) = get("texts") {
        tasks.push(Task::Write(read_texts(file)?));
    }
    if tasks.is_empty() || get("decode").is_some() {
        tasks.push(Task::Decode(number("decode", 0)?));
    }
    for task in &tasks {
        if get("warm-up") == Some("whole") {
            task.run(&model)?
        } else {
            task.begin(&model)?
        };
        for _ in 0..number("repetitions", 3)? {
            let mut line = task.run(&model)?;
            line["peak_rss_bytes"] = json!(peak_rss_bytes());
            println!("{line}");
        }
    }
    Ok(())
}

/// What to measure.
enum Task {
    Score(Vec<ScoreRequest>),
    Write(Vec<GenerateRequest>),
    Decode(usize),
}

impl Task {
    fn run(&self, model: &Model) -> Result<Value> {
        match self {
            Self::Score(requests) => score(model, requests),
            Self::Write(requests) => write(model, requests),
            Self::Decode(steps) => decode(model, *steps),
        }
    }

    /// The warm-up work.
    fn begin(&self, model: &Model) -> Result<Value> {
        match self {
            Self::Score(requests) => score(model, &requests[..1.min(requests.len())]),
            Self::Write(requests) => write(model, &requests[..1.min(requests.len())]),
            Self::Decode(steps) => decode(model, *steps),
        }
    }
}

fn options(arguments: &BTreeMap<String, String>) -> Result<LoadOptions> {
    let get = |name: &str| arguments.get(name).map(String::as_str);
    let precision = match get("precision") {
        Some("exact") | None => Precision::Exact,
        Some("dots") => Precision::Dots,
        Some("tiles") => Precision::Tiles,
        Some("fast") => Precision::Fast,
        Some(other) => return Err(format!("`--precision {other}` is none of exact, fast, dots and tiles").into()),
    };
    let isa = |name: &str| {
        Isa::ALL.into_iter().find(|isa| isa.name() == name).ok_or_else(|| format!("there is no `--isa {name}`"))
    };
    Ok(LoadOptions {
        precision,
        devices: get("device").map_or(Ok(LoadOptions::default().devices), str::parse)?,
        isa: get("isa").map(isa).transpose()?,
        threads: Some(get("threads").map_or(Ok(2), str::parse)?),
        share_prefixes: get("sharing") != Some("off"),
        token_budget: get("token-budget").map(str::parse).transpose()?,
        cache_budget: get("cache-budget").map(str::parse).transpose()?,
        drafting: if get("draft") == Some("off") { Drafting::Off } else { Drafting::Lookup },
        side_by_side: get("side-by-side").map_or(Ok(LoadOptions::default().side_by_side), str::parse)?,
        ..LoadOptions::default()
    })
}

const OPTIONS: [&str; 15] = [
    "model", "precision", "isa", "threads", "sharing", "token-budget", "cache-budget", "work", "decode", "texts",
    "side-by-side", "draft", "repetitions", "device", "warm-up",
];

/// Parses `--name value` pairs.
fn arguments() -> Result<BTreeMap<String, String>> {
    let mut pairs = BTreeMap::new();
    let mut rest = std::env::args().skip(1);
    while let Some(name) = rest.next() {
        let name = name.strip_prefix("--").ok_or_else(|| format!("expected an option, found `{name}`"))?.to_owned();
        if !OPTIONS.contains(&name.as_str()) {
            return Err(format!("there is no option `--{name}`; there are {}", OPTIONS.join(", ")).into());
        }
        let value = rest.next().ok_or_else(|| format!("`--{name}` has no value"))?;
        pairs.insert(name, value);
    }
    Ok(pairs)
}

fn read_work(path: &str) -> Result<Vec<ScoreRequest>> {
    let work: Value = serde_json::from_slice(&std::fs::read(path)?)?;
    let prompts: Vec<Vec<u32>> = serde_json::from_value(work["prompts"].clone())?;
    let label = |name: &str| Label { name: name.to_owned(), variants: vec![name.to_owned()] };
    let labels = LabelSet::new(vec![label("A"), label("B")])?;
    let request = |(index, tokens): (usize, Vec<u32>)| ScoreRequest {
        id: index.to_string(),
        prompt: Prompt::Tokens(tokens),
        ask: Ask::Labels(labels.clone()),
    };
    Ok(prompts.into_iter().enumerate().map(request).collect())
}

/// Answers the whole work list.
fn score(model: &Model, requests: &[ScoreRequest]) -> Result<Value> {
    let mut answers = vec![Value::Null; requests.len()];
    let start = Instant::now();
    let usage: Usage = model.score(&mut requests.iter().cloned(), &mut |index, result: ScoreResult| {
        if let Some(ScoreAnswer::Labels(labels)) = result.answer {
            answers[index] = labels.labels.iter().map(|label| label.logprob).collect();
        }
        Ok(())
    })?;
    let seconds = start.elapsed().as_secs_f64();
    Ok(
        json!({"seconds": seconds, "tokens": usage.tokens_computed, "tokens_unshared": usage.tokens_unshared, "answers": answers}),
    )
}

fn read_texts(path: &str) -> Result<Vec<GenerateRequest>> {
    let work: Value = serde_json::from_slice(&std::fs::read(path)?)?;
    let texts = work["texts"].as_array().ok_or("`texts` is no list")?;
    let request = |(index, text): (usize, &Value)| -> Result<GenerateRequest> {
        let tokens: Vec<u32> = serde_json::from_value(text["tokens"].clone())?;
        let max_tokens = text["max_tokens"].as_u64().ok_or("`max_tokens` is no number")? as usize;
        let constraint = text.get("schema").cloned().map(Constraint::JsonSchema);
        Ok(GenerateRequest {
            constraint,
            ..GenerateRequest::greedy(index.to_string(), Prompt::Tokens(tokens), max_tokens)
        })
    };
    texts.iter().enumerate().map(request).collect()
}

/// Generates all texts. Reports the time of their first tokens, which is mostly that of their prompts, separately. An
/// answer's time is when it finished.
fn write(model: &Model, requests: &[GenerateRequest]) -> Result<Value> {
    let timed = |requests: &mut (dyn Iterator<Item = GenerateRequest> + Send)| -> Result<(f64, Vec<Value>, Usage)> {
        let mut answers = Vec::new();
        let start = Instant::now();
        let usage = model.generate(requests, &mut |index, result| {
            let seconds = start.elapsed().as_secs_f64();
            answers.push((
                index,
                json!({"tokens": result.token_ids, "accepted": result.accepted_drafts, "seconds": seconds}),
            ));
            Ok(())
        })?;
        let seconds = start.elapsed().as_secs_f64();
        answers.sort_by_key(|(index, _)| *index);
        Ok((seconds, answers.into_iter().map(|(_, answer)| answer).collect(), usage))
    };
    let one_token = |request: &GenerateRequest| GenerateRequest { max_tokens: 1, ..request.clone() };
    let (prompt_seconds, first, _) = timed(&mut requests.iter().map(one_token))?;
    let (seconds, answers, usage) = timed(&mut requests.iter().cloned())?;
    Ok(
        json!({"seconds": seconds, "prompt_seconds": prompt_seconds, "usage": usage, "answers": answers, "first": first}),
    )
}

/// Time of `steps` decoding steps: a text of `steps + 1` tokens minus one of a single token.
fn decode(model: &Model, steps: usize) -> Result<Value> {
    let timed = |max_tokens: usize| -> Result<(f64, usize)> {
        let request = GenerateRequest::greedy("0", Prompt::Tokens((300..316).collect()), max_tokens);
        let mut tokens = 0;
        let start = Instant::now();
        model.generate(&mut std::iter::once(request), &mut |_, result| {
            tokens = result.token_ids.len();
            Ok(())
        })?;
        Ok((start.elapsed().as_secs_f64(), tokens))
    };
    let (first_seconds, first) = timed(1)?;
    let (seconds, tokens) = timed(steps + 1)?;
    Ok(json!({"seconds": seconds - first_seconds, "tokens": tokens - first}))
}

/// Peak memory of this process, if the system reports it.
fn peak_rss_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?
        .trim()
        .strip_suffix("kB")?
        .trim()
        .parse::<u64>()
        .ok()?;
    Some(kib * 1024)
}

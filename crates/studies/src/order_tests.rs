//! Results must not depend on the order of samples and candidates.

use std::collections::BTreeMap;

use probity_data::{Candidate, Preference, Sample};
use probity_lm::{Ask, ContinuationAnswer, Outcome, ScoreAnswer, ScoreResult, ScriptedModel};
use probity_metrics::{Need, Needs};
use proptest::prelude::*;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

pub(crate) use crate::roster::Shuffle;
use crate::roster::{judging, order_cases};
use crate::testing::{generated, run};
use crate::{DynMethod, MemoryOutput, MethodReport, Metrics, Run};

/// Figures that refer to the order of candidates in the data.
const BY_ORDER_OF_DATA: [&str; 4] = ["first_order", "second_order", "given_order", "turned_order"];

/// The list shuffled with this seed.
pub(crate) fn shuffled<T: Clone>(list: &[T], seed: u64) -> Vec<T> {
    let mut list = list.to_vec();
    list.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
    list
}

/// The samples, or the candidates of each, shuffled with this seed.
pub(crate) fn reordered(samples: &[Sample], what: Shuffle, seed: u64) -> Vec<Sample> {
    match what {
        Shuffle::Samples => shuffled(samples, seed),
        Shuffle::Candidates => (0..)
            .zip(samples)
            .map(|(place, sample)| Sample { candidates: shuffled(&sample.candidates, seed ^ place), ..sample.clone() })
            .collect(),
    }
}

/// The differences between two summaries, ignoring the order of lists and figures that refer to the order of the data.
/// Tables contain such figures, so they are only compared if samples are shuffled.
pub(crate) fn differences_of(first: &MethodReport, second: &MethodReport, what: Shuffle) -> Vec<String> {
    let [first, second] = [first, second].map(|summary| {
        let mut summary = serde_json::to_value(summary).expect("plain values");
        if what == Shuffle::Candidates {
            summary["sections"].take();
        }
        sort_rows(&mut summary);
        summary
    });
    let mut found = Vec::new();
    // Candidate strengths are found iteratively; their last digits depend on the order of candidates.
    let within = if what == Shuffle::Candidates { 1e-9 } else { 0.0 };
    differences(&first, &second, within, "", &mut found);
    found
}

/// Rows of the first run that are missing from the second, two per table.
pub(crate) fn changed_rows(first: &MemoryOutput, second: &MemoryOutput) -> Vec<String> {
    let sorted = |output: &MemoryOutput, table: &str| {
        let mut rows: Vec<String> = output.rows(table).iter().map(ToString::to_string).collect();
        rows.sort_unstable();
        rows
    };
    let mut found = Vec::new();
    for table in first.tables() {
        let (rows, other) = (sorted(first, table), sorted(second, table));
        let changed = rows.iter().filter(|row| other.binary_search(row).is_err());
        found.extend(changed.take(2).map(|row| format!("{table}: {row}")));
        found.extend((rows.len() != other.len()).then(|| format!("{table}: {} rows, {}", rows.len(), other.len())));
    }
    found
}

/// Sorts lists of objects and of lists.
fn sort_rows(value: &mut Value) {
    match value {
        Value::Array(list) => {
            list.iter_mut().for_each(sort_rows);
            if list.iter().all(|one| one.is_object() || one.is_array()) {
                list.sort_by_cached_key(ToString::to_string);
            }
        }
        Value::Object(fields) => fields.values_mut().for_each(sort_rows),
        _ => {}
    }
}

/// The differences between two values, as readable messages.
fn differences(first: &Value, second: &Value, within: f64, at: &str, found: &mut Vec<String>) {
    match (first, second) {
        (Value::Object(a), Value::Object(b)) if a.keys().eq(b.keys()) => {
            a.iter()
                .filter(|(name, _)| !BY_ORDER_OF_DATA.contains(&name.as_str()))
                .for_each(|(name, one)| differences(one, &b[name], within, &format!("{at}/{name}"), found));
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            a.iter().zip(b).enumerate().for_each(|(k, (a, b))| differences(a, b, within, &format!("{at}/{k}"), found));
        }
        (Value::Number(a), Value::Number(b)) if is_near(a.as_f64(), b.as_f64(), within) => {}
        (a, b) if a == b => {}
        (a, b) => found.push(format!("{at}: {a} {b}")),
    }
}

fn is_near(a: Option<f64>, b: Option<f64>, within: f64) -> bool {
    a.zip(b).is_some_and(|(a, b)| (a - b).abs() <= within * a.abs().max(1.0))
}

/// A number from 0 to 1, determined by a text and a position.
fn noise(text: &str, position: usize) -> f64 {
    let start = 0xcbf2_9ce4_8422_2325_u64 ^ position as u64;
    let hash = text.bytes().fold(start, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    // The last bytes should also affect the highest bits.
    let hash = (hash ^ (hash >> 29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((hash ^ (hash >> 32)) >> 11) as f64 / (1_u64 << 53) as f64
}

/// A model whose answers depend only on the text of a request.
fn model() -> ScriptedModel {
    let probabilities = |request: &probity_lm::ScoreRequest| {
        let text = request.prompt.text();
        match &request.ask {
            Ask::Labels(set) => {
                let count = set.labels().len();
                (0..count).map(|k| (0.02 + noise(&text, k)) / (1.1 * count as f64)).collect()
            }
            _ => vec![noise(&text, 0)],
        }
    };
    let labels = ScriptedModel::from_probabilities(probabilities);
    ScriptedModel::from_results(move |request| match &request.ask {
        Ask::Continuation(text) => {
            let prompt = request.prompt.text();
            let tokens: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            let token_logprobs: Vec<f64> =
                (0..tokens.len()).map(|place| noise(&format!("{prompt}{text}"), place) - 1.0).collect();
            let logprob = token_logprobs.iter().sum();
            let token_ids = vec![0; tokens.len()];
            let answer = ContinuationAnswer { logprob, token_logprobs, tokens, token_ids, is_greedy: false };
            let answer = Some(ScoreAnswer::Continuation(answer));
            ScoreResult { outcome: Outcome::Scored, prompt_tokens: 7, answer }
        }
        _ => crate::testing::scored_by(&labels, request),
    })
    .with_generation(|request| {
        let text = request.prompt.text();
        let pick = (noise(&text, 3) * 5.0) as usize;
        // One answer for all prompts: a verdict, a rating, or neither.
        generated(if text.contains("[[A]]") {
            ["[[A]]", "[[B]]", "[[B]]", "so [[A]]", "neither"][pick]
        } else if text.contains("[[") {
            ["[[1]]", "[[2]]", "[[3]]", "so [[4]]", "no rating"][pick]
        } else {
            ["1 quiet harbour", "2 loud harbours", "3 boats", "4 boats at sea", "nothing"][pick]
        })
    })
}

/// Samples with gold for two attributes, a preference and references, and with distinct texts.
fn samples(count: usize, candidates: usize) -> Vec<Sample> {
    const WORDS: [&str; 12] =
        ["harbour", "quiet", "Boats", "a", "seven", "leave", "at", "dawn", "nobody", "sees", "the", "lights"];
    let text = |name: &str| -> String {
        let length = 4 + (noise(name, 0) * 9.0) as usize;
        let word = |place: usize| WORDS[(noise(name, place) * WORDS.len() as f64) as usize];
        (1..=length).map(word).collect::<Vec<_>>().join(" ")
    };
    let one = |number: usize| {
        let id = format!("s{number}");
        let candidate = |k: usize| {
            let name = format!("{id}/{k}");
            let gold =
                |attribute: &str| (attribute.to_owned(), (noise(&format!("{name}{attribute}"), 1) * 5.0).floor());
            Candidate {
                id: k.to_string(),
                text: text(&name).into(),
                scores: BTreeMap::from(["coherence", "fluency"].map(gold)),
            }
        };
        let candidates: Vec<Candidate> = (0..candidates).map(candidate).collect();
        let preferred = (noise(&id, 2) * (candidates.len() as f64 + 0.5)) as usize;
        let preference = candidates.get(preferred).map_or(Preference::Tie, |one| Preference::Candidate(one.id.clone()));
        Sample {
            context: text(&format!("{id} context")).into(),
            instruction: None,
            texts: ["question", "answer"].map(|name| (name.to_owned(), text(&format!("{id} {name}")).into())).into(),
            references: ["first", "second"].map(|name| text(&format!("{id} {name}")).into()).into(),
            preference: Some(preference),
            candidates,
            id,
        }
    };
    (0..count).map(one).collect()
}

/// Scores the samples with all metrics that need no model.
fn all_metrics(samples: &[Sample]) -> (MethodReport, MemoryOutput) {
    let without_model = |needs: Needs| needs.iter().all(|need| !matches!(need, Need::Encoder | Need::LanguageModel));
    let names: Vec<&str> =
        probity_metrics::metrics().iter().filter(|m| without_model(m.needs())).map(|m| m.name()).collect();
    let given = json!({ "metric": [names.join(",")] });
    let mut output = MemoryOutput::default();
    let metrics = Metrics.with(given.as_object().expect("options")).unwrap_or_else(|error| panic!("{error}"));
    let summary = metrics.run(samples, &mut Run::without_model(&mut output));
    (summary.unwrap_or_else(|error| panic!("{error}")), output)
}

/// Runs a method.
fn finished(name: &str, options: &str, samples: &[Sample]) -> (MethodReport, MemoryOutput) {
    let args = format!("{name} {options}");
    let model = if reads_classes(name) { model().with_classes(["LABEL_0"]) } else { model() };
    let (result, output) = run(args.trim_end(), samples, &model);
    (result.unwrap_or_else(|error| panic!("{args}: {}", crate::testing::error_text(&error))), output)
}

fn reads_classes(name: &str) -> bool {
    judging().any(|(judging, row)| judging == name && row.reads_classes())
}

/// The changes in a run if its samples, or where their order has no meaning its candidates, are shuffled. Rows contain
/// the positions of candidates, so they are only compared if samples are shuffled.
pub(crate) fn changes_by_order(
    samples: &[Sample],
    shuffles: &[Shuffle],
    seed: u64,
    finished: impl Fn(&[Sample]) -> (MethodReport, MemoryOutput),
) -> Vec<String> {
    let (summary, output) = finished(samples);
    let mut found = Vec::new();
    for what in shuffles {
        let (other, rows) = finished(&reordered(samples, *what, seed));
        found.extend(differences_of(&summary, &other, *what));
        if *what == Shuffle::Samples {
            found.extend(changed_rows(&output, &rows));
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1, failure_persistence: None, max_shrink_iters: 0, ..ProptestConfig::default() })]

    #[test]
    fn methods_say_the_same_in_any_order_of_samples_and_candidates(seed in any::<u64>()) {
        let mut found = Vec::new();
        // More samples than jackknife groups.
        let samples = [2, 3].map(|candidates| samples(204, candidates));
        for (name, case) in order_cases() {
            let samples = &samples[case.candidates - 2];
            let run = |samples: &[Sample]| finished(name, &case.arguments, samples);
            let changed = changes_by_order(samples, &case.shuffle, seed, run);
            found.extend(changed.into_iter().map(|change| format!("{name} {}: {change:.200}", case.arguments)));
        }
        let changed = changes_by_order(&samples[1], &[Shuffle::Samples, Shuffle::Candidates], seed, all_metrics);
        found.extend(changed.into_iter().map(|change| format!("metrics: {change:.200}")));
        prop_assert!(found.is_empty(), "{}", found.join("\n"));
    }
}

//! `probity verify-determinism`: that scores have the same bits however they are computed, on the user's own machine.

use std::path::PathBuf;
use std::time::Instant;

use probity_data::read_strict;
use probity_lm::{
    Ask, ContinuationAnswer, GenerateRequest, Label, LabelSet, LanguageModel, Precision, Prompt, Reading, Sampling,
    SamplingLimits, ScoreAnswer, ScoreRequest, ScoreResult, Termination, Usage,
};
use probity_runtime::hub::{LocatedModel, locate};
use probity_runtime::{Isa, KeptPrefixBytes, LoadOptions, Model};
use probity_session::{AskedLine as _, Interrupt, ScoreLine};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::exit::Completed;
use crate::global::Global;
use crate::interrupt;
use crate::progress::Reporter;
use crate::terminal::{print, thousands, visible};

pub(crate) const LONG_ABOUT: &str = "\
Check that scores have the same bits however they are computed.

Runs a small work list (prompts that share their beginnings, labels of several tokens, continuations, generated texts) \
with every instruction set that this machine has, other numbers of threads, other token budgets, with and without \
sharing, with hardly any memory for keys and values, with those of requests before, in another order, in pieces, each \
request by itself, and again, and compares every score bit for bit with the first run. Prints what was compared and \
the first difference where there is one. The plain instruction set is slow: a large model takes minutes.

Exit codes: 0 all bits are the same; 1 some differ; 2 an error.";

/// Options of `verify-determinism`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct DeterminismOptions {
    /// A known name (`probity model list`), a .gguf file, a folder with config.json and safetensors, or a hub name in
    /// the local cache
    #[schemars(length(min = 1), extend("form" = "NAME|PATH"))]
    model: String,
    /// The arithmetic in which quantised weights meet activations
    #[schemars(extend("form" = "PRECISION"))]
    precision: Precision,
    /// Requests of your own, as for `logprobs`, in the place of the built-in ones
    #[schemars(extend("form" = "FILE"))]
    data: Option<PathBuf>,
}

/// What is asked.
struct WorkList {
    scores: Vec<ScoreRequest>,
    texts: Vec<GenerateRequest>,
}

/// The order in which requests are asked.
#[derive(Debug, Clone, Copy)]
enum Order {
    AsGiven,
    Reversed,
    Shuffled,
    /// Each in a work list of its own.
    OneByOne,
}

/// One row of the matrix.
struct MatrixCase {
    what: &'static str,
    setting: String,
    options: LoadOptions,
    order: Order,
}

/// All numbers of a result, as bits.
type Bits = Vec<u64>;

impl DeterminismOptions {
    pub(crate) fn run(self, global: Global) -> miette::Result<Completed> {
        let located = locate(&self.model)?;
        let defaults = LoadOptions { precision: self.precision, ..LoadOptions::default() };
        let reporter = Reporter::new(global);
        let mut model = Model::load(&located, defaults)?;
        let list = self.work_list(&model, &reporter)?;
        let interrupt = interrupt::catch(global.progress);
        let started = Instant::now();
        let (expected, usage) = list.run(&model, Order::AsGiven, &interrupt)?;
        print(&row("varied", "setting", "seconds", "bits"))?;
        print(&row("reference", &settings(&model), &seconds(started), "–"))?;
        let cases = cases(defaults, &model, &list, usage);
        let mut differing = 0;
        for case in &cases {
            let started = Instant::now();
            set(&mut model, &located, case.options)?;
            let (got, _) = list.run(&model, case.order, &interrupt)?;
            let difference = list.first_difference(&expected, &got);
            differing += usize::from(difference.is_some());
            print(&row(case.what, &case.setting, &seconds(started), difference.as_deref().unwrap_or("ok")))?;
        }
        let numbers: usize = expected.iter().map(Vec::len).sum();
        let verdict = if differing == 0 {
            "all bits are the same".to_owned()
        } else {
            format!("{differing} of {} runs differ", cases.len())
        };
        let (requests, precision) = (list.scores.len() + list.texts.len(), model.description().precision.as_str());
        let (numbers, runs) = (thousands(numbers as u64), cases.len() + 1);
        print(&format!("{numbers} numbers of {requests} requests in {precision} precision, {runs} runs: {verdict}"))?;
        Ok(if differing == 0 { Completed::Success } else { Completed::Differs })
    }

    fn work_list(&self, model: &Model, reporter: &Reporter) -> miette::Result<WorkList> {
        let (scores, texts) = match &self.data {
            Some(path) => {
                (read_strict::<ScoreLine>(path)?.into_iter().map(ScoreLine::into_request).collect(), Vec::new())
            }
            None => (built_in_scores(), built_in_texts()),
        };
        let all = scores.len();
        // One request that the model cannot be asked ends the whole list: a file of one's own is checked with the rest.
        let scores: Vec<ScoreRequest> = scores.into_iter().filter(|request| model.check(request).is_ok()).collect();
        if scores.len() < all {
            let left_out = all - scores.len();
            reporter.warn(&format!("{left_out} of {all} requests cannot be asked of this model and are left out"));
        }
        Ok(WorkList { scores, texts })
    }
}

/// A row of the table, which is printed as it grows: with a large model each takes a while.
fn row(what: &str, setting: &str, seconds: &str, bits: &str) -> String {
    visible(&format!("{what:<16} {setting:<44} {seconds:>8}  {bits}"))
}

fn seconds(started: Instant) -> String {
    format!("{:.1}", started.elapsed().as_secs_f64())
}

/// How a model is run, in a few words.
fn settings(model: &Model) -> String {
    let options = model.options();
    let isa = options.isa.map_or("", Isa::name);
    format!("{isa}, {} threads, token budget {}", options.threads.unwrap_or(0), options.token_budget)
}

/// Sets a model to these options; it is loaded again only where it must be.
fn set(model: &mut Model, located: &LocatedModel, options: LoadOptions) -> miette::Result<()> {
    let wanted = options.isa.unwrap_or_else(Isa::best);
    // Weights lie in memory as their instruction set wants them. All else that is varied can be set on a loaded
    // model, and a large one takes long to load.
    if model.options().isa == Some(wanted) {
        model.run_with(options)?;
    } else {
        *model = Model::load(located, options)?;
    }
    Ok(())
}

/// The matrix. Other instruction sets come last: the weights are loaded anew for each.
fn cases(defaults: LoadOptions, model: &Model, list: &WorkList, usage: Usage) -> Vec<MatrixCase> {
    let mut cases = Vec::new();
    let mut add = |what, setting: &str, options, order| {
        cases.push(MatrixCase { what, setting: setting.to_owned(), options, order });
    };
    add("nothing", "run again", defaults, Order::AsGiven);
    add("order", "reversed", defaults, Order::Reversed);
    add("order", "shuffled", defaults, Order::Shuffled);
    add("order", "one by one", defaults, Order::OneByOne);
    let all = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut threads = vec![1, 2, all];
    threads.sort_unstable();
    threads.dedup();
    for threads in threads {
        add("threads", &threads.to_string(), LoadOptions { threads: Some(threads), ..defaults }, Order::AsGiven);
    }
    for token_budget in [7, 32, 256] {
        add("token budget", &token_budget.to_string(), LoadOptions { token_budget, ..defaults }, Order::AsGiven);
    }
    add("sharing", "off", LoadOptions { share_prefixes: false, ..defaults }, Order::AsGiven);
    add("window", "one request", LoadOptions { window_tokens: 1, ..defaults }, Order::AsGiven);
    let kept_prefixes = usage.peak_cache_bytes.max(1);
    let kept = LoadOptions { kept_prefixes: KeptPrefixBytes::Bytes(kept_prefixes), ..defaults };
    add("kept prefixes", &format!("one by one, {} bytes", thousands(kept_prefixes)), kept, Order::OneByOne);
    let tight = list.least_cache(model);
    let setting = format!("{} bytes instead of {}", thousands(tight), thousands(usage.peak_cache_bytes));
    add("cache budget", &setting, LoadOptions { cache_budget: Some(tight), ..defaults }, Order::AsGiven);
    for isa in Isa::ALL.into_iter().rev().filter(|isa| isa.is_available()) {
        let options = LoadOptions { isa: Some(isa), ..defaults };
        if Some(isa) != model.options().isa {
            add("instruction set", isa.name(), options, Order::AsGiven);
        }
        // Plain code is too slow to do more than once what the others do in seconds.
        if isa == Isa::Plain && isa != Isa::best() {
            continue;
        }
        let options = LoadOptions {
            threads: Some(2),
            token_budget: 24,
            share_prefixes: false,
            cache_budget: Some(tight),
            ..options
        };
        add("all of these", &format!("{}, 2 threads, 24 tokens, no sharing", isa.name()), options, Order::Shuffled);
    }
    cases
}

impl WorkList {
    /// Room for the longest prompt with its answer.
    fn least_cache(&self, model: &Model) -> u64 {
        let scores = self.scores.iter().filter_map(|request| {
            let answer = match &request.ask {
                Ask::Labels(set) => {
                    // A token has a byte at least: bytes bound the tokens of an answer that is not encoded here.
                    set.labels().iter().flat_map(|label| &label.variants).map(String::len).max().unwrap_or(0) + 1
                }
                Ask::Continuation(text) | Ask::Reading(Reading { text, .. }) => text.len(),
                Ask::Tokens(asked) => asked.ids.len(),
                Ask::Classes => 0,
            };
            Some(model.encoder().encode_prompt(&request.prompt).ok()?.len() + answer)
        });
        let texts =
            self.texts.iter().filter_map(|r| Some(model.encoder().encode_prompt(&r.prompt).ok()?.len() + r.max_tokens));
        // What is longer than the context has an outcome and no numbers: it needs no room.
        let context = model.description().context_length.unwrap_or(usize::MAX);
        model.cache_bytes(scores.chain(texts).filter(|tokens| *tokens <= context).max().unwrap_or(0).max(1))
    }

    /// The numbers of every request, in the order of the list.
    fn run(&self, model: &Model, order: Order, interrupt: &Interrupt) -> miette::Result<(Vec<Bits>, Usage)> {
        let places = |len: usize| -> Vec<usize> {
            let mut places: Vec<usize> = (0..len).collect();
            match order {
                Order::AsGiven | Order::OneByOne => {}
                Order::Reversed => places.reverse(),
                Order::Shuffled => places.sort_by_key(|place| mix(*place as u64)),
            }
            places
        };
        let mut bits = vec![Bits::new(); self.scores.len() + self.texts.len()];
        let mut usage = Usage::default();
        let (scores, texts) = (places(self.scores.len()), places(self.texts.len()));
        let chunk = if matches!(order, Order::OneByOne) { 1 } else { usize::MAX };
        for places in scores.chunks(chunk) {
            let mut requests = places.iter().map(|place| self.scores[*place].clone());
            usage += model.score(&mut requests, &mut |index, result| {
                bits[places[index]] = score_bits(&result);
                Ok(interrupt.check()?)
            })?;
        }
        for places in texts.chunks(chunk) {
            let mut requests = places.iter().map(|place| self.texts[*place].clone());
            usage += model.generate(&mut requests, &mut |index, result| {
                let verdict = result.verdict.as_ref().map(score_bits).unwrap_or_default();
                let ids = result.token_ids.iter().map(|id| u64::from(*id));
                bits[self.scores.len() + places[index]] = ids.chain(verdict).collect();
                Ok(interrupt.check()?)
            })?;
        }
        Ok((bits, usage))
    }

    /// The first request whose numbers differ, and where.
    fn first_difference(&self, expected: &[Bits], got: &[Bits]) -> Option<String> {
        let place = expected.iter().zip(got).position(|(a, b)| a != b)?;
        let id =
            self.scores.get(place).map(|r| &r.id).or_else(|| self.texts.get(place - self.scores.len()).map(|r| &r.id));
        let (a, b) = (&expected[place], &got[place]);
        let at = a.iter().zip(b).position(|(a, b)| a != b).unwrap_or(a.len().min(b.len()));
        let shown = |bits: &Bits| {
            bits.get(at).map_or("none".to_owned(), |bits| format!("{bits:016x} ({})", f64::from_bits(*bits)))
        };
        Some(format!("`{}`, number {at}: {} is {}", id.map_or("", String::as_str), shown(a), shown(b)))
    }
}

/// A fixed order that has nothing to do with the list's (the finaliser of `SplitMix64`).
fn mix(place: u64) -> u64 {
    let mut z = (place + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Every number of a result. One without an answer differs from any with one, and so do two without for different
/// reasons.
fn score_bits(result: &ScoreResult) -> Bits {
    let mut bits: Bits = result.outcome.name().bytes().map(u64::from).collect();
    bits.push(result.prompt_tokens as u64);
    match &result.answer {
        Some(ScoreAnswer::Labels(answer)) => {
            bits.extend(answer.labels.iter().flat_map(|label| [label.logprob.to_bits(), label.prob.to_bits()]));
            bits.push(answer.mass.to_bits());
        }
        Some(ScoreAnswer::Continuation(answer)) => {
            bits.extend(continuation_bits(answer));
        }
        Some(ScoreAnswer::Reading(answer)) => {
            bits.extend(continuation_bits(&answer.continuation));
            bits.extend(answer.states.iter().flat_map(|state| &state.values).map(|value| u64::from(value.to_bits())));
        }
        Some(ScoreAnswer::Tokens(answer)) => {
            bits.extend(continuation_bits(&answer.continuation));
            let others = answer.alternatives.iter().flatten();
            bits.extend(others.flat_map(|other| [u64::from(other.id), other.logprob.to_bits()]));
        }
        Some(ScoreAnswer::Classes(answer)) => bits.extend(answer.classes.iter().map(|class| class.logit.to_bits())),
        None => {}
    }
    bits
}

fn continuation_bits(answer: &ContinuationAnswer) -> impl Iterator<Item = u64> {
    let tokens = answer.token_logprobs.iter().map(|logprob| logprob.to_bits());
    tokens.chain([answer.logprob.to_bits(), u64::from(answer.is_greedy)])
}

/// Short enough for a context of 256 single characters.
fn built_in_scores() -> Vec<ScoreRequest> {
    let contexts = ["Text: The ferry did not run until the ice broke in March.\n", "Text: Bees count to four.\n"];
    let candidates = ["The ferry stopped for the winter.", "Bees can count.", "Ice is cold, says an old man."];
    let plain = LabelSet::words(["A", "B"]).expect("two labels");
    let long = LabelSet::new(vec![
        Label { name: "first".into(), variants: vec![" the first summary".into(), " First".into()] },
        Label { name: "second".into(), variants: vec![" my own choice is the second one".into()] },
    ])
    .expect("two labels")
    .with_termination(Termination::Open);
    let mut requests = Vec::new();
    for (c, context) in contexts.iter().enumerate() {
        for (i, a) in candidates.iter().enumerate() {
            // All pairs of the first context, two of the second.
            for (j, b) in candidates.iter().enumerate().filter(|(j, _)| *j != i && (c == 0 || i + 1 == *j)) {
                let prompt = Prompt::Text(format!("{context}A: {a}\nB: {b}\nBetter:"));
                let labels = if j % 2 == 0 { plain.clone() } else { long.clone() };
                requests.push(ScoreRequest {
                    id: format!("context {c}, {i} and {j}"),
                    prompt,
                    ask: Ask::Labels(labels),
                });
            }
            if c == 0 {
                let prompt = Prompt::Text(format!("{context}Summary:"));
                requests.push(ScoreRequest {
                    id: format!("context {c}, {i} itself"),
                    prompt,
                    ask: Ask::Continuation(format!(" {a}")),
                });
                requests.push(ScoreRequest {
                    id: format!("context {c}, {i} and its states"),
                    prompt: Prompt::Text(format!("{context}A summary:")),
                    ask: Ask::Reading(Reading { text: format!(" {a}"), layers: vec![1] }),
                });
            }
        }
    }
    requests
}

fn built_in_texts() -> Vec<GenerateRequest> {
    let prompts = ["The ferry did not run until", "The ferry did not", "Bees"];
    let request = |(index, text): (usize, &&str)| {
        let greedy = GenerateRequest::greedy(format!("text {index}"), Prompt::Text((*text).to_owned()), 16 + index);
        let sampling = if index == 2 {
            Sampling::Random { temperature: 0.8, limits: SamplingLimits::default(), seed: 7 }
        } else {
            Sampling::Greedy
        };
        GenerateRequest { sampling, ..greedy }
    };
    prompts.iter().enumerate().map(request).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_bit_is_found_and_named() {
        let list = WorkList { scores: built_in_scores(), texts: built_in_texts() };
        let bits: Vec<Bits> =
            (0..list.scores.len() + list.texts.len()).map(|k| vec![k as u64, 1.5f64.to_bits()]).collect();
        assert_eq!(list.first_difference(&bits, &bits), None);
        let mut other = bits.clone();
        other[1][1] ^= 1;
        let told = list.first_difference(&bits, &other).expect("a difference");
        assert!(told.contains(&list.scores[1].id) && told.contains("number 1: 3ff8000000000000 (1.5)"), "{told}");
        other[1] = bits[1].clone();
        other.last_mut().expect("texts").pop();
        assert!(list.first_difference(&bits, &other).expect("a difference").contains("`text 2`, number 1"));
    }
}

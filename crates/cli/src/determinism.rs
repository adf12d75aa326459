//! `probity verify-determinism`: checks on the user's machine that scores are bit-identical under all settings.

use std::path::PathBuf;
use std::time::Instant;

use probity_data::read_strict;
use probity_lm::{LanguageModel as _, Precision, Usage};
use probity_runtime::hub::{LocatedModel, locate};
use probity_runtime::{BitProbe, Isa, KeptPrefixBytes, LoadOptions, Model, ProbeOrder, bit_digest};
use probity_session::{RequestLine as _, ScoreLine};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::exit::Completed;
use crate::global::Global;
use crate::interrupt;
use crate::progress::Reporter;
use crate::terminal::{print, thousands, visible};

pub(crate) const LONG_ABOUT: &str = "\
Check that scores are bit-identical however they are computed.

Runs a small work list (prompts with shared prefixes, labels of several tokens, continuations, generated texts) and \
compares every score bit for bit with the first run. It varies the instruction set, the number of threads, the token \
budget, prefix sharing, the memory for keys and values, the prefixes kept from earlier requests, the order, and the \
number of requests per batch. Prints each comparison, the first difference if there is one, and a digest of all \
numbers. The digest is the same on every machine for the same files and precision. The plain instruction set is slow: \
a large model takes minutes.

Exit codes: 0 all bits are the same; 1 some differ; 2 an error.";

/// Options of `verify-determinism`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct DeterminismOptions {
    /// Model: a known name, a path or a hub name (ORG/NAME)
    #[schemars(length(min = 1), extend("form" = "NAME|PATH"))]
    model: String,
    /// Precision of products of weights and activations
    #[schemars(extend("form" = "PRECISION"))]
    precision: Precision,
    /// Your own requests, as for `logprobs`
    ///
    /// They replace the built-in requests.
    #[schemars(extend("form" = "FILE"))]
    data: Option<PathBuf>,
}

/// Without queries the comparison would always succeed.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
#[error("no request fits this model, so nothing can be compared")]
#[diagnostic(help("request `\"classes\": true` of a model with a class head, and labels or a continuation of others"))]
struct NothingAsked;

/// One row of the table.
struct MatrixCase {
    what: &'static str,
    setting: String,
    options: LoadOptions,
    order: ProbeOrder,
}

impl DeterminismOptions {
    pub(crate) fn run(self, global: Global) -> miette::Result<Completed> {
        let located = locate(&self.model)?;
        let defaults = LoadOptions { precision: self.precision, ..LoadOptions::default() };
        let reporter = Reporter::new(global);
        let mut model = Model::load(&located, defaults)?;
        let list = self.probe(&model, &reporter)?;
        let interrupt = interrupt::catch(global.progress);
        let interrupt = || Ok(interrupt.check()?);
        let started = Instant::now();
        let (expected, usage) = list.numbers(&model, ProbeOrder::AsGiven, &interrupt)?;
        print(&row("varied", "setting", "seconds", "bits"))?;
        print(&row("reference", &settings(&model), &seconds(started), "–"))?;
        let cases = cases(defaults, &model, &list, usage);
        let mut differing = 0;
        for case in &cases {
            let started = Instant::now();
            set(&mut model, &located, case.options)?;
            let (got, _) = list.numbers(&model, case.order, &interrupt)?;
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
        let (requests, precision) = (list.len(), model.description().precision.as_str());
        let (numbers, runs) = (thousands(numbers as u64), cases.len() + 1);
        print(&format!("{numbers} numbers of {requests} requests in {precision} precision, {runs} runs: {verdict}"))?;
        print(&format!("digest of the reference's numbers: {}", bit_digest(&expected)))?;
        Ok(if differing == 0 { Completed::Success } else { Completed::Differs })
    }

    fn probe(&self, model: &Model, reporter: &Reporter) -> miette::Result<BitProbe> {
        let mut list = match &self.data {
            Some(path) => BitProbe::from_requests(
                read_strict::<ScoreLine>(path)?.into_iter().map(ScoreLine::into_request).collect(),
            ),
            None => BitProbe::built_in(model),
        };
        let all = list.len();
        // The user's file may contain invalid requests.
        let left_out = list.retain_valid(model);
        if left_out > 0 {
            reporter.warn(&format!("{left_out} of {all} requests do not fit this model and are skipped"));
        }
        if list.is_empty() {
            return Err(NothingAsked.into());
        }
        Ok(list)
    }
}

/// A row, printed when it is ready: with a large model each takes a while.
fn row(what: &str, setting: &str, seconds: &str, bits: &str) -> String {
    visible(&format!("{what:<16} {setting:<44} {seconds:>8}  {bits}"))
}

fn seconds(started: Instant) -> String {
    format!("{:.1}", started.elapsed().as_secs_f64())
}

/// A short description of how a model is run.
fn settings(model: &Model) -> String {
    let options = model.options();
    let isa = options.isa.map_or("", Isa::name);
    format!("{isa}, {} threads, token budget {}", options.threads.unwrap_or(0), options.token_budget.unwrap_or(0))
}

/// Applies options to a model, reloading it only if necessary.
fn set(model: &mut Model, located: &LocatedModel, options: LoadOptions) -> miette::Result<()> {
    let wanted = options.isa.unwrap_or_else(Isa::best);
    // The layout of weights in memory depends on the instruction set. All other options can be changed on a loaded
    // model, and loading a large one takes long.
    if model.options().isa == Some(wanted) {
        model.run_with(options)?;
    } else {
        *model = Model::load(located, options)?;
    }
    Ok(())
}

/// All cases. Other instruction sets are last, because each reloads the weights.
fn cases(defaults: LoadOptions, model: &Model, list: &BitProbe, usage: Usage) -> Vec<MatrixCase> {
    let mut cases = Vec::new();
    let mut add = |what, setting: &str, options, order| {
        cases.push(MatrixCase { what, setting: setting.to_owned(), options, order });
    };
    add("nothing", "run again", defaults, ProbeOrder::AsGiven);
    add("order", "reversed", defaults, ProbeOrder::Reversed);
    add("order", "shuffled", defaults, ProbeOrder::Shuffled);
    add("order", "one by one", defaults, ProbeOrder::OneByOne);
    let all = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut threads = vec![1, 2, all];
    threads.sort_unstable();
    threads.dedup();
    for threads in threads {
        add("threads", &threads.to_string(), LoadOptions { threads: Some(threads), ..defaults }, ProbeOrder::AsGiven);
    }
    for token_budget in [7, 32, 256] {
        let options = LoadOptions { token_budget: Some(token_budget), ..defaults };
        add("token budget", &token_budget.to_string(), options, ProbeOrder::AsGiven);
    }
    add("sharing", "off", LoadOptions { share_prefixes: false, ..defaults }, ProbeOrder::AsGiven);
    add("window", "one request", LoadOptions { window_tokens: 1, ..defaults }, ProbeOrder::AsGiven);
    let kept_prefixes = usage.peak_cache_bytes.max(1);
    let kept = LoadOptions { kept_prefixes: KeptPrefixBytes::Bytes(kept_prefixes), ..defaults };
    add("kept prefixes", &format!("one by one, {} bytes", thousands(kept_prefixes)), kept, ProbeOrder::OneByOne);
    let tight = list.least_cache(model);
    let setting = format!("{} bytes instead of {}", thousands(tight), thousands(usage.peak_cache_bytes));
    add("cache budget", &setting, LoadOptions { cache_budget: Some(tight), ..defaults }, ProbeOrder::AsGiven);
    for isa in Isa::ALL.into_iter().rev().filter(|isa| isa.is_available()) {
        let options = LoadOptions { isa: Some(isa), ..defaults };
        if Some(isa) != model.options().isa {
            add("instruction set", isa.name(), options, ProbeOrder::AsGiven);
        }
        // Plain code is too slow for more than one run.
        if isa == Isa::Plain && isa != Isa::best() {
            continue;
        }
        let options = LoadOptions {
            threads: Some(2),
            token_budget: Some(24),
            share_prefixes: false,
            cache_budget: Some(tight),
            ..options
        };
        add(
            "all of these",
            &format!("{}, 2 threads, 24 tokens, no sharing", isa.name()),
            options,
            ProbeOrder::Shuffled,
        );
    }
    cases
}

//! Shows the events of a plan on a terminal.

use std::sync::{Mutex, MutexGuard, PoisonError};

use probity_lm::SinkError;
use probity_methods::{Conclusion, MethodReport, Table};
use probity_runtime::{Drafting, LoadOptions, PlannedCost, PlannedMemory};
use probity_session::{ByteSize, DryRun, Events, Notice, PlannedPart, ProgressUnit, SessionReport, computing_in_force};
use serde_json::Value;

use crate::error::OutputError;
use crate::global::Global;
use crate::progress::{Reporter, seconds_text};
use crate::terminal::{counted, print, size, table_text, thousands, visible, visible_line, wrapped};

/// Prints results to standard output, everything else to standard error.
pub(crate) struct Terminal {
    reporter: Mutex<Reporter>,
    show: fn(&MethodReport) -> Result<(), OutputError>,
}

impl Terminal {
    /// A terminal with the command's options.
    pub(crate) fn new(global: Global) -> Self {
        Self::by(Reporter::new(global))
    }

    /// A terminal with this reporter.
    pub(crate) fn by(reporter: Reporter) -> Self {
        Self { reporter: Mutex::new(reporter), show }
    }

    /// Replaces how summaries are shown.
    pub(crate) fn showing(self, show: fn(&MethodReport) -> Result<(), OutputError>) -> Self {
        Self { show, ..self }
    }

    /// The reporter of progress.
    pub(crate) fn reporter(&self) -> MutexGuard<'_, Reporter> {
        self.reporter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Events for Terminal {
    fn notice(&self, notice: Notice<'_>) {
        let mut reporter = self.reporter();
        match notice {
            Notice::Message(text) => reporter.say(text),
            Notice::Warning(text) => reporter.warn(text),
            Notice::Error(text) => reporter.error(text),
            Notice::Loaded { model, seconds } => {
                reporter.say(&format!("{}, loaded in {}", model.headline(), seconds_text(seconds)));
            }
            Notice::Tokens(progress) => reporter.watch(progress),
            Notice::Found(found) => reporter.looks_up(found),
            Notice::Progress { what, work: ProgressUnit::Questions, done, total } => {
                reporter.questions(what, done, total);
            }
            Notice::Progress { what, work: ProgressUnit::Candidates, done, total } => {
                reporter.candidates(what, done, total.unwrap_or(done));
            }
            Notice::Outcome(name) => reporter.outcome(name),
            Notice::StepEnded => reporter.finish(),
        }
    }

    fn report(&self, report: SessionReport<'_>) -> Result<(), SinkError> {
        match report {
            SessionReport::Stage(name) => print(&format!("\n── {} ──", visible_line(name)))?,
            SessionReport::Summary(summary) => (self.show)(summary)?,
            SessionReport::DryRun(dry_run) => {
                print(&dry_run_text(dry_run))?;
                let how = in_words(&computing_in_force(dry_run.parts[0].options));
                self.reporter()
                    .say(&format!("nothing was queried and nothing was written; the model would run with {how}"));
            }
        }
        Ok(())
    }
}

/// Settings in one line: `precision exact, threads 2`; null settings are omitted.
fn in_words(settings: &Value) -> String {
    let said = settings.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    let word = |(name, value): (&String, &Value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{} {value}", name.replace('_', " "))
    };
    said.map(word).collect::<Vec<_>>().join(", ")
}

/// Prints the verdict, how far to trust it, the main tables, and why results are missing; with details all tables with
/// their notes.
pub(crate) fn show(summary: &MethodReport) -> Result<(), OutputError> {
    if !summary.verdict.is_empty() {
        print(&verdict_text(&summary.verdict))?;
    }
    if summary.details {
        summary.tables.iter().try_for_each(|table| print(&table_text(table)))?;
        return print(&visible(&summary.signature.to_string()));
    }
    // A table without rows has its reason in its notes.
    let text = |table: &Table| {
        let notes = if table.rows.is_empty() { table.notes.clone() } else { Vec::new() };
        table_text(&Table { notes, ..table.clone() })
    };
    let tables: Vec<String> = main_tables(&summary.tables).into_iter().map(text).collect();
    print(tables.join("\n").trim_end())?;
    if summary.outcomes.unscored() > 0 {
        let notes = summary.outcomes.notes(summary.signature.model.as_ref());
        let lines = std::iter::once(format!("\nOutcomes: {}", summary.outcomes.line())).chain(notes);
        lines.map(|line| wrapped(&line, 2)).try_for_each(|line| print(&line))?;
    }
    Ok(())
}

/// The tables that a run shows first.
pub(crate) fn main_tables(tables: &[Table]) -> Vec<&Table> {
    let main: Vec<&Table> = tables.iter().filter(|table| table.is_main).collect();
    if main.is_empty() { tables.iter().take(1).collect() } else { main }
}

/// The conclusions of a run, and how far to trust them.
pub(crate) fn verdict_text(verdict: &[Conclusion]) -> String {
    let mut lines: Vec<String> = Vec::new();
    let rests = |one: &Conclusion| (one.agreement.clone(), one.trust, one.because.clone());
    for alike in verdict.chunk_by(|one, next| rests(one) == rests(next)) {
        for same in alike.chunk_by(|one, next| one.says == next.says) {
            let about: Vec<&str> = same.iter().filter_map(|one| one.about.as_deref()).collect();
            let about = if about.is_empty() { String::new() } else { format!("{}: ", about.join(", ")) };
            lines.push(format!("{about}{}", same[0].says));
        }
        let (agreement, trust, because) = rests(&alike[0]);
        lines.extend(agreement);
        lines.push(format!("{}: {because}", trust.to_string().to_uppercase()));
    }
    lines.iter().map(|line| wrapped(&visible_line(line), 2) + "\n").collect()
}

/// The cost of a run by part, with a total if there are several.
fn dry_run_text(dry_run: &DryRun) -> String {
    if let [part] = dry_run.parts.as_slice() {
        return part_text(part);
    }
    let mut lines = Vec::new();
    for part in &dry_run.parts {
        let stage = part.stage.map(|stage| format!("stage {stage}, ")).unwrap_or_default();
        lines.push(format!("{stage}model {}", visible_line(&part.model)));
        lines.extend(part_text(part).lines().map(|line| format!("  {line}")));
    }
    let seconds = dry_run.parts.iter().map(|part| part.estimate.seconds).sum();
    let questions: u64 = dry_run.parts.iter().map(|part| part.plan.questions).sum();
    let (questions, time) = (counted(questions, "question"), seconds_text(seconds));
    let is_measured = dry_run.parts.iter().any(|part| part.estimate.tokens > 0);
    let time = if is_measured { format!(", about {time}") } else { String::new() };
    lines.push(format!("all together {questions} at most{time}"));
    lines.join("\n")
}

/// The number of queries that do not fit, and the memory they would need.
fn too_long_text(plan: &PlannedCost) -> String {
    let needed = plan.cache_needed.map(|bytes| ByteSize(bytes).rounded_up());
    let needed = needed.map(|budget| format!("; with --compute cache-budget={budget} more of them fit"));
    format!("{}{}", thousands(plan.too_long), needed.unwrap_or_default())
}

/// Required and free memory of a device.
fn memory_rows(memory: &PlannedMemory, options: LoadOptions) -> Vec<(&'static str, String)> {
    let Some(activations) = memory.activations else {
        return vec![("memory", format!("{} of weights and cache, without activations", size(memory.total())))];
    };
    let with = format!("with about {} of activations", size(activations));
    let program = memory.process.map(|process| format!("{} of the program", size(process)));
    // Copies share only the program.
    let text = match program {
        None if options.devices.has_copies() => {
            format!("{} on each of {}, {with}", size(memory.total()), memory.device)
        }
        Some(program) if options.devices.has_copies() => {
            let copy = size(memory.total() - memory.process.unwrap_or(0));
            format!("{copy} on each of {}, {with}; and {program}", memory.device)
        }
        None => format!("{} on {}, {with}", size(memory.total()), memory.device),
        Some(program) => format!("{} on {}, {with} and {program}", size(memory.total()), memory.device),
    };
    let unknown = || format!("unknown; keys and values may take {}", size(options.cache_budget.unwrap_or(0)));
    let free = memory.free.map_or_else(unknown, |free| format!("{} before the model was loaded", size(free)));
    vec![("memory", text), ("free", free)]
}

/// Planned queries to one model in one stage.
fn part_text(part: &PlannedPart) -> String {
    let PlannedPart { memory, options, plan, estimate, .. } = part;
    let budget = options.cache_budget.unwrap_or(0);
    let (unshared, computed) = (thousands(plan.usage.tokens_unshared), thousands(plan.usage.tokens_computed));
    let peak = plan.usage.peak_cache_bytes;
    let how =
        if options.share_prefixes { "with shared prefixes computed once" } else { "with --compute no-sharing=yes" };
    // How generations interleave depends on where each ends, which is unknown in advance.
    let cache = if plan.generated > 0 {
        format!("about {} of keys and values", size(peak))
    } else {
        format!("{} of keys and values at most", size(peak))
    };
    let (devices, copies) = (options.devices.devices().count(), options.devices.copies().len());
    let each = if devices > 1 { " on each device" } else { "" };
    let of_copy = match (copies, options.devices.first_copy().len()) {
        (1, 1) => String::new(),
        (1, several) => format!(", divided over {several} devices"),
        (_, 1) => each.to_owned(),
        (_, several) => format!(" of each copy, divided over {several} devices"),
    };
    let mut rows = vec![
        ("questions", thousands(plan.questions)),
        ("too long", too_long_text(plan)),
        ("tokens", format!("{unshared} without prefix sharing")),
        ("computed", format!("{computed} {how}")),
        ("weights", format!("{}{of_copy}", size(memory.iter().map(|memory| memory.weights).sum()))),
        ("cache", format!("{cache}, of {} allowed{each}", size(budget))),
    ];
    rows.extend(memory.iter().flat_map(|memory| memory_rows(memory, *options)));
    let is_measured = estimate.tokens > 0;
    let time =
        if is_measured { format!("about {}", seconds_text(estimate.seconds)) } else { "nothing to compute".to_owned() };
    rows.push(("time", time));
    if plan.generated > 0 {
        let generated = thousands(plan.generated);
        rows.insert(4, ("generated", format!("{generated} of these tokens at most, if no text stops early")));
    }
    let mut lines: Vec<String> = rows.into_iter().map(|(name, value)| format!("{name:<10} {value}")).collect();
    let (threads, tokens) = (counted(options.threads.unwrap_or(0), "thread"), counted(estimate.tokens, "token"));
    let rate = estimate.tokens_per_second;
    let with = if copies > 1 {
        format!("on the first of {copies} copies, which have {threads} together")
    } else {
        format!("with {threads}")
    };
    let mut rests = format!(
        "time extrapolated from a measurement {with}: {tokens} of the longest prompt at \
         {rate:.0} tokens/s"
    );
    if let Some(rate) = estimate.generated_per_second {
        rests = format!("{rests}, and {} texts side by side at {rate:.0} tokens/s", estimate.side_by_side);
    }
    if is_measured {
        lines.push(rests);
    }
    if plan.generated > 0 {
        let guesses = match options.drafting {
            Drafting::Lookup => "rejected draft tokens (none with --compute draft=off), and ",
            Drafting::Off => "",
        };
        lines.push(format!("not counted: {guesses}prefixes computed again for texts that start later"));
    }
    lines.join("\n")
}

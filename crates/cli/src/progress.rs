//! Progress on standard error: a bar on a terminal, occasional lines elsewhere, JSON lines for other programs; with
//! `--quiet` only these.

use std::collections::BTreeMap;
use std::fmt;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use probity_runtime::{TokenProgress, hub};
use serde_json::{Value, json};

use crate::global::{Global, ProgressArg};
use crate::terminal::{counted, eprint_line, eprint_wrapped, size, thousands, visible};

/// Interval between lines without a terminal.
const LINE_EVERY: Duration = Duration::from_secs(15);

/// Interval between lines of JSON.
const EVENT_EVERY: Duration = Duration::from_millis(500);

/// Minimum number of seconds reported for unfinished work.
const SOON: f64 = 0.1;

/// Minimum number of answers before a share of low mass is reported.
const ENOUGH: u64 = 50;

/// The unit of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StepUnit {
    Bytes,
    Questions,
    Candidates,
}

impl StepUnit {
    /// The singular.
    fn name(self) -> &'static str {
        match self {
            Self::Bytes => "byte",
            Self::Questions => "question",
            Self::Candidates => "candidate",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Bar,
    Lines,
    Json,
}

/// Reports the progress of a command.
pub(crate) struct Reporter {
    quiet: bool,
    how: How,
    step: Option<ProgressStep>,
    tokens: Option<Arc<TokenProgress>>,
    found: Option<Arc<AtomicUsize>>,
}

struct ProgressStep {
    what: String,
    unit: StepUnit,
    total: Option<u64>,
    done: u64,
    /// Amount that existed before the step; it does not count for the rate.
    here_before: u64,
    started: Instant,
    last_line: Instant,
    bar: Option<ProgressBar>,
    // Shared with the bar, which reads the rate from its own thread.
    tokens: Arc<Watched>,
    /// Number of stored answers found in earlier steps.
    found_before: usize,
    /// Outcomes worth reporting, with their counts.
    noted: BTreeMap<String, u64>,
    warned: bool,
}

/// Tokens of the step's model, which may be loaded after the step began.
#[derive(Default)]
struct Watched(Mutex<Option<StepTokens>>);

impl Watched {
    fn watch(&self, tokens: Option<StepTokens>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = tokens;
    }

    /// See [`StepTokens::rate_and_left`].
    fn rate_and_left(&self, total: u64) -> Option<(f64, f64)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_mut()?.rate_and_left(total)
    }

    /// Sets the number of stored answers found in this step.
    fn found(&self, found: u64) {
        if let Some(tokens) = self.0.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            tokens.found = found;
            tokens.wait();
        }
    }
}

/// A model's tokens since a step's first query.
struct StepTokens {
    progress: Arc<TokenProgress>,
    computed: u64,
    seen: u64,
    /// Stored answers, which do not reach the model.
    found: u64,
    /// Start of the computation.
    since: Instant,
}

impl StepTokens {
    fn new(progress: &Arc<TokenProgress>) -> Self {
        Self {
            progress: progress.clone(),
            computed: progress.computed(),
            seen: progress.seen(),
            found: 0,
            since: Instant::now(),
        }
    }

    /// Tokens per second, and the seconds left for `total` queries; `None` before anything was computed.
    fn rate_and_left(&mut self, total: u64) -> Option<(f64, f64)> {
        self.wait();
        let rate = (self.progress.computed() - self.computed) as f64 / self.since.elapsed().as_secs_f64();
        let unseen = total.saturating_sub(self.progress.seen() - self.seen + self.found);
        (rate > 0.0).then(|| (rate, self.progress.left(unseen) as f64 / rate))
    }

    /// Excludes the time for looking up stored answers before the first computation.
    fn wait(&mut self) {
        if self.progress.computed() == self.computed && self.progress.seen() == self.seen {
            self.since = Instant::now();
        }
    }
}

impl Reporter {
    /// A reporter to standard error with the command's options.
    pub(crate) fn new(global: Global) -> Self {
        let how = match global.progress {
            ProgressArg::Json => How::Json,
            ProgressArg::Auto if std::io::stderr().is_terminal() => How::Bar,
            ProgressArg::Auto | ProgressArg::Lines => How::Lines,
        };
        Self { quiet: global.quiet, how, step: None, tokens: None, found: None }
    }

    /// Disables the bar, for commands that stream answers to the same terminal.
    #[must_use]
    pub(crate) fn without_bar(mut self) -> Self {
        if self.how == How::Bar {
            self.how = How::Lines;
        }
        self
    }

    /// Bases rates and times on this model's tokens, because queries differ too much in cost.
    pub(crate) fn watch(&mut self, progress: &Arc<TokenProgress>) {
        self.tokens = Some(progress.clone());
        if let Some(step) = self.step.as_ref().filter(|step| step.unit == StepUnit::Questions) {
            step.tokens.watch(Some(StepTokens::new(progress)));
        }
    }

    /// Prints a message, unless `--quiet` is set. Errors and warnings ignore `--quiet`.
    pub(crate) fn say(&self, text: &str) {
        if !self.quiet {
            self.print_event("message", text);
        }
    }

    /// Prints a warning, even with `--quiet`.
    pub(crate) fn warn(&self, text: &str) {
        self.print_event("warning", text);
    }

    /// Prints an error that does not end the command, formatted like [`message`](probity_session::message).
    pub(crate) fn error(&self, text: &str) {
        self.print_event("error", text);
    }

    fn print_event(&self, event: &str, text: &str) {
        if self.how == How::Json {
            return emit(&json!({"event": event, "text": text}));
        }
        let text = if event == "warning" { visible(&format!("warning: {text}")) } else { visible(text) };
        match self.step.as_ref().and_then(|step| step.bar.as_ref()) {
            // Printed without the bar's knowledge, the line would be overwritten at the next tick.
            Some(bar) => bar.suspend(|| eprint_wrapped(&text)),
            None => eprint_wrapped(&text),
        }
    }

    /// Counts an outcome. Outcomes without an answer are shown beside the progress, and many answers of low mass cause
    /// one warning.
    pub(crate) fn outcome(&mut self, name: &str) {
        let Some(step) = &mut self.step else { return };
        if matches!(name, "scored" | "tie") {
            return;
        }
        *step.noted.entry(name.to_owned()).or_default() += 1;
        if let Some(bar) = &step.bar {
            bar.set_message(visible(&step.what_and_noted()));
        }
        let low = step.noted.get("low_mass").copied().unwrap_or(0);
        if !step.warned && low >= ENOUGH && low * 2 > step.done {
            step.warned = true;
            self.warn(
                "more than half of the answers so far have low label mass: the model prefers other words; inspect its \
                 prompts with `probity show`, or try other label words or another --format",
            );
        }
    }

    /// Watches the number of stored answers, which are excluded from rates and times.
    pub(crate) fn looks_up(&mut self, found: &Arc<AtomicUsize>) {
        self.found = Some(found.clone());
    }

    /// Reports that `done` queries are answered, of `total` if known.
    pub(crate) fn questions(&mut self, what: &str, done: usize, total: Option<usize>) {
        self.count(what, StepUnit::Questions, done, total);
    }

    /// Reports that `done` of `total` candidates have scores.
    pub(crate) fn candidates(&mut self, what: &str, done: usize, total: usize) {
        self.count(what, StepUnit::Candidates, done, Some(total));
    }

    fn count(&mut self, what: &str, unit: StepUnit, done: usize, total: Option<usize>) {
        let of = total.map(|total| total as u64);
        match &mut self.step {
            // With nothing done a new step begins, even if it has the same name.
            Some(step) if step.unit == unit && step.what == what && done > 0 => step.set_total(of),
            _ => self.start(what, unit, of),
        }
        if let (Some(step), Some(found)) = (&self.step, &self.found) {
            step.tokens.found((found.load(Ordering::Relaxed) - step.found_before) as u64);
        }
        self.set(done as u64);
        if Some(done) == total {
            self.finish();
        }
    }

    /// Ends the current step.
    pub(crate) fn finish(&mut self) {
        if let Some(step) = self.step.take() {
            if let Some(bar) = &step.bar {
                bar.finish_and_clear();
            }
            if self.how == How::Json {
                Self::event("end", &step);
            // The caller reports the result of a download.
            } else if step.unit != StepUnit::Bytes && step.done > 0 {
                self.say(&step.line());
            }
        }
    }

    /// JSON progress was requested explicitly, so `--quiet` does not apply.
    fn event(event: &str, step: &ProgressStep) {
        emit(&step.event(event));
    }

    fn start(&mut self, what: &str, unit: StepUnit, total: Option<u64>) {
        self.finish();
        let now = Instant::now();
        let tokens = Arc::new(Watched::default());
        tokens.watch(self.tokens.as_ref().filter(|_| unit == StepUnit::Questions).map(StepTokens::new));
        let bar = (self.how == How::Bar && !self.quiet).then(|| bar(what, unit, total, tokens.clone()));
        if self.how == How::Lines && (unit == StepUnit::Bytes || total.is_some()) {
            let amount = match (unit, total) {
                (StepUnit::Bytes, _) | (_, None) => String::new(),
                (unit, Some(total)) => format!(": {}", counted(total, unit.name())),
            };
            self.say(&format!("{what}{amount}"));
        }
        let (what, noted) = (what.to_owned(), BTreeMap::new());
        let found_before = self.found.as_ref().map_or(0, |found| found.load(Ordering::Relaxed));
        let step = ProgressStep {
            what,
            unit,
            total,
            done: 0,
            here_before: 0,
            started: now,
            last_line: now,
            bar,
            tokens,
            found_before,
            noted,
            warned: false,
        };
        if self.how == How::Json {
            Self::event("begin", &step);
        }
        self.step = Some(step);
    }

    fn set(&mut self, done: u64) {
        let Some(step) = &mut self.step else { return };
        step.done = done;
        if let Some(bar) = &step.bar {
            bar.set_position(done);
            return;
        }
        let every = if self.how == How::Json { EVENT_EVERY } else { LINE_EVERY };
        if step.last_line.elapsed() < every {
            return;
        }
        step.last_line = Instant::now();
        match (&self.step, self.how) {
            (Some(step), How::Json) => Self::event("progress", step),
            (Some(step), _) => self.say(&step.line()),
            (None, _) => {}
        }
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        // An error is printed after the reporter is dropped, and must not follow a bar.
        if let Some(bar) = self.step.take().and_then(|step| step.bar) {
            bar.finish_and_clear();
        }
    }
}

fn bar(what: &str, unit: StepUnit, total: Option<u64>, tokens: Arc<Watched>) -> ProgressBar {
    let template = match (unit, total) {
        (StepUnit::Bytes, Some(_)) => {
            "{msg} {bar:30} {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec} {eta}"
        }
        (_, Some(_)) => "{msg} {bar:30} {human_pos}/{human_len} {rate}",
        (_, None) => "{spinner} {msg} {elapsed}",
    };
    let bar = total.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.with_key("rate", move |state: &ProgressState, text: &mut dyn fmt::Write| {
            let _ = match tokens.rate_and_left(state.len().unwrap_or(0)) {
                Some((rate, left)) => write!(text, "{rate:.0} tokens/s, {}", left_text(left)),
                None if unit == StepUnit::Questions => Ok(()),
                None => write!(text, "{:.1}/s", state.per_sec()),
            };
        }));
    }
    bar.set_message(visible(what));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

impl ProgressStep {
    /// The total may become known later.
    fn set_total(&mut self, total: Option<u64>) {
        if self.total != total {
            self.total = total;
            if let Some(bar) = &self.bar {
                match total {
                    Some(total) => bar.set_length(total),
                    None => bar.unset_length(),
                }
            }
        }
    }

    /// `comparing (3 too_long)`.
    fn what_and_noted(&self) -> String {
        if self.noted.is_empty() {
            return self.what.clone();
        }
        format!(
            "{} ({})",
            self.what,
            self.noted.iter().map(|(name, count)| format!("{count} {name}")).collect::<Vec<_>>().join(", ")
        )
    }

    /// The progress as JSON; unknown values are null.
    fn event(&self, event: &str) -> Value {
        let seconds = self.started.elapsed().as_secs_f64();
        let by_tokens = self.tokens.rate_and_left(self.total.unwrap_or(0));
        json!({
            "event": event,
            "what": self.what,
            "unit": format!("{}s", self.unit.name()),
            "done": self.done,
            "total": self.total,
            "seconds": seconds,
            "tokens_per_second": by_tokens.map(|(rate, _)| rate),
            "seconds_left": by_tokens.map(|(_, left)| if self.total == Some(self.done) { left } else { left.max(SOON) }),
            "outcomes": self.noted,
        })
    }

    /// `comparing (3 too_long): 120 of 240, 730 tokens/s, 29 s left`.
    fn line(&self) -> String {
        let seconds = self.started.elapsed().as_secs_f64();
        let rate = self.done.saturating_sub(self.here_before) as f64 / seconds.max(1e-9);
        let count = |n: u64| if self.unit == StepUnit::Bytes { size(n) } else { thousands(n) };
        let of = self.total.map(|total| format!(" of {}", count(total))).unwrap_or_default();
        let by_tokens = self.tokens.rate_and_left(self.total.unwrap_or(0));
        let speed = match by_tokens {
            Some((tokens, _)) => format!(", {tokens:.0} tokens/s"),
            None if self.unit == StepUnit::Candidates => format!(", {rate:.1}/s"),
            None => String::new(),
        };
        let time = match (self.total, by_tokens) {
            (Some(total), Some((_, left))) if self.done < total => left_text(left),
            // Only the model's tokens give a rate for queries, since stored answers are returned immediately.
            (Some(total), None)
                if self.done < total && self.done > self.here_before && self.unit != StepUnit::Questions =>
            {
                left_text((total - self.done) as f64 / rate)
            }
            _ => seconds_text(seconds),
        };
        format!("{}: {}{of}{speed}, {time}", self.what_and_noted(), count(self.done))
    }
}

/// Prints an object as one line of standard error.
pub(crate) fn emit(event: &Value) {
    eprint_line(&event.to_string());
}

/// `3 min 20 s left`; never zero, since the work is unfinished.
fn left_text(seconds: f64) -> String {
    if seconds < 1.0 { "less than 1 s left".to_owned() } else { format!("{} left", seconds_text(seconds)) }
}

/// `45 s`, `3 min 20 s`, `2 h 5 min`.
pub(crate) fn seconds_text(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        0..10 => format!("{seconds:.1} s"),
        10..60 => format!("{whole} s"),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

impl hub::TransferProgress for Reporter {
    fn notice(&mut self, text: &str) {
        self.say(text);
    }

    fn begin(&mut self, what: &str, total: Option<u64>) {
        self.start(what, StepUnit::Bytes, total);
    }

    fn resume(&mut self, bytes: u64) {
        self.set(bytes);
        if let Some(step) = &mut self.step {
            // Existing bytes would count as fetched just now, and the time left would be near zero.
            step.here_before = bytes;
            if let Some(bar) = &step.bar {
                bar.reset_eta();
            }
        }
    }

    fn advance(&mut self, bytes: u64) {
        let done = self.step.as_ref().map_or(0, |step| step.done);
        self.set(done + bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(unit: StepUnit, done: u64, here_before: u64) -> ProgressStep {
        let ago = Instant::now().checked_sub(Duration::from_secs(10)).expect("the machine has run for ten seconds");
        let (what, noted) = ("step".to_owned(), BTreeMap::new());
        ProgressStep {
            what,
            unit,
            total: Some(1_000),
            done,
            here_before,
            started: ago,
            last_line: ago,
            bar: None,
            tokens: Arc::default(),
            found_before: 0,
            noted,
            warned: false,
        }
    }

    #[test]
    fn time_that_is_left_is_never_nothing() {
        assert_eq!(
            (left_text(0.0), left_text(0.4), left_text(29.0)),
            ("less than 1 s left".into(), "less than 1 s left".into(), "29 s left".into())
        );
    }

    #[test]
    fn what_was_there_before_makes_no_rate() {
        // 900 of 1,000 bytes existed: 50 took ten seconds, so the other 50 need as long.
        let line = step(StepUnit::Bytes, 950, 900).line();
        assert!(line.ends_with("10 s left"), "{line}");
        let nothing_yet = step(StepUnit::Bytes, 900, 900).line();
        assert!(!nothing_yet.contains("left"), "{nothing_yet}");
        // Without a computing model there is no rate.
        let answered = step(StepUnit::Questions, 449, 0).line();
        assert!(!answered.contains("left") && !answered.contains("/s"), "{answered}");
    }
}

//! Progress on standard error: a bar on a terminal, now and then a line elsewhere, nothing with `--quiet`.

use std::fmt;
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use probity_runtime::{Progress, hub};

use crate::terminal::{size, thousands, visible};

/// Between two lines where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(15);

/// What a step counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Bytes,
    Questions,
}

/// Tells how far a command is.
pub(crate) struct Reporter {
    quiet: bool,
    terminal: bool,
    step: Option<Step>,
    tokens: Option<Arc<Progress>>,
}

struct Step {
    what: String,
    unit: Unit,
    total: Option<u64>,
    done: u64,
    started: Instant,
    last_line: Instant,
    bar: Option<ProgressBar>,
    tokens: Option<Tokens>,
}

/// A model's tokens since a step began.
#[derive(Clone)]
struct Tokens {
    progress: Arc<Progress>,
    computed: u64,
    taken: u64,
}

impl Tokens {
    fn new(progress: &Arc<Progress>) -> Self {
        Self { progress: progress.clone(), computed: progress.computed(), taken: progress.taken() }
    }

    /// Tokens per second, and the seconds that are left of `total` questions; `None` before anything was computed.
    fn rate_and_left(&self, seconds: f64, total: u64) -> Option<(f64, f64)> {
        let rate = (self.progress.computed() - self.computed) as f64 / seconds;
        let unseen = total.saturating_sub(self.progress.taken() - self.taken);
        (rate > 0.0).then(|| (rate, self.progress.left(unseen) as f64 / rate))
    }
}

impl Reporter {
    /// Reports to standard error unless `quiet`.
    pub(crate) fn new(quiet: bool) -> Self {
        Self { quiet, terminal: std::io::stderr().is_terminal(), step: None, tokens: None }
    }

    /// The same without a bar: for a command whose answers go to the same terminal as they come.
    #[must_use]
    pub(crate) fn without_bar(mut self) -> Self {
        self.terminal = false;
        self
    }

    /// Rates and times are told by the tokens of this model from now on: questions cost too different amounts.
    pub(crate) fn watch(&mut self, progress: &Arc<Progress>) {
        self.tokens = Some(progress.clone());
    }

    /// A line for the user. Errors and warnings are not hushed by `--quiet`; this is.
    pub(crate) fn say(&self, text: &str) {
        if self.quiet {
            return;
        }
        match self.step.as_ref().and_then(|step| step.bar.as_ref()) {
            Some(bar) => bar.suspend(|| eprintln!("{}", visible(text))),
            None => eprintln!("{}", visible(text)),
        }
    }

    /// A line that is told even with `--quiet`.
    pub(crate) fn warn(&self, text: &str) {
        let text = visible(&format!("warning: {text}"));
        match self.step.as_ref().and_then(|step| step.bar.as_ref()) {
            Some(bar) => bar.suspend(|| eprintln!("{text}")),
            None => eprintln!("{text}"),
        }
    }

    /// `done` questions are answered, of `total` where it is known how many there are.
    pub(crate) fn questions(&mut self, what: &str, done: usize, total: Option<usize>) {
        let of = total.map(|total| total as u64);
        match &mut self.step {
            Some(step) if step.unit == Unit::Questions && step.what == what && done > 0 => step.set_total(of),
            _ => self.start(what, Unit::Questions, of),
        }
        self.set(done as u64);
        if Some(done) == total {
            self.finish();
        }
    }

    /// Ends the step that is shown.
    pub(crate) fn finish(&mut self) {
        if let Some(step) = self.step.take() {
            if let Some(bar) = &step.bar {
                bar.finish_and_clear();
            }
            if step.unit == Unit::Questions && step.done > 0 {
                self.say(&step.line());
            }
        }
    }

    fn start(&mut self, what: &str, unit: Unit, total: Option<u64>) {
        self.finish();
        let now = Instant::now();
        let tokens = self.tokens.as_ref().filter(|_| unit == Unit::Questions).map(Tokens::new);
        let bar = (self.terminal && !self.quiet).then(|| bar(what, unit, total, tokens.clone()));
        if bar.is_none() && (unit == Unit::Bytes || total.is_some()) {
            let amount = match (unit, total) {
                (Unit::Questions, Some(total)) => format!(": {} questions", thousands(total)),
                _ => String::new(),
            };
            self.say(&format!("{what}{amount}"));
        }
        self.step = Some(Step { what: what.to_owned(), unit, total, done: 0, started: now, last_line: now, bar, tokens });
    }

    fn set(&mut self, done: u64) {
        let Some(step) = &mut self.step else { return };
        step.done = done;
        if let Some(bar) = &step.bar {
            bar.set_position(done);
        } else if step.last_line.elapsed() >= LINE_EVERY {
            step.last_line = Instant::now();
            let line = step.line();
            self.say(&line);
        }
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        if let Some(bar) = self.step.take().and_then(|step| step.bar) {
            bar.finish_and_clear();
        }
    }
}

fn bar(what: &str, unit: Unit, total: Option<u64>, tokens: Option<Tokens>) -> ProgressBar {
    let template = match (unit, total) {
        (Unit::Bytes, Some(_)) => "{msg} {bar:30} {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec} {eta}",
        (Unit::Questions, Some(_)) => "{msg} {bar:30} {human_pos}/{human_len} {rate}",
        (_, None) => "{spinner} {msg} {elapsed}",
    };
    let bar = total.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.with_key("rate", move |state: &ProgressState, text: &mut dyn fmt::Write| {
            let by_tokens = tokens.as_ref().and_then(|t| t.rate_and_left(state.elapsed().as_secs_f64(), state.len().unwrap_or(0)));
            let _ = match by_tokens {
                Some((rate, left)) => write!(text, "{rate:.0} tokens/s, {} left", seconds_text(left)),
                None => write!(text, "{:.1}/s", state.per_sec()),
            };
        }));
    }
    bar.set_message(visible(what));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

impl Step {
    /// How many there are may come to be known on the way.
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

    /// `comparing: 120 of 240, 730 tokens/s, 29 s left`.
    fn line(&self) -> String {
        let seconds = self.started.elapsed().as_secs_f64();
        let rate = self.done as f64 / seconds.max(1e-9);
        let count = |n: u64| if self.unit == Unit::Bytes { size(n) } else { thousands(n) };
        let of = self.total.map(|total| format!(" of {}", count(total))).unwrap_or_default();
        let by_tokens = self.tokens.as_ref().and_then(|tokens| tokens.rate_and_left(seconds, self.total.unwrap_or(0)));
        let speed = match by_tokens {
            Some((tokens, _)) => format!(", {tokens:.0} tokens/s"),
            None if self.unit == Unit::Questions => format!(", {rate:.1}/s"),
            None => String::new(),
        };
        let time = match (self.total, by_tokens) {
            (Some(total), Some((_, left))) if self.done < total => format!("{} left", seconds_text(left)),
            (Some(total), None) if self.done < total && self.done > 0 => {
                format!("{} left", seconds_text((total - self.done) as f64 / rate))
            }
            _ => seconds_text(seconds),
        };
        format!("{}: {}{of}{speed}, {time}", self.what, count(self.done))
    }
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

impl hub::Progress for Reporter {
    fn notice(&mut self, text: &str) {
        self.say(text);
    }

    fn begin(&mut self, what: &str, total: Option<u64>) {
        self.start(what, Unit::Bytes, total);
    }

    fn advance(&mut self, bytes: u64) {
        let done = self.step.as_ref().map_or(0, |step| step.done);
        self.set(done + bytes);
    }
}

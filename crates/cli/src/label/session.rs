//! Serves the page and saves the labels.

use std::ops::RangeInclusive;
use std::sync::Arc;

use probity_data::{Label, LabelAppender, LabelFile};
use probity_methods::RatingScale;
use probity_serve::{LabelCounts, LabelServer, LabelSession, ServeError};

use super::LabelArgs;
use crate::exit::Completed;
use crate::global::Global;
use crate::interrupt;
use crate::output::{is_stdout, spare_input, spare_run};
use crate::progress::Reporter;
use crate::terminal::{counted, print, quoted, thousands, visible_line};

/// Default scale for scores.
const SCALE: RangeInclusive<u32> = 1..=5;

/// Why labelling cannot start.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
enum NotAsked {
    #[error("labels cannot be written to standard output")]
    #[diagnostic(help("name a file: --out labels.jsonl"))]
    Stdout,
    #[error("line {line} of {file} has the score {score}, which is outside the scale \
             {}..{}", scale.start(), scale.end())]
    #[diagnostic(help("set --scale to the scale of the existing labels, or use another file with --out"))]
    OtherScale { file: String, line: usize, score: f64, scale: RangeInclusive<u32> },
}

/// Maximum number of candidates without text to name.
const NAMED: usize = 5;

impl LabelArgs {
    pub(crate) fn run(&self, global: Global) -> miette::Result<Completed> {
        let reporter = Reporter::new(global);
        self.spare_files()?;
        let asked = self.questions()?;
        if !asked.without_text.is_empty() {
            let count = counted(asked.without_text.len(), "candidate");
            let named = asked.without_text.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
            let more = if asked.without_text.len() > NAMED { ", …" } else { "" };
            reporter.warn(&format!("skipped {count} without text: {}{more}", visible_line(&named)));
        }
        if asked.named > 0 {
            let attributes: Vec<String> = self.attribute.iter().map(|name| visible_line(name)).collect();
            reporter.warn(&format!(
                "{} about overall preference: labels under {} are counted separately from preferences; omit \
                 --attribute to add to the preferences",
                match asked.named {
                    1 => "1 task is".to_owned(),
                    several => format!("{several} tasks are"),
                },
                attributes.join(", ")
            ));
        }
        let server = LabelServer::bind(self.port)?;
        let (file, held) = LabelAppender::open(&self.out)?;
        if held.half_line.is_some() {
            let file = visible_line(&held.file);
            reporter.warn(&format!("the last line of {file} was incomplete and was removed; its task is shown again"));
        }
        let scale = self.scale.map_or(SCALE, RatingScale::ratings);
        if asked.has_scores {
            check_scale(&held, &scale)?;
        }
        let session = LabelSession::new(asked.questions, scale, self.annotator.clone(), file, &held);
        let session = Arc::new(session);
        let interrupt = interrupt::catch_saying(global.progress, "stopping; labels are saved");
        print(&server.address().map_err(ServeError::Start)?)?;
        self.report_start(&reporter, session.counts(), &held);
        let is_ending = || interrupt.check().is_err() || self.until_done && session.counts().left() == 0;
        server.run(session.clone(), &is_ending)?;
        self.report_end(&reporter, session.counts());
        Ok(Completed::Success)
    }

    /// Fails if the output would replace another file.
    fn spare_files(&self) -> miette::Result<()> {
        if is_stdout(&self.out) {
            return Err(NotAsked::Stdout.into());
        }
        spare_input(&self.data, &self.out)?;
        self.tasks.iter().try_for_each(|tasks| spare_input(tasks, &self.out))?;
        Ok(spare_run(&self.out)?)
    }

    fn report_start(&self, reporter: &Reporter, counts: LabelCounts, held: &LabelFile) {
        let done = counts.total - counts.left();
        let before = if done > 0 { format!(", {} of them already done", thousands(done)) } else { String::new() };
        let tasks = counted(counts.total, "task");
        reporter.say(&format!("{tasks}{before}; open the address in a browser, press Ctrl-C to stop"));
        let own = held.rows.iter().filter(|(_, row)| row.annotator == self.annotator).count();
        if own > done {
            let others = counted(own - done, "label");
            reporter.say(&format!("{} also has {others} of other tasks, which are kept", visible_line(&held.file)));
        }
    }

    fn report_end(&self, reporter: &Reporter, counts: LabelCounts) {
        let LabelCounts { total, labelled, skipped, given } = counts;
        let skipped = if skipped > 0 { format!(", {} skipped", thousands(skipped)) } else { String::new() };
        let (given, left) = (counted(given, "label"), thousands(counts.left()));
        reporter.say(&format!("{given} added, {left} of {} left{skipped}", counted(total, "task")));
        if labelled > 0 {
            let out = quoted(&self.out.display().to_string());
            reporter
                .say(&format!("compare scores with them: probity meta --scores RUN --labels {}", visible_line(&out)));
        }
    }
}

/// Fails if the file has scores on another scale.
fn check_scale(held: &LabelFile, scale: &RangeInclusive<u32>) -> Result<(), NotAsked> {
    let ends = f64::from(*scale.start())..=f64::from(*scale.end());
    let beyond = held.rows.iter().find_map(|(line, row)| match row.label {
        Label::Score(score) if !ends.contains(&score) => Some((*line, score)),
        _ => None,
    });
    match beyond {
        Some((line, score)) => Err(NotAsked::OtherScale { file: held.file.clone(), line, score, scale: scale.clone() }),
        None => Ok(()),
    }
}

//! `logprobs` and `generate`: answers a file of requests, in order, one line each.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use probity_data::{DataError, LineProblems, Records};
use probity_lm::LanguageModel as _;
use probity_runtime::DryModel;
use probity_session::{
    AnswerWriter, Context, DryRun, ModelOptions, Notice, OpenedModel, PlannedPart, RequestLine, SessionError,
    SessionReport, answer_settings, computing_in_force, message, report_damaged, shared_answers,
};
use probity_store::{Recorded, TableWriter, write_whole};
use serde_json::{Value, json};

use crate::error::FileError;
use crate::events::Terminal;
use crate::exit::Completed;
use crate::generate::written_text;
use crate::global::Global;
use crate::interrupt;
use crate::method::typed;
use crate::options::Typed;
use crate::output::{Stdout, is_stdout, spare_input};
use crate::progress::Reporter;

/// Options of the raw interfaces.
#[derive(Debug, Args)]
pub(crate) struct RawArgs {
    #[command(flatten)]
    model: Typed<ModelOptions>,
    /// Requests as JSON lines, or - for stdin
    #[arg(long, value_name = "FILE")]
    input: PathBuf,
    /// Answer only the first N valid requests
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Write answers to this file instead of standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace the file of --out if it exists
    #[arg(long)]
    overwrite: bool,
    /// Folder of cached answers to reuse and extend
    ///
    /// An interrupted command does not repeat what it has answered.
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// Print what the command would cost; query and write nothing
    ///
    /// Prints the number of queries, the tokens with and without prefix sharing, and estimates of memory and time. The
    /// estimates assume that generated texts reach their maximum length and that no drafts are rejected.
    #[arg(long)]
    dry_run: bool,
    /// Write model, arguments and cost to this file as JSON
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,
    /// Exit with 1 if a request has no answer (too long, not finite)
    #[arg(long)]
    strict: bool,
}

impl RawArgs {
    /// Answers the requests of the file.
    pub(crate) fn run<L: RequestLine>(&self, global: Global, arguments: &[OsString]) -> miette::Result<Completed> {
        let reporter = Reporter::new(global);
        let out = self.out.as_deref().filter(|path| !is_stdout(path));
        let to_terminal = out.is_none() && std::io::stdout().is_terminal();
        let terminal = Arc::new(Terminal::by(if to_terminal { reporter.without_bar() } else { reporter }));
        for written in out.into_iter().chain(self.manifest.as_deref()) {
            spare_input(&self.input, written)?;
        }
        let records = Records::<L>::open(&self.input, self.limit)?;
        let context = Context::new(terminal, interrupt::catch(global.progress));
        if self.dry_run {
            return self.dry_run(records, &context);
        }
        // Reports outputs that cannot be written before a model is loaded.
        let table = match out {
            Some(path) => TableWriter::create(path, self.overwrite)?,
            None => TableWriter::to_stream("standard output", Stdout::new()),
        };
        let done = self.answer::<L>(table, records, &context, arguments);
        let is_whole = matches!(done, Ok(Completed::Success | Completed::Unscored));
        if let Some(path) = out.filter(|path| !is_whole && is_empty_file(path)) {
            std::fs::remove_file(path).map_err(FileError::context("cannot remove the empty file of answers"))?;
        }
        done
    }

    /// Writes the answers of the records to the table.
    fn answer<L: RequestLine>(
        &self,
        table: TableWriter,
        mut records: Records<'_, L>,
        context: &Context,
        arguments: &[OsString],
    ) -> miette::Result<Completed> {
        let shared = shared_answers(self.cache.as_deref())?;
        let given = typed(arguments);
        let version = env!("CARGO_PKG_VERSION");
        self.write_manifest(&json!({"probity": version, "arguments_given": given, "answered": null}))?;
        let model = context.models.language(&OpenedModel::open(&self.model)?)?;
        let recorded = Recorded::new(model.clone(), &answer_settings(model.options()), None, shared.as_ref())?;
        context.events.notice(Notice::Found(recorded.found_so_far()));
        // Flushed after every answer: a reader of a pipe gets each immediately, and an interrupt loses none.
        let answers = AnswerWriter::new(table.with_flush_every(1), model.description().precision, context);
        let started = Instant::now();
        let (usage, tally) = answers
            .ask::<L>(&self.model.computing.thinking(&recorded), &mut records, |request| L::fits(&model, request))?;
        if let Some(told) = written_text(&usage, started.elapsed().as_secs_f64()) {
            context.events.notice(Notice::StepEnded);
            context.events.notice(Notice::Message(&told));
        }
        report_damaged(&recorded.damaged(), context.events.as_ref());
        let mut problems = records.into_problems();
        // Merged with the invalid lines, so that all are sorted by line and hints come last.
        tally.refused.into_iter().for_each(|(number, why)| problems.push(number, why));
        self.write_manifest(&json!({
            "probity": version, "arguments_given": given, "arguments_in_force": computing_in_force(model.options()),
            "model": self.model.computing.described(model.description().clone()),
            "answered": tally.answered, "unanswered": tally.unanswered,
            "broken_lines": problems.count(), "usage": usage,
        }))?;
        let done = if self.strict && tally.unanswered > 0 { Completed::Unscored } else { Completed::Success };
        Ok(report_problems(problems).unwrap_or(done))
    }

    fn write_manifest(&self, manifest: &Value) -> miette::Result<()> {
        let Some(path) = &self.manifest else { return Ok(()) };
        let cannot = FileError::context("cannot write the manifest");
        write_whole(path, |writer| Ok(writeln!(writer, "{manifest:#}").map_err(cannot)?))
    }

    fn dry_run<L: RequestLine>(&self, mut records: Records<'_, L>, context: &Context) -> miette::Result<Completed> {
        let model = context.models.language(&OpenedModel::open(&self.model)?)?;
        let dry = DryModel::count(&model);
        let mut requests =
            records.by_ref().map(|(_, line)| line.into_request()).filter(|request| L::fits(&model, request).is_ok());
        L::ask(&self.model.computing.thinking(&dry), &mut requests, &mut |_, _| Ok(()))?;
        context.events.notice(Notice::Message("dry run: measuring this machine"));
        let dry_run = DryRun { parts: vec![PlannedPart::measure(None, &model, dry.into_cost())?] };
        context.events.report(SessionReport::DryRun(&dry_run)).map_err(SessionError::Events)?;
        Ok(report_problems(records.into_problems()).unwrap_or(Completed::Success))
    }
}

fn is_empty_file(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() == 0)
}

/// Reports invalid lines, and returns the exit code if there are any.
fn report_problems(problems: LineProblems) -> Option<Completed> {
    if problems.is_empty() {
        return None;
    }
    crate::terminal::eprint_wrapped(&message(&DataError::Problems(problems)));
    Some(Completed::InPart)
}

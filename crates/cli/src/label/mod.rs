//! `probity label`: a web page for labelling samples.

#[cfg(feature = "serve")]
mod questions;
#[cfg(feature = "serve")]
mod session;

use std::path::PathBuf;

use clap::Args;
use probity_data::ReadOptions;
use probity_methods::RatingScale;
use probity_session::ErrorText;

use crate::options::Typed;

pub(crate) const LONG_ABOUT: &str = "\
Label samples by hand, on a page in the browser: which of two texts is better, or how good one is.

The tasks are those of --tasks, in file order (`probity meta` writes the pairs on which a metric cannot be trusted to \
to_label.jsonl). Without --tasks they are all pairs of each sample's candidates, or with --scale all candidates, in an \
order drawn with --seed. Texts are shown without their ids, and the positions of the texts of a pair are random.

The first line of standard output is the address of the page, for a browser on this machine. Other machines cannot \
reach it, and other users need the token in it. Keys: 1, 0, 2 or a digit of the scale to answer, s to skip, u to undo \
the last answer, ? for all keys.

Each answer is a line of JSON in --out, on disk before the page continues. Ctrl-C ends the command. The same command \
continues with the tasks that have no label yet. The last line for a task and an annotator counts; a line with \
`withdrawn` undoes the earlier one.

  {\"item\": \"1\", \"attribute\": \"flow\", \"candidate_i\": \"a\", \"candidate_j\": \"b\", \"preferred\": \"b\"}
  {\"item\": \"1\", \"attribute\": \"flow\", \"candidate\": \"a\", \"score\": 4}";

pub(crate) const AFTER_HELP: &str = "\
Examples:
  probity label --data samples.jsonl --attribute coherence --out labels.jsonl
  probity label --data samples.jsonl --tasks meta-run/to_label.jsonl --out labels.jsonl
  probity label --data samples.jsonl --scale 1..5 --annotator ann --out labels.jsonl";

/// Options of `label`.
#[derive(Debug, Args)]
#[command(mut_arg("limit", |limit| limit.help("Label only the first N tasks")))]
pub(crate) struct LabelArgs {
    /// Samples: JSONL, CSV, TSV, Parquet (.gz, .zst); - for stdin
    #[arg(long, value_name = "FILE", help_heading = "Data and output")]
    data: PathBuf,
    /// File to append labels to, created if missing
    ///
    /// Tasks that have a label in it are not shown again.
    #[arg(long, value_name = "FILE", help_heading = "Data and output")]
    out: PathBuf,
    /// Tasks to label, as JSON lines
    ///
    /// Each line has an `item`, usually an `attribute`, and either `candidate_i` and `candidate_j` or one `candidate`.
    #[arg(long, value_name = "FILE", help_heading = "Data and output")]
    tasks: Option<PathBuf>,
    #[command(flatten)]
    read: Typed<ReadOptions>,
    /// Attribute to judge; repeatable
    ///
    /// With --tasks, only tasks of these attributes are shown; a task without an attribute is shown once for each.
    #[arg(long, value_name = "NAME", value_parser = name)]
    attribute: Vec<String>,
    /// Rate single texts on this scale of at most ten integers
    ///
    /// The highest is the best. Tasks with one candidate use 1..5 by default.
    #[arg(long, value_name = "MIN..MAX", value_parser = scale)]
    scale: Option<RatingScale>,
    /// Name of the annotator
    ///
    /// Each label records it. Every annotator labels all tasks.
    #[arg(long, value_name = "NAME", value_parser = name)]
    annotator: Option<String>,
    /// Seed for the order of tasks and the positions of texts
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Port of the page; 0 picks a free one
    #[arg(long, value_name = "N", default_value_t = 0)]
    port: u16,
    /// Exit after the last task instead of at Ctrl-C
    #[arg(long)]
    until_done: bool,
}

/// A name with visible characters.
fn name(text: &str) -> Result<String, String> {
    if text.trim().is_empty() { Err("expected a name".to_owned()) } else { Ok(text.to_owned()) }
}

/// A scale that fits on a row of digits.
fn scale(text: &str) -> Result<RatingScale, String> {
    let scale: RatingScale = text.parse().map_err(|error| ErrorText::from_error(&error).to_string())?;
    if scale.ratings().count() > 10 {
        return Err("expected at most ten values, one for each digit key".to_owned());
    }
    Ok(scale)
}

/// Without the feature `serve` there is no page.
#[cfg(not(feature = "serve"))]
mod refused {
    use super::LabelArgs;
    use crate::exit::Completed;
    use crate::global::Global;

    #[derive(Debug, thiserror::Error, miette::Diagnostic)]
    #[error("this build has no network code and cannot show the page")]
    #[diagnostic(help("build with the default features"))]
    struct NoNetwork;

    impl LabelArgs {
        #[expect(clippy::unused_self, reason = "with the feature it is run")]
        pub(crate) fn run(&self, _: Global) -> miette::Result<Completed> {
            Err(NoNetwork.into())
        }
    }
}

//! `probity label`: a page on which a person labels samples.

#[cfg(feature = "serve")]
mod asked;
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

What is asked: the tasks of --tasks, in their order (`probity meta` writes the pairs that a metric cannot be trusted with \
to to_label.jsonl); else every pair of each sample's candidates, or with --scale every candidate, in an order that is \
drawn by --seed. Texts are shown without their ids, and which of two stands first is drawn for each pair.

The first line of standard output is the address of the page, for a browser on this machine; no other machine reaches \
it, and nobody on this one without the token in it. Keys do everything: 1, 0, 2 or a digit of the scale, s to skip, u to \
take the last answer back, ? for all of them.

Each answer is a line of JSON in --out, on the disk before the page goes on. Ctrl-C ends the command; started again with \
the same --out, it goes on with what is not labelled. The last line of a task counts, by annotator; one with `withdrawn` \
takes the earlier one back.

  {\"item\": \"1\", \"attribute\": \"flow\", \"candidate_i\": \"a\", \"candidate_j\": \"b\", \"preferred\": \"b\"}
  {\"item\": \"1\", \"attribute\": \"flow\", \"candidate\": \"a\", \"score\": 4}";

pub(crate) const AFTER_HELP: &str = "\
Examples:
  probity label --data samples.jsonl --attribute coherence --out labels.jsonl
  probity label --data samples.jsonl --tasks meta-run/to_label.jsonl --out labels.jsonl
  probity label --data samples.jsonl --scale 1..5 --annotator ann --out labels.jsonl";

/// Options of `label`.
#[derive(Debug, Args)]
#[command(mut_arg("limit", |limit| limit.help("Ask only the first N tasks")))]
pub(crate) struct LabelArgs {
    /// The samples: JSON lines, CSV, TSV or Parquet, also packed by gzip or zstd, or - for standard input
    #[arg(long, value_name = "FILE", help_heading = "Data and output")]
    data: PathBuf,
    /// The file that labels are added to, made where it is not there; what it holds is not asked again
    #[arg(long, value_name = "FILE", help_heading = "Data and output")]
    out: PathBuf,
    /// What to ask: lines of JSON with an `item`, mostly an `attribute`, and `candidate_i` and `candidate_j`, or one
    /// `candidate`
    #[arg(long, value_name = "FILE", help_heading = "Data and output")]
    tasks: Option<PathBuf>,
    #[command(flatten)]
    read: Typed<ReadOptions>,
    /// What to judge the texts by; may be given several times. Of --tasks only those of these attributes are asked, and
    /// those that name none are asked for each of them
    #[arg(long, value_name = "NAME", value_parser = name)]
    attribute: Vec<String>,
    /// Ask how good each text is, by whole numbers of which the highest is the best, at most ten. Tasks with one candidate
    /// are asked on 1..5 where nothing is said
    #[arg(long, value_name = "MIN..MAX", value_parser = scale)]
    scale: Option<RatingScale>,
    /// Who labels. It stands in each line, and each annotator is asked all tasks
    #[arg(long, value_name = "NAME", value_parser = name)]
    annotator: Option<String>,
    /// Draws the order of tasks, and which of two texts stands first
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// The port of the page; 0 takes any that is free
    #[arg(long, value_name = "N", default_value_t = 0)]
    port: u16,
    /// End when the last task is labelled, and not at Ctrl-C
    #[arg(long)]
    until_done: bool,
}

/// A name that can be seen.
fn name(text: &str) -> Result<String, String> {
    if text.trim().is_empty() { Err("a name is needed".to_owned()) } else { Ok(text.to_owned()) }
}

/// A scale that a row of digits can give.
fn scale(text: &str) -> Result<RatingScale, String> {
    let scale: RatingScale = text.parse().map_err(|error| ErrorText::of(&error).to_string())?;
    if scale.ratings().count() > 10 {
        return Err("at most ten values can be given by a key".to_owned());
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
    #[error("this build of probity has no network code and cannot show the page")]
    #[diagnostic(help("build with the default features"))]
    struct NoNetwork;

    impl LabelArgs {
        #[expect(clippy::unused_self, reason = "with the feature it is run")]
        pub(crate) fn run(&self, _: Global) -> miette::Result<Completed> {
            Err(NoNetwork.into())
        }
    }
}

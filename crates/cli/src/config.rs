//! `probity config`: shows the defaults in force.

use probity_session::UserConfig;

use crate::exit::Completed;
use crate::terminal::{print, table, visible_line};

pub(crate) const LONG_ABOUT: &str = "\
Show the defaults in force and where they come from.

The file holds defaults for all commands:

  model = \"smollm2-135m-instruct\"   # --model
  runs = \"runs\"                     # the folder for runs without --out
  [compute]                         # keys of --compute, also for the runs of recipes
  threads = 4

$PROBITY_MODEL and $PROBITY_RUNS take precedence over the file, and an option over both.";

/// Runs `probity config`.
pub(crate) fn show() -> miette::Result<Completed> {
    let path = UserConfig::place()?;
    let there = if path.is_file() { "" } else { " (missing; create it with a text editor)" };
    // Printed before the file is read: the user needs the path if the file is invalid.
    print(&format!("{}{there}", visible_line(&path.display().to_string())))?;
    let (file, all) = (UserConfig::file_alone()?, UserConfig::load()?);
    let from = |name: &str, in_file: bool| match () {
        () if std::env::var(name).is_ok_and(|value| !value.is_empty()) => format!("${name}"),
        () if in_file => "the file".to_owned(),
        () => "built in".to_owned(),
    };
    let mut rows = vec![
        [
            "model".to_owned(),
            all.model.clone().unwrap_or_else(|| "– (--model is required)".to_owned()),
            from("PROBITY_MODEL", file.model.is_some()),
        ],
        ["runs".to_owned(), all.runs().display().to_string(), from("PROBITY_RUNS", file.runs.is_some())],
    ];
    let compute = all.compute().join(", ");
    if !compute.is_empty() {
        rows.push(["compute".to_owned(), compute, from("", true)]);
    }
    print(&table(
        &["default", "value", "from"].map(str::to_owned),
        &rows.into_iter().map(Vec::from).collect::<Vec<_>>(),
    ))?;
    Ok(Completed::Success)
}

//! A new recipe: every option of a method with its help and default.

use std::fmt::Write as _;

use probity_methods::{DynMethod, Needs};
use probity_options::{OptionSpec, specs};
use probity_runtime::hub::known_models;
use serde_json::{Value, json};

use super::keys::{self, choices, default, form};
use crate::report::ReportOptions;

/// Width of comments.
const WIDTH: usize = 100;

/// A recipe with one run of the method; `file` is its future path.
pub(super) fn recipe(method: &dyn DynMethod, file: &str) -> String {
    let name = method.name();
    let about = format!("{}. See: probity help {name}", method.about());
    let how = "Commented-out keys show the default, or have none; remove the # to set them. Paths are relative to this \
               file. Repeatable options are lists. If `model` or `data` is a list, the run is repeated for each item. \
               Options shared by several runs can be in [defaults], [model.NAME] and [data.NAME].";
    let mut text = format!("# probity recipe\n#\n#   probity recipe check {file}\n#   probity run {file}\n#\n");
    comment(&mut text, how);
    let _ = write!(text, "\n[run.{name}]\n");
    comment(&mut text, &about);
    let _ = writeln!(text, "method = {}", json!(name));
    let own = method.options().len();
    let needs = method.needs();
    let mut options: Vec<(usize, OptionSpec)> = keys::run_options(method).into_iter().enumerate().collect();
    // Required options first, then the method's own.
    options.sort_by_key(|(place, option)| (needed(option, needs).is_none(), *place >= own));
    write_options(&mut text, needs, options.iter().map(|(_, option)| option));
    text.push_str("\n[report]\n");
    comment(&mut text, "One report of all runs. See: probity help report");
    write_options(&mut text, needs, &specs::<ReportOptions>());
    text
}

/// Writes every option with its help and its value: an example if required, otherwise the default, commented out.
fn write_options<'o>(text: &mut String, needs: Needs, options: impl IntoIterator<Item = &'o OptionSpec>) {
    for option in options {
        text.push('\n');
        comment(text, option.description());
        let choices = choices(option);
        if !choices.is_empty() {
            comment(text, &format!("One of: {}", choices.join(", ")));
        }
        let key = option.name();
        let _ = match (needed(option, needs), default(option)) {
            (Some(value), _) => writeln!(text, "{key} = {value}"),
            (None, Some(value)) => writeln!(text, "# {key} = {value}"),
            (None, None) => writeln!(text, "# {key} = <{}>", form(option)),
        };
    }
}

/// An example value for a required option, which works if the samples and the model exist.
fn needed(option: &OptionSpec, needs: Needs) -> Option<Value> {
    match option.field.as_str() {
        "data" => Some(json!("samples.jsonl")),
        "documents" => Some(json!(["documents"])),
        "evaluated" => Some(json!(known_models()[0].name)),
        "model" if needs.model => Some(json!(known_models()[0].name)),
        "metric" if option.is_required => Some(json!(["chrf"])),
        // For agreement with human labels. In methods with a model, `scores` is optional.
        "scores" if !needs.model => Some(json!(["runs/compare"])),
        "head" => Some(json!("runs/learn")),
        "out" => Some(json!("runs/{run}")),
        "html" => Some(json!("report.html")),
        "target" => Some(json!(["compare"])),
        "attribute" if option.is_required => Some(json!(["coherence"])),
        _ => option.is_required.then(|| json!(form(option))),
    }
}

/// Writes text as comment lines.
fn comment(into: &mut String, text: &str) {
    for paragraph in text.lines() {
        let mut line = "#".to_owned();
        for word in paragraph.split_whitespace() {
            if line.chars().count() + 1 + word.chars().count() > WIDTH {
                into.push_str(&line);
                into.push('\n');
                "#".clone_into(&mut line);
            }
            line.push(' ');
            line.push_str(word);
        }
        into.push_str(line.trim_end());
        into.push('\n');
    }
}

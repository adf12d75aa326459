//! Tables of one run: facts, outcomes, figures with intervals, and the method's own tables.

use std::collections::BTreeMap;

use probity_analysis::figures::{self, number};
use probity_analysis::measures::MeasureKind;
use probity_analysis::{Cell, Table, cells};
use probity_metrics::Direction;
use probity_stats::{FigureEstimate, NoInterval, Resampling};
use serde::Deserialize;
use serde_json::Value;

use crate::attributes::Attribute;
use crate::facts::RunFacts;
use crate::run::ReportedRun;
use crate::text::{counted, fixed, thousands, tokens_text, visible_line};

/// Facts about the run: model, data, machine, cost and state.
pub(crate) fn about(prefix: &str, run: &ReportedRun, facts: &RunFacts) -> Table {
    let mut table = Table::new("Run details", ["", "value"]).with_id(format!("{prefix}-about"));
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            table.push(cells![name, value]);
        }
    };
    let text = |pointer: &str| run.text(pointer).map(str::to_owned);
    add("method", Some(run.method().to_owned()));
    add("state", Some(state(run)));
    add("model", text("/model/name"));
    add("architecture", text("/model/architecture"));
    add("weights", text("/model/weights"));
    add("fingerprint", text("/model/fingerprint"));
    add(
        "precision, device",
        text("/model/precision").map(|p| format!("{p}, {}", run.text("/model/device").unwrap_or("–"))),
    );
    for model in run.manifest["other_models"].as_array().into_iter().flatten() {
        let facts = ["name", "architecture", "fingerprint"].map(|fact| model[fact].as_str());
        add("additional model", Some(facts.into_iter().flatten().collect::<Vec<_>>().join(", ")));
    }
    add("data", text("/arguments_in_force/data/path"));
    add("data SHA-256", text("/arguments_in_force/data/sha256"));
    // Inputs of `meta` and of methods without samples, by option.
    let data = run.manifest.pointer("/arguments_in_force/data").and_then(Value::as_object);
    for (option, files) in data.into_iter().flatten() {
        let paths: Vec<&str> =
            files.as_array().into_iter().flatten().filter_map(|file| file["path"].as_str()).collect();
        add(option, Some(paths.join(", ")));
    }
    let samples = run.reads_samples() && !facts.samples.is_empty();
    add("samples", samples.then(|| thousands(facts.samples.len() as u64)));
    add("machine", machine(&run.manifest["machine"]));
    add("version", text("/versions/probity"));
    add("started", text("/started"));
    add("resumed", run.manifest["resumed"].as_array().filter(|r| !r.is_empty()).map(|r| counted(r.len(), "time")));
    add("finished", text("/finished"));
    add("cost", cost(run));
    table
}

/// `finished`, or another status with its reason.
pub(crate) fn state(run: &ReportedRun) -> String {
    let status = run.text("/status").unwrap_or("unknown");
    match run.text("/why") {
        Some(why) => format!("{status}: {why}"),
        None => status.to_owned(),
    }
}

pub(crate) fn is_finished(run: &ReportedRun) -> bool {
    run.text("/status") == Some("finished")
}

fn machine(machine: &Value) -> Option<String> {
    let processors =
        machine["cpus"].as_u64().map(|cpus| format!(", {}", counted(cpus, "processor"))).unwrap_or_default();
    Some(format!("{} {}{processors}", machine["os"].as_str()?, machine["arch"].as_str()?))
}

fn cost(run: &ReportedRun) -> Option<String> {
    // Early versions have the cost in summary.json.
    let cost = Some(&run.manifest["cost"]).filter(|cost| !cost.is_null()).or_else(|| run.summary.get("cost"))?;
    let seconds = cost["seconds"].as_f64().map_or_else(String::new, |s| format!(" in {} s", fixed(s, 1)));
    let questions = format!("{}{seconds}", counted(cost["requests"].as_u64()?, "question"));
    let count = |name: &str| cost[name].as_u64().filter(|count| *count > 0);
    let generated = count("tokens_generated").map_or_else(String::new, |tokens| {
        let drafts = count("tokens_drafted").map(|drafted| (drafted, cost["drafts_accepted"].as_u64().unwrap_or(0)));
        let drafts = drafts.map(|(drafted, accepted)| {
            format!(" ({} of {} drafted tokens accepted)", thousands(accepted), thousands(drafted))
        });
        format!("; {} generated{}", counted(tokens, "token"), drafts.unwrap_or_default())
    });
    let questions = format!("{questions}{generated}");
    let tokens = cost["tokens_computed"].as_u64().zip(cost["tokens_unshared"].as_u64());
    Some(tokens.map_or(questions.clone(), |(computed, all)| format!("{questions}; {}", tokens_text(computed, all))))
}

/// Counts of outcomes, and the label mass.
pub(crate) fn outcomes(prefix: &str, run: &ReportedRun, facts: &RunFacts) -> Table {
    let mut table = Table::new("Outcomes", ["outcome", "results", "share"]).with_id(format!("{prefix}-outcomes"));
    let summed = run.summary["outcomes"].as_object().filter(|counts| !counts.is_empty());
    let counts: Vec<(String, u64)> = match summed {
        Some(counts) => counts.iter().filter_map(|(name, count)| Some((name.clone(), count.as_u64()?))).collect(),
        // An interrupted run has no summary, so rows are counted.
        None => facts.outcome_counts.iter().map(|(name, count)| (name.clone(), *count)).collect(),
    };
    // Saturating, because the summary may have been modified.
    let all: u64 = counts.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count));
    for (name, count) in counts {
        table.push(cells![name, count, number(Some(count as f64 / all.max(1) as f64))]);
    }
    if let Some(mean) = facts.mass.mean() {
        let least = facts.samples.iter().filter_map(|s| s.least_mass).reduce(f64::min).unwrap_or(mean);
        table.note(format!(
            "Label mass: mean {}, minimum {}, over {}.",
            fixed(mean, 3),
            fixed(least, 3),
            counted(facts.mass.total, "answer")
        ));
    }
    table
}

/// Figures by attribute, with their intervals.
pub(crate) fn figures(prefix: &str, attributes: &[Attribute], resampling: &Resampling) -> Option<Table> {
    let mut without: BTreeMap<NoInterval, Vec<String>> = BTreeMap::new();
    let columns = [judged(attributes), "measure", "value", "n", "unit"];
    let mut table = Table::new("Figures", columns).with_id(format!("{prefix}-figures"));
    for attribute in attributes {
        let mut add = |title: &str, estimate: FigureEstimate<Option<f64>>, n: usize, unit: &str| {
            let FigureEstimate { figure: value, interval, no_interval, .. } = estimate;
            if let (Some(_), Some(why)) = (value, no_interval) {
                without.entry(why).or_default().push(format!("{title}{}", in_brackets(&attribute.name)));
            }
            table.push(cells![&attribute.name, title, figures::estimate(value, interval), n, unit]);
        };
        for (kind, measure) in &attribute.found.by_kind {
            let interval = measure.interval(resampling.confidence);
            add(kind.title(), FigureEstimate::new(Some(measure.value()), interval), measure.n(), kind.unit());
        }
        let (pooled, system) = (attribute.found.pooled, attribute.found.system);
        if pooled.figure.n > 0 {
            add("Spearman, pooled", pooled.with_figure(pooled.figure.coefficient), pooled.figure.n, "scores");
        }
        let systems = system.figure.systems;
        if systems > 0 {
            // The correlation of two systems is always ±1.
            let coefficient = system.figure.coefficient.filter(|_| systems > 2);
            add("Spearman of systems", system.with_figure(coefficient), systems, "systems");
        }
    }
    table.note(interval_note(resampling));
    for (why, figures) in without {
        table.note(format!("No interval, because {why}: {}.", figures.join("; ")));
    }
    let used = |kind: MeasureKind| attributes.iter().any(|attribute| attribute.found.by_kind.contains_key(&kind));
    if used(MeasureKind::Spearman) {
        table.note(
            "Spearman per context: mean over samples. Samples with constant gold are omitted; those with constant \
             scores count as 0.",
        );
    }
    let own = attributes.iter().filter(|attribute| !attribute.is_agreement);
    let lower = own.filter(|attribute| attribute.direction == Direction::LowerIsBetter);
    let lower: Vec<&str> = lower.map(|attribute| attribute.name.as_str()).collect();
    if !lower.is_empty() {
        table.note(format!(
            "Lower is better, which agreement with human judgements takes into account: {}.",
            lower.join("; ")
        ));
    }
    if used(MeasureKind::Preference) {
        table.note(
            "Preference accuracy: share of preferred candidates with the best score; a best score shared by k \
             candidates counts as 1/k. Chance is 1/k for k candidates.",
        );
    }
    (!table.rows.is_empty()).then_some(table)
}

/// Column head for the names of figures: attribute, metric, or both.
pub(crate) fn judged<'a>(attributes: impl IntoIterator<Item = &'a Attribute>) -> &'static str {
    let (mut metrics, mut both) = (false, false);
    for attribute in attributes {
        if attribute.metric.is_empty() {
            return "attribute";
        }
        metrics = true;
        both |= !attribute.is_metric_alone();
    }
    match (metrics, both) {
        (false, _) => "attribute",
        (true, false) => "metric",
        (true, true) => "attribute, metric",
    }
}

/// Confidence level without the percent sign: `95`.
pub(crate) fn confidence(resampling: &Resampling) -> String {
    let text = fixed(resampling.confidence * 100.0, 2);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn in_brackets(name: &str) -> String {
    if name.is_empty() { String::new() } else { format!(" ({})", visible_line(name)) }
}

pub(crate) fn interval_note(resampling: &Resampling) -> String {
    format!(
        "In brackets: {}% intervals over whole samples, by the jackknife with Student's t. Shares of verdicts, and \
         means of coefficients that are 1, 0 or −1 in each sample, have intervals by Clopper and Pearson.",
        confidence(resampling)
    )
}

/// The method's tables in the summary.
pub(crate) fn method_tables(prefix: &str, run: &ReportedRun) -> Vec<Table> {
    let texts = |value: &Value| {
        value.as_array().map(|list| list.iter().map(value_text).collect::<Vec<_>>()).unwrap_or_default()
    };
    let found = run.summary["sections"].as_array().map(Vec::as_slice).unwrap_or_default();
    let table = |(number, found): (usize, &Value)| {
        let mut table = Table::new(value_text(&found["title"]), texts(&found["columns"]))
            .with_id(format!("{prefix}-section-{number}"));
        for row in found["rows"].as_array().into_iter().flatten() {
            let mut cells: Vec<Cell> = row.as_array().into_iter().flatten().map(cell).collect();
            // A summary of another version, or a modified one, may have rows with too few cells.
            cells.resize(table.columns.len(), Cell::Missing);
            table.rows.push(cells);
        }
        table.notes = texts(&found["notes"]);
        table
    };
    found.iter().enumerate().map(table).collect()
}

/// A cell of a summary. In version 0.1.0, cells are formatted strings.
fn cell(value: &Value) -> Cell {
    Cell::deserialize(value).unwrap_or_else(|_| Cell::from(value_text(value)))
}

fn value_text(value: &Value) -> String {
    value.as_str().map_or_else(|| if value.is_null() { String::new() } else { value.to_string() }, str::to_owned)
}

//! Comparison of several runs, with tests of their differences.

use probity_analysis::figures::{estimate as with_interval, number, p_value};
use probity_analysis::measures::{MeasureKind, PairedMeasure};
use probity_analysis::plot::ForestEstimate;
use probity_analysis::{Cell, Table, cells};
use std::collections::BTreeMap;

use probity_stats::{Resampling, order};
use serde_json::Value;

use crate::attributes::Attribute;
use crate::plot::{Figure, forest};
use crate::report::{ReportPart, RunReport};
use crate::tables;
use crate::text::{counted, visible_line};

/// With more runs than this, each is compared only with the first.
const ALL_PAIRS: usize = 5;

/// Tables and plots about several runs; empty for one run.
pub(crate) fn compare(parts: &[ReportPart], resampling: &Resampling) -> (Vec<Table>, Vec<Figure>) {
    if parts.len() < 2 {
        return (Vec::new(), Vec::new());
    }
    let mut tables = vec![verdicts(parts), overview(parts)];
    tables.retain(|table| !table.rows.is_empty());
    tables.push(differences(parts, resampling));
    tables.extend(most_different(parts));
    (tables, figures(parts, resampling))
}

/// Maximum number of listed samples on which two runs differ.
const DIFFERENT: usize = 20;

/// Samples on which the first two runs differ most, by the first measure that both have.
fn most_different(parts: &[ReportPart]) -> Option<Table> {
    let [first, second, ..] = parts else { return None };
    if data_unknown(first, second) {
        return None;
    }
    let (shared, _) = shared(first, second);
    let columns = ["sample", tables::judged(&first.attributes), "measure", "A", "B", "A − B"];
    let mut table = Table::new("Samples on which the runs differ most", columns).with_id("different");
    for one in &first.attributes {
        let Some(other) = second.attributes.iter().find(|other| other.name == one.name) else { continue };
        let paired = [MeasureKind::Preference, MeasureKind::Spearman, MeasureKind::Pairwise, MeasureKind::Score]
            .into_iter()
            .find_map(|kind| Some((kind, paired(kind, (first, one), (second, other), &shared)?)));
        let mut gaps: Vec<SampleGap> = match paired {
            Some((kind, paired)) => paired
                .by_sample()
                .map(|(sample, [a, b])| SampleGap { sample, of: kind.title().to_owned(), a, b })
                .collect(),
            None if first.run.method() == second.run.method() && !one.is_agreement => {
                score_gaps((first, one), (second, other), &shared)
            }
            None => continue,
        };
        // Omit differences by rounding alone, which are common between runs of one model.
        gaps.retain(|gap| order(gap.a, gap.b).is_ne());
        gaps.sort_by(|x, y| (y.a - y.b).abs().total_cmp(&(x.a - x.b).abs()).then(x.sample.cmp(&y.sample)));
        for SampleGap { sample, of, a, b } in gaps.into_iter().take(DIFFERENT) {
            let sample = Cell::Sample { run: 0, sample: first.facts.ids.text(sample).to_owned() };
            let numbers = [a, b, a - b].map(|value| number(Some(value)));
            table.push(cells![sample, &one.name, of].into_iter().chain(numbers));
        }
    }
    table.note(format!(
        "A: {}, B: {}. At most {DIFFERENT} samples per attribute. In the page, select a sample to open it.",
        first.run.name(),
        second.run.name()
    ));
    (!table.rows.is_empty()).then_some(table)
}

/// Difference of two runs on a sample.
struct SampleGap {
    /// Number in the first run.
    sample: u32,
    /// Measure that differs.
    of: String,
    a: f64,
    b: f64,
}

/// For each sample, the score with the largest difference between two runs of one method. Used without gold or
/// preferences.
fn score_gaps(
    (first, one): (&ReportPart, &Attribute),
    (second, other): (&ReportPart, &Attribute),
    shared: &BTreeMap<u32, u32>,
) -> Vec<SampleGap> {
    let named = |part: &ReportPart, attribute: &Attribute| -> BTreeMap<(u32, String), f64> {
        attribute
            .scores
            .iter()
            .map(|score| ((score.sample, part.facts.candidates.text(score.candidate).to_owned()), score.score))
            .collect()
    };
    let scores = named(first, one);
    let mut widest: BTreeMap<u32, SampleGap> = BTreeMap::new();
    for ((sample, candidate), b) in named(second, other) {
        let Some(sample) = shared.get(&sample).copied() else { continue };
        let Some(a) = scores.get(&(sample, candidate.clone())).copied() else { continue };
        if widest.get(&sample).is_none_or(|gap| (a - b).abs() > (gap.a - gap.b).abs()) {
            widest.insert(sample, SampleGap { sample, of: format!("score of {candidate}"), a, b });
        }
    }
    widest.into_values().collect()
}

/// Conclusion of each run, and how far to trust it.
pub(crate) fn verdicts(parts: &[ReportPart]) -> Table {
    let title = if parts.len() == 1 { "Conclusion" } else { "Conclusions" };
    let columns = ["run", "about", "verdict", "agreement", "trust", "reason"];
    let mut table = Table::new(title, columns).with_id(RunReport::VERDICTS);
    for part in parts {
        for one in part.run.summary["verdict"].as_array().into_iter().flatten() {
            let texts = ["about", "says", "agreement", "trust", "because"].map(|field| Cell::from(one[field].as_str()));
            table.push(cells![part.run.name()].into_iter().chain(texts));
        }
    }
    table
}

fn overview(parts: &[ReportPart]) -> Table {
    let columns = ["run", "method", "models", "precision", "samples", "answers", "mean label mass", "state"];
    let mut table = Table::new("Runs", columns).with_id("runs");
    for part in parts {
        // A run of `meta` has tables but no samples.
        let has_samples = !part.facts.samples.is_empty();
        let told = || part.run.summary.pointer("/values/mass/mean").and_then(Value::as_f64);
        let others = part.run.manifest["other_models"].as_array().into_iter().flatten();
        let models: Vec<&str> =
            part.run.text("/model/name").into_iter().chain(others.filter_map(|model| model["name"].as_str())).collect();
        table.push(cells![
            part.run.name(),
            part.run.method(),
            (!models.is_empty()).then(|| models.join(", ")),
            part.run.text("/model/precision"),
            (has_samples && part.run.reads_samples()).then_some(part.facts.samples.len()),
            has_samples.then_some(part.answers()),
            number(part.facts.mass.mean().or_else(told)),
            tables::state(&part.run),
        ]);
    }
    table
}

/// A measure of an attribute of two runs; `None` if one of them lacks it, or if its units differ.
fn paired(
    kind: MeasureKind,
    (first, one): (&ReportPart, &Attribute),
    (second, other): (&ReportPart, &Attribute),
    shared: &BTreeMap<u32, u32>,
) -> Option<PairedMeasure> {
    // Scores of different methods have different units.
    let is_comparable = kind != MeasureKind::Score || first.run.method() == second.run.method();
    let measures = one.found.by_kind.get(&kind).zip(other.found.by_kind.get(&kind)).filter(|_| is_comparable);
    measures.map(|(a, b)| PairedMeasure::new(a, b, shared))
}

/// Samples of both runs with equal id and, if both kept their samples, equal content. Also returns the number of
/// samples with equal id but different content.
fn shared(first: &ReportPart, second: &ReportPart) -> (BTreeMap<u32, u32>, usize) {
    let (mut same, mut other) = (BTreeMap::new(), 0);
    for number in second.facts.sample_numbers() {
        let Some(there) = first.facts.ids.find(second.facts.ids.text(number)) else { continue };
        let digests = (first.facts.samples[there as usize].digest, second.facts.samples[number as usize].digest);
        match digests {
            // The id is equal but the content differs, so these are different samples.
            (Some(a), Some(b)) if a != b => other += 1,
            _ => {
                same.insert(number, there);
            }
        }
    }
    (same, other)
}

/// Whether two runs may have different data. Runs that kept no samples are compared by the hashes of their data or
/// documents.
fn data_unknown(first: &ReportPart, second: &ReportPart) -> bool {
    let hashes = |part: &ReportPart| -> Vec<String> {
        let data = &part.run.manifest["arguments_in_force"]["data"];
        let documents = data["documents"].as_array().into_iter().flatten();
        let all = documents.chain([data]).filter_map(|file| file["sha256"].as_str());
        all.map(str::to_owned).collect()
    };
    let kept = first.facts.with_texts > 0 && second.facts.with_texts > 0;
    !kept && (hashes(first).is_empty() || hashes(first) != hashes(second))
}

fn differences(parts: &[ReportPart], resampling: &Resampling) -> Table {
    let judged = tables::judged(parts.iter().flat_map(|part| &part.attributes));
    let columns =
        [judged, "measure", "run A", "run B", "A", "B", "A − B", "p (t)", "p (randomisation)", "shared samples"];
    let mut table = Table::new("Differences between runs", columns).with_id("differences");
    // Grouped by reason, so that many runs need few notes.
    let mut uncompared: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let (scored, unscored): (Vec<&ReportPart>, Vec<&ReportPart>) =
        parts.iter().partition(|part| !part.attributes.is_empty());
    if !unscored.is_empty() {
        let names = unscored.iter().map(|part| part.run.name().to_owned()).collect();
        uncompared.insert("a run has no scores", names);
    }
    for (a, first) in scored.iter().enumerate() {
        // The number of pairs grows quadratically, so all pairs are compared only for a few runs.
        let to = if scored.len() <= ALL_PAIRS || a == 0 { scored.len() } else { 0 };
        for second in scored.iter().take(to).skip(a + 1) {
            if let Err((why, names)) = pair(first, second, resampling, &mut table) {
                uncompared.entry(why).or_default().push(names);
            }
        }
    }
    for (why, names) in uncompared {
        table.note(format!("Not compared, because {why}: {}.", names.join("; ")));
    }
    if table.rows.is_empty() {
        return table;
    }
    if scored.len() > ALL_PAIRS {
        table.note(format!("With more than {ALL_PAIRS} runs, each is compared only with the first."));
    }
    table.note(tables::interval_note(resampling));
    table.note(
        "Both tests are two-sided and paired over shared samples. t: Student's t with the jackknife standard error; \
         undefined if all samples differ equally. Randomisation: share of swaps of the runs' results, sample by \
         sample, that give a difference at least as large; exact for few samples. There is no correction for multiple \
         comparisons.",
    );
    table
}

/// Adds the rows for two runs. If there is nothing to compare, returns the reason and their names.
fn pair(
    first: &ReportPart,
    second: &ReportPart,
    resampling: &Resampling,
    table: &mut Table,
) -> Result<(), (&'static str, String)> {
    let names = format!("{} and {}", first.run.name(), second.run.name());
    if data_unknown(first, second) {
        return Err(("their data may differ, and they did not both keep their samples", names));
    }
    let (shared, changed) = shared(first, second);
    if changed > 0 {
        table.note(format!("{names}: omitted {} with equal id but different content.", counted(changed, "sample")));
    }
    if shared.is_empty() {
        return Err(("they share no sample", names));
    }
    let mut any = false;
    for one in &first.attributes {
        let Some(other) = second.attributes.iter().find(|other| other.name == one.name) else { continue };
        for kind in MeasureKind::ALL {
            let Some(paired) = paired(kind, (first, one), (second, other), &shared) else { continue };
            let Some([a, b]) = paired.values() else { continue };
            let difference = paired.difference(resampling);
            any = true;
            table.push(cells![
                &one.name,
                kind.title(),
                first.run.name(),
                second.run.name(),
                number(Some(a)),
                number(Some(b)),
                with_interval(Some(a - b), difference.and_then(|found| found.interval)),
                p_value(difference.and_then(|found| found.p)),
                p_value(paired.randomisation(resampling)),
                paired.samples(),
            ]);
        }
    }
    if any { Ok(()) } else { Err(("they have no comparable attribute in common", names)) }
}

/// A plot for each attribute and measure that two runs or more have.
fn figures(parts: &[ReportPart], resampling: &Resampling) -> Vec<Figure> {
    let mut names: Vec<&str> = Vec::new();
    for attribute in parts.iter().flat_map(|part| &part.attributes) {
        if !names.contains(&attribute.name.as_str()) {
            names.push(&attribute.name);
        }
    }
    let mut figures = Vec::new();
    for (number, name) in names.iter().enumerate() {
        for of in [MeasureKind::Spearman, MeasureKind::Pairwise, MeasureKind::Preference] {
            let estimates: Vec<ForestEstimate> =
                parts.iter().filter_map(|part| estimate(part, name, of, resampling)).collect();
            if estimates.len() > 1 {
                figures.push(estimates_figure(
                    format!("runs-{number}-{}", of as usize),
                    name,
                    of,
                    &estimates,
                    resampling,
                ));
            }
        }
    }
    figures
}

fn estimate(part: &ReportPart, name: &str, of: MeasureKind, resampling: &Resampling) -> Option<ForestEstimate> {
    let attribute = part.attributes.iter().find(|attribute| attribute.name == name)?;
    let measure = attribute.found.by_kind.get(&of)?;
    let interval = measure.interval(resampling.confidence).ok().map(|i| (i.low, i.high));
    Some(ForestEstimate { name: part.run.name().to_owned(), value: measure.value(), interval })
}

fn estimates_figure(
    id: String,
    name: &str,
    of: MeasureKind,
    estimates: &[ForestEstimate],
    resampling: &Resampling,
) -> Figure {
    // Chance.
    let reference = if of == MeasureKind::Spearman { 0.0 } else { 0.5 };
    let caption = format!(
        "Each run over all its own samples, with {}% intervals over samples. The broken line is chance. See the table \
         for tests of differences: overlapping intervals are inconclusive.",
        tables::confidence(resampling)
    );
    let heading = of.title()[..1].to_uppercase() + &of.title()[1..];
    let title = if name.is_empty() { heading } else { format!("{heading}, {}", visible_line(name)) };
    forest(id, title, caption, of.title(), estimates, reference)
}

//! Comparison of several runs, with tests of their differences.

use probity_analysis::figures::{number, p_value};
use probity_analysis::plot::ForestEstimate;
use probity_analysis::{Cell, Table, cells};
use std::collections::BTreeMap;

use probity_stats::{Resampling, order};
use serde_json::Value;

use crate::measures::{Attribute, Measure, MeasureKind, SamplePart, ratio};
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
        let of = [MeasureKind::Preference, MeasureKind::Spearman, MeasureKind::Pairwise, MeasureKind::Score]
            .into_iter()
            .find(|of| {
                // Scores of different methods have different units.
                let comparable = *of != MeasureKind::Score || first.run.method() == second.run.method();
                comparable && one.measures.contains_key(of) && other.measures.contains_key(of)
            });
        let mut gaps = match of.and_then(|of| Some((of, one.measures.get(&of)?, other.measures.get(&of)?))) {
            Some((of, a, b)) => RunPair::new(a, b, &shared).gaps(of.title()),
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

/// Measures of two runs over their common samples.
struct RunPair {
    first: Vec<SamplePart>,
    second: Vec<SamplePart>,
}

impl RunPair {
    /// `shared` maps samples of the second run to those of the first.
    fn new(first: &Measure, second: &Measure, shared: &BTreeMap<u32, u32>) -> Self {
        let by_sample: BTreeMap<u32, SamplePart> = first.units.iter().map(|unit| (unit.sample, *unit)).collect();
        let both = second.units.iter().filter_map(|unit| Some((*by_sample.get(shared.get(&unit.sample)?)?, *unit)));
        let (first, second) = both.unzip();
        Self { first, second }
    }

    /// Differences of the runs by sample.
    fn gaps(&self, of: &str) -> Vec<SampleGap> {
        let gap = |(a, b): (&SamplePart, &SamplePart)| SampleGap {
            sample: a.sample,
            of: of.to_owned(),
            a: a.sum / a.weight,
            b: b.sum / b.weight,
        };
        self.first.iter().zip(&self.second).map(gap).collect()
    }

    fn kept(&self, kept: &[usize]) -> Option<f64> {
        let over = |units: &[SamplePart]| ratio(kept.iter().map(|i| &units[*i]));
        Some(over(&self.first)? - over(&self.second)?)
    }

    fn swapped(&self, swapped: &[bool]) -> Option<f64> {
        let pick = |turned: bool| {
            let units = self.first.iter().zip(&self.second).zip(swapped);
            ratio(units.map(move |((first, second), swap)| if *swap == turned { first } else { second }))
        };
        Some(pick(false)? - pick(true)?)
    }
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
        for of in MeasureKind::ALL {
            // Scores of different methods have different units.
            if of == MeasureKind::Score && first.run.method() != second.run.method() {
                continue;
            }
            let (Some(a), Some(b)) = (one.measures.get(&of), other.measures.get(&of)) else { continue };
            let pair = RunPair::new(a, b, &shared);
            any |= row(one, of, (first, second), &pair, resampling, table);
        }
    }
    if any { Ok(()) } else { Err(("they have no comparable attribute in common", names)) }
}

fn row(
    attribute: &Attribute,
    of: MeasureKind,
    parts: (&ReportPart, &ReportPart),
    pair: &RunPair,
    resampling: &Resampling,
    table: &mut Table,
) -> bool {
    let units = pair.first.len();
    let all: Vec<usize> = (0..units).collect();
    let over = |units: &[SamplePart]| ratio(all.iter().map(|i| &units[*i]));
    let (Some(a), Some(b)) = (over(&pair.first), over(&pair.second)) else { return false };
    let paired = resampling.paired_difference(units, attribute.range(of), |kept| pair.kept(kept));
    let randomised = resampling.randomisation(units, |swapped| pair.swapped(swapped));
    table.push(cells![
        &attribute.name,
        of.title(),
        parts.0.run.name(),
        parts.1.run.name(),
        number(Some(a)),
        number(Some(b)),
        probity_analysis::figures::estimate(Some(a - b), paired.and_then(|found| found.interval)),
        p_value(paired.and_then(|found| found.p)),
        p_value(randomised),
        units,
    ]);
    true
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
    let measure = attribute.measures.get(&of)?;
    let interval = measure.interval(attribute.range(of), resampling).ok().map(|i| (i.low, i.high));
    Some(ForestEstimate { name: part.run.name().to_owned(), value: measure.value()?, interval })
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
    let title =
        if name.is_empty() { of.heading().to_owned() } else { format!("{}, {}", of.heading(), visible_line(name)) };
    forest(id, title, caption, of.title(), estimates, reference)
}

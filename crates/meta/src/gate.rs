//! Is a run worse than a baseline? Item by item, with what the judge itself is unsure of.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use probity_data::{JsonLines, open_regular, read_scores};
use probity_metrics::Direction;
use probity_stats::{Interval, Range, mean_interval};
use probity_store::{Manifest, RunStatus, StoreError};
use serde::{Deserialize, Serialize};

use crate::MetaError;
use crate::scores::{SCORES, file_of};

/// How sure intervals are.
const CONFIDENCE: f64 = 0.95;

/// Differences that are equal may differ so much, in parts of them, by how they were computed.
const ROUNDING: f64 = 1e-9;

/// What is held against what, and how much may be lost.
#[derive(Debug, Clone, Default)]
pub struct GateOptions {
    /// Only these attributes or metrics; all that both have where none is named.
    pub only: Vec<String>,
    /// Of one run, the candidate that is looked at and that which it is held against.
    pub candidates: Option<(String, String)>,
    /// A loss up to this is none, on the scale of the scores.
    pub tolerance: f64,
    /// A gain up to this is none.
    pub minimum_effect: f64,
    /// Runs are held against each other even where another judge made them, or one is not at its end.
    pub unlike: bool,
}

/// A run, held against a baseline.
#[derive(Debug, Clone, Serialize)]
pub struct Gated {
    /// What became of each attribute or metric that both have.
    pub attributes: Vec<GatedScores>,
    /// Why figures may say less than they seem to: what was set differently, what is unfinished, what was left aside.
    pub caveats: Vec<String>,
}

/// What became of an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GateOutcome {
    /// The interval lies below what may be lost.
    Worse,
    /// It lies above what counts as a gain.
    Better,
    /// It lies between both.
    Same,
    /// It reaches over an end of that.
    Undecided,
    /// The judge's own choice of prompt or order moves the difference by as much as it is.
    Noise,
}

impl GateOutcome {
    /// As it is printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Worse => "worse",
            Self::Better => "better",
            Self::Same => "same",
            Self::Undecided => "undecided",
            Self::Noise => "noise",
        }
    }
}

/// An attribute of both runs, held against each other.
#[derive(Debug, Clone, Serialize)]
pub struct GatedScores {
    /// The attribute or metric.
    pub name: String,
    /// What became of it.
    pub outcome: GateOutcome,
    /// The means over items of the baseline and of the run.
    pub means: [f64; 2],
    /// How much better the run is on average, on the scale of the scores; below 0 where it is worse.
    pub difference: f64,
    /// Its 95 % interval over items; absent where items do not say how they differ.
    pub interval: Option<Interval>,
    /// Items that both have scores of.
    pub items: usize,
    /// Items that one of them alone has a score of.
    pub unpaired: usize,
    /// How far the difference moves with what should not matter; absent where the judge was asked in one way.
    pub noise: Option<f64>,
    /// About how many items would decide it; absent where it is decided, or no number would.
    pub items_to_decide: Option<usize>,
}

/// What a judge says of an item's texts, and the same in each way in which it was asked.
#[derive(Debug, Default, Clone)]
struct ItemScores {
    sum: f64,
    count: usize,
    by_way: BTreeMap<String, (f64, usize)>,
}

impl ItemScores {
    fn mean(&self) -> f64 {
        self.sum / self.count as f64
    }
}

/// The fields of a row that tell in which way a judge was asked.
#[derive(Deserialize)]
struct AskedRow {
    item: String,
    #[serde(default)]
    candidate: Option<String>,
    #[serde(default)]
    attribute: Option<String>,
    #[serde(default)]
    metric: Option<String>,
    #[serde(default)]
    answers: Vec<AskedAnswer>,
}

#[derive(Deserialize)]
struct AskedAnswer {
    #[serde(default)]
    template: Option<String>,
    #[serde(default)]
    score: Option<f64>,
}

/// A comparison of two candidates.
#[derive(Deserialize)]
struct ComparedRow {
    item: String,
    #[serde(default)]
    attribute: Option<String>,
    candidate_i: String,
    candidate_j: String,
    p: Option<f64>,
}

/// The scores of one side by attribute, then by item.
type Side = BTreeMap<String, (Direction, BTreeMap<String, ItemScores>)>;

/// Holds a run against a baseline, or one candidate of a run against another.
///
/// Scores of another model, method or precision are none that these could be held against, and those of an unfinished
/// run are a part of them: an error, unless `options` say otherwise.
pub fn gate(run: &Path, baseline: Option<&Path>, options: &GateOptions) -> Result<Gated, MetaError> {
    let mut caveats = match baseline {
        Some(baseline) => caveats(run, baseline, options.unlike)?,
        None => finished(run, options.unlike)?.into_iter().collect(),
    };
    let (now, before) = match (baseline, &options.candidates) {
        (Some(baseline), None) => (side(run, None)?, side(baseline, None)?),
        (None, Some((new, old))) => match compared(run, new, old)? {
            Some(sides) => sides,
            None => (side(run, Some(new))?, side(run, Some(old))?),
        },
        _ => return Err(MetaError::NoBaseline),
    };
    let mut gated = Vec::new();
    for (name, (direction, items)) in &now {
        let is_asked = options.only.is_empty() || options.only.iter().any(|only| only == name);
        if let Some((_, other)) = before.get(name).filter(|_| is_asked) {
            gated.extend(against(name, *direction, items, other, options));
        }
    }
    let known: Vec<&str> = now.keys().filter(|name| before.contains_key(*name)).map(String::as_str).collect();
    if let Some(unknown) = options.only.iter().find(|only| !known.contains(&only.as_str())) {
        return Err(MetaError::Unknown {
            option: "attribute",
            what: "attribute or metric of both",
            name: unknown.clone(),
            near: String::new(),
            known: known.join(", "),
        });
    }
    if gated.is_empty() {
        return Err(MetaError::NothingPaired { run: run.display().to_string() });
    }
    // The most of them: attributes of one run have the same items, but for those without a score.
    if let Some(least) = gated.iter().filter(|one| one.unpaired > 0).max_by_key(|one| one.unpaired) {
        let all = least.items + least.unpaired;
        caveats.push(format!("{} of {all} items have a score on one side alone, and are left aside", least.unpaired));
    }
    Ok(Gated { attributes: gated, caveats })
}

/// What is known of a run; a table of scores by itself has none.
fn manifest(run: &Path) -> Result<Option<Manifest>, MetaError> {
    match Manifest::read(run) {
        Ok(manifest) => Ok(Some(manifest)),
        Err(StoreError::NoRun { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// A run's caveat or refusal where it is not at its end.
fn finished(run: &Path, unlike: bool) -> Result<Option<String>, MetaError> {
    let Some(Manifest { status, .. }) = manifest(run)? else { return Ok(None) };
    match status {
        RunStatus::Finished => Ok(None),
        _ if unlike => Ok(Some(format!("{} is {}", run.display(), status.name()))),
        _ => Err(MetaError::Unfinished { run: run.display().to_string(), status: status.name() }),
    }
}

/// In what two runs were judged differently, in words.
fn caveats(run: &Path, baseline: &Path, unlike: bool) -> Result<Vec<String>, MetaError> {
    let ends = [finished(run, unlike)?, finished(baseline, unlike)?];
    let (Some(now), Some(before)) = (manifest(run)?, manifest(baseline)?) else {
        return Ok(ends.into_iter().flatten().collect());
    };
    let (mut judges, mut others) = (Vec::new(), Vec::new());
    for found in now.info.differences(&before.info) {
        match found.setting.as_str() {
            "command" | "model" | "model.fingerprint" | "model.precision" | "model.device" | "other_models" => {
                judges.push(found.in_words());
            }
            // Names and folders of the same weights.
            setting if setting.starts_with("model.") => {}
            setting if setting.starts_with("versions.") || setting.starts_with("arguments.method.") => {
                others.push(found.in_words());
            }
            // What was judged.
            _ => {}
        }
    }
    if !judges.is_empty() && !unlike {
        let [run, baseline] = [run, baseline].map(|path| path.display().to_string());
        return Err(MetaError::Unlike { run, baseline, what: judges.join("; ") });
    }
    Ok(ends.into_iter().flatten().chain(judges).chain(others).collect())
}

/// A table's scores; of one candidate alone where it is named.
fn side(folder: &Path, candidate: Option<&str>) -> Result<Side, MetaError> {
    let mut side = Side::new();
    let file = file_of(folder);
    if folder.is_dir() && !file.is_file() {
        return Err(MetaError::NoScores { path: folder.display().to_string(), name: SCORES });
    }
    // A table of a finished run that was changed since gives figures of no run.
    if let Some(run) = manifest(folder)? {
        run.check_files(folder)?;
    }
    let is_asked = |id: Option<&str>| candidate.is_none_or(|candidate| id == Some(candidate));
    let table = read_scores(&file).map_err(MetaError::Scores)?;
    for row in table.rows.iter().filter(|row| is_asked(row.candidate.as_deref())) {
        let Some(score) = row.score else { continue };
        let direction = row.metric.as_deref().map_or(Direction::HigherIsBetter, Direction::of_label);
        let name = name(row.attribute.as_deref(), row.metric.as_deref());
        let (_, items) = side.entry(name).or_insert((direction, BTreeMap::new()));
        let item = items.entry(row.item.clone()).or_default();
        item.sum += score;
        item.count += 1;
    }
    if file.extension().is_none_or(|ending| ending != "jsonl") {
        return Ok(side);
    }
    // Lines that say nothing of it are of tables that were made otherwise; what is wrong with them was told above.
    for (_, row) in JsonLines::<AskedRow, _>::new(open_regular(&file).map_err(MetaError::Scores)?) {
        let Ok(AskedRow { item, candidate, attribute, metric, answers }) = row else { continue };
        let Some((_, items)) = side.get_mut(&name(attribute.as_deref(), metric.as_deref())) else { continue };
        let Some(item) = items.get_mut(&item).filter(|_| is_asked(candidate.as_deref())) else { continue };
        let mut of_row: BTreeMap<String, (f64, usize)> = BTreeMap::new();
        for AskedAnswer { template, score } in answers {
            if let (Some(template), Some(score)) = (template, score) {
                let way = of_row.entry(template).or_default();
                *way = (way.0 + score, way.1 + 1);
            }
        }
        for (template, (sum, count)) in of_row {
            let way = item.by_way.entry(template).or_default();
            *way = (way.0 + sum / count as f64, way.1 + 1);
        }
    }
    Ok(side)
}

/// Of a run that compared, how often one candidate is better than the other, against the other way round; nothing where
/// the run did not compare.
fn compared(run: &Path, new: &str, old: &str) -> Result<Option<(Side, Side)>, MetaError> {
    let file: PathBuf = run.join("comparisons.jsonl");
    if !file.is_file() {
        return Ok(None);
    }
    let (mut now, mut before) = (Side::new(), Side::new());
    for (line, row) in JsonLines::<ComparedRow, _>::new(open_regular(&file).map_err(MetaError::Scores)?) {
        let row = row.map_err(|error| MetaError::Row {
            place: format!("line {line} of {}", file.display()),
            why: error.to_string(),
        })?;
        let (place, p) = match (row.p, &row.candidate_i, &row.candidate_j) {
            (Some(p), i, j) if i == new && j == old => ("shown first", p),
            (Some(p), i, j) if i == old && j == new => ("shown second", 1.0 - p),
            _ => continue,
        };
        for (side, share) in [(&mut now, p), (&mut before, 1.0 - p)] {
            let of = side
                .entry(name(row.attribute.as_deref(), None))
                .or_insert((Direction::HigherIsBetter, BTreeMap::new()));
            let item = of.1.entry(row.item.clone()).or_default();
            item.sum += share;
            item.count += 1;
            let way = item.by_way.entry(place.to_owned()).or_default();
            *way = (way.0 + share, way.1 + 1);
        }
    }
    Ok(Some((now, before)))
}

/// What a judged attribute is called beside its metric.
fn name(attribute: Option<&str>, metric: Option<&str>) -> String {
    let both: Vec<&str> = [metric, attribute].into_iter().flatten().collect();
    if both.is_empty() { "score".to_owned() } else { both.join("/") }
}

fn against(
    name: &str,
    direction: Direction,
    now: &BTreeMap<String, ItemScores>,
    before: &BTreeMap<String, ItemScores>,
    options: &GateOptions,
) -> Option<GatedScores> {
    let both: Vec<(&ItemScores, &ItemScores)> =
        now.iter().filter_map(|(item, here)| Some((here, before.get(item)?))).collect();
    if both.is_empty() {
        return None;
    }
    let average = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let gains: Vec<f64> =
        both.iter().map(|(here, there)| direction.upwards(here.mean()) - direction.upwards(there.mean())).collect();
    let difference = average(&gains);
    let interval = mean_interval(&gains, CONFIDENCE, Range::Unbounded).ok();
    // The difference as each way in which the judge was asked has it, over the items that have all of them.
    let mut ways: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (here, there) in &both {
        for (way, (sum, count)) in &here.by_way {
            if let Some((other, others)) = there.by_way.get(way) {
                let gain = direction.upwards(sum / *count as f64) - direction.upwards(other / *others as f64);
                ways.entry(way).or_default().push(gain);
            }
        }
    }
    let by_way: Vec<f64> =
        ways.values().filter(|gains| gains.len() == both.len()).map(|gains| average(gains)).collect();
    let noise = (by_way.len() > 1).then(|| by_way.iter().map(|gain| (gain - difference).abs()).fold(0.0, f64::max));
    let GateOptions { tolerance, minimum_effect, .. } = options;
    let outcome = match interval {
        // Every item says the same, but for the last digits.
        None if both.len() > 1 && gains.iter().all(|gain| (gain - gains[0]).abs() <= ROUNDING * gain.abs()) => {
            match difference {
                gain if gain < -tolerance => GateOutcome::Worse,
                gain if gain > *minimum_effect => GateOutcome::Better,
                _ => GateOutcome::Same,
            }
        }
        Some(Interval { high, .. }) if high < -tolerance => GateOutcome::Worse,
        Some(Interval { low, .. }) if low > *minimum_effect => GateOutcome::Better,
        Some(Interval { low, high }) if low >= -tolerance && high <= *minimum_effect => GateOutcome::Same,
        _ => GateOutcome::Undecided,
    };
    let is_decided = matches!(outcome, GateOutcome::Worse | GateOutcome::Better);
    let is_noise = is_decided && noise.is_some_and(|noise| noise >= difference.abs());
    let means = |of: fn(&(&ItemScores, &ItemScores)) -> f64| average(&both.iter().map(of).collect::<Vec<_>>());
    Some(GatedScores {
        name: name.to_owned(),
        outcome: if is_noise { GateOutcome::Noise } else { outcome },
        means: [means(|(_, there)| there.mean()), means(|(here, _)| here.mean())],
        difference,
        interval,
        items: both.len(),
        unpaired: now.len() + before.len() - 2 * both.len(),
        noise,
        items_to_decide: interval
            .filter(|_| outcome == GateOutcome::Undecided)
            .and_then(|interval| items_to_decide(difference, interval, both.len(), options)),
    })
}

/// So many items that an interval of the same spread ends before the nearest end of what is neither loss nor gain.
fn items_to_decide(difference: f64, interval: Interval, items: usize, options: &GateOptions) -> Option<usize> {
    let GateOptions { tolerance, minimum_effect, .. } = options;
    let half = (interval.high - interval.low) / 2.0;
    let distance = (difference + tolerance).abs().min((difference - minimum_effect).abs());
    let wanted = items as f64 * (half / distance).powi(2);
    // Beyond that it says that nothing will.
    (wanted.is_finite() && wanted < 1e7).then(|| (wanted.ceil() as usize).max(items + 1))
}

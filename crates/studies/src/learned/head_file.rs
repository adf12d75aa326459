//! The file format of learned heads: one row per attribute, with its limits and cross-validated agreement.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use probity_data::{DataError, JsonLines, LineError, LineProblems, open_regular};
use probity_learn::{ColumnBlock, FeatureTable, FittedHead, MOST};
use probity_lm::ModelDescription;
use probity_lm::text::fixed;
use probity_stats::quantile;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::options::FeatureBlock;
use super::study::WayKind;
use super::subject::{PREFERENCE, SubjectMeasure};
use super::table::SCORES_BLOCK;
use crate::MethodError;
use crate::figures::number;

/// The table of heads.
pub(super) const HEAD: &str = "head";
/// The share of training texts within the stored distance from their mean.
const USUAL_SHARE: f64 = 0.99;

/// A head with its origin and figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct LearnedHead {
    /// The attribute it scores; absent if learned from preferences.
    pub(super) attribute: Option<String>,
    /// The scorer: the head on all blocks, or a baseline that does at least as well.
    pub(super) uses: WayKind,
    /// Whether the head on all blocks beats every baseline.
    pub(super) usable: bool,
    /// Whether features are centred within their context.
    pub(super) centred: bool,
    pub(super) measure: SubjectMeasure,
    /// Cross-validated agreement with held-out labels; `best_without` is that of the best baseline.
    pub(super) agreement: Option<f64>,
    /// The limits of its 95% interval.
    pub(super) interval: Option<[f64; 2]>,
    /// Whether the agreement is above chance.
    pub(super) is_clear: bool,
    pub(super) best_without: Option<f64>,
    pub(super) labels: usize,
    pub(super) contexts: usize,
    #[serde(flatten)]
    pub(super) origin: HeadOrigin,
    /// The features in the order of the coefficients.
    pub(super) blocks: Vec<ColumnBlock>,
    /// The range to which each feature is clipped, after centring if any; empty without clipping.
    pub(super) ends: Vec<[f64; 2]>,
    #[serde(flatten)]
    pub(super) fitted: FittedHead,
    pub(super) profile: Profile,
    /// SHA-256 of the row in hex, with this field empty.
    #[serde(default)]
    pub(super) seal: String,
}

/// The data and the software that a head was learned with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HeadOrigin {
    /// SHA-256 of the samples in hex.
    pub(super) data: String,
    pub(super) model: HeadModel,
    pub(super) prompt: HeadPrompt,
}

/// The model that computed the features.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HeadModel {
    pub(super) name: String,
    pub(super) fingerprint: String,
    pub(super) precision: String,
}

impl HeadModel {
    pub(super) fn from_description(model: &ModelDescription) -> Self {
        let precision = model.precision.as_str().to_owned();
        Self { name: model.name.clone(), fingerprint: model.fingerprint.clone(), precision }
    }
}

/// The prompt for reading candidates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HeadPrompt {
    /// The template's name or path.
    pub(super) template: String,
    /// SHA-256 of its source in hex.
    pub(super) sha256: String,
    /// SHA-256 of the comparison prompt in hex.
    pub(super) comparison_sha256: String,
    pub(super) noun: String,
    /// The number of layers before the states, if they are features.
    pub(super) layer: Option<usize>,
}

/// The distribution of the training texts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Profile {
    /// By column, over the labelled candidates.
    means: Vec<f64>,
    deviations: Vec<f64>,
    /// The 99% quantile of the distance from the mean: the root of the mean over blocks of mean squared standardised
    /// deviations.
    distance: f64,
}

impl Profile {
    pub(super) fn from_table(table: &FeatureTable) -> Self {
        let (rows, columns) = (table.rows(), table.columns());
        let mean = |column: usize| (0..rows).map(|row| table.row(row)[column]).sum::<f64>() / rows as f64;
        let means: Vec<f64> = (0..columns).map(mean).collect();
        let deviation = |column: usize| {
            let squares = (0..rows).map(|row| (table.row(row)[column] - means[column]).powi(2));
            (squares.sum::<f64>() / rows as f64).sqrt()
        };
        let deviations = (0..columns).map(deviation).collect();
        let mut profile = Self { means, deviations, distance: 0.0 };
        let mut distances: Vec<f64> = (0..rows).map(|row| profile.distance_of(table, row)).collect();
        distances.sort_by(f64::total_cmp);
        profile.distance = quantile(&distances, USUAL_SHARE).unwrap_or(0.0);
        profile
    }

    /// The distance of a row from the mean. Constant columns are ignored.
    fn distance_of(&self, table: &FeatureTable, row: usize) -> f64 {
        let mut squares =
            table.row(row).iter().zip(&self.means).zip(&self.deviations).map(|((value, mean), deviation)| {
                if *deviation > 0.0 { ((value - mean) / deviation).powi(2) } else { 0.0 }
            });
        let of_block = |block: &ColumnBlock| {
            let columns = block.columns.len();
            squares.by_ref().take(columns).sum::<f64>() / columns.max(1) as f64
        };
        let blocks: Vec<f64> = table.blocks().iter().map(of_block).collect();
        (blocks.iter().sum::<f64>() / blocks.len().max(1) as f64).sqrt()
    }

    /// The number of rows farther from the mean than 99% of the training texts.
    pub(super) fn far(&self, table: &FeatureTable) -> usize {
        (0..table.rows()).filter(|row| self.distance_of(table, *row) > self.distance).count()
    }
}

impl LearnedHead {
    /// Adds the seal.
    pub(super) fn sealed(mut self) -> Self {
        self.seal.clear();
        let text = serde_json::to_vec(&self).expect("plain values under string keys");
        self.seal = format!("{:x}", Sha256::digest(text));
        self
    }

    /// The attribute, or the name for preferences.
    pub(super) fn name(&self) -> &str {
        self.attribute.as_deref().unwrap_or(PREFERENCE)
    }

    /// The cross-validated agreement as text, if known.
    pub(super) fn agreement_text(&self) -> String {
        let ends = self.interval.map(|[low, high]| format!(" [{}, {}]", fixed(low, 3), fixed(high, 3)));
        format!("{} {}{}", self.measure.title(), number(self.agreement), ends.unwrap_or_default())
    }

    /// The scorer as text.
    pub(super) fn way(&self) -> &'static str {
        match self.uses {
            WayKind::Learnt | WayKind::Block => "the learnt head",
            WayKind::Surface => "surface features",
            WayKind::Length => "length alone",
            WayKind::LogProbability => "the mean log-probability",
        }
    }

    /// Whether it queries the model.
    pub(super) fn asks_model(&self) -> bool {
        self.blocks.iter().any(|block| block.name != FeatureBlock::Surface.name() && block.name != SCORES_BLOCK)
    }

    /// Whether it uses this block.
    pub(super) fn has(&self, block: FeatureBlock) -> bool {
        self.blocks.iter().any(|known| block.has(&known.name))
    }

    /// Why the row is not a valid head, if so.
    fn problem(&self) -> Option<String> {
        let columns: usize = self.blocks.iter().map(|block| block.columns.len()).sum();
        let head = &self.fitted.head;
        let ends = [0, 1].map(|end| self.ends.iter().map(|ends| ends[end]).collect::<Vec<f64>>());
        let lists = [
            ("coefficients", &head.coefficients),
            ("means", &head.means),
            ("profile.means", &self.profile.means),
            ("profile.deviations", &self.profile.deviations),
            ("ends", if self.ends.is_empty() { &head.means } else { &ends[0] }),
        ];
        let names: BTreeSet<(&str, &str)> = self
            .blocks
            .iter()
            .flat_map(|b| b.columns.iter().map(|column| (b.name.as_str(), column.as_str())))
            .collect();
        if columns == 0 || names.len() < columns {
            return Some("`blocks` has no columns or a duplicate one".to_owned());
        }
        if let Some((name, values)) = lists.into_iter().find(|(_, values)| values.len() != columns) {
            return Some(format!("`{name}` has {} values, but `blocks` has {columns} columns", values.len()));
        }
        let is_odd = |value: &f64| !value.is_finite() || value.abs() > MOST;
        if let Some((name, _)) = lists.into_iter().find(|(_, values)| values.iter().any(is_odd)) {
            return Some(format!("`{name}` contains an impossible number"));
        }
        let is_turned = ends[0].iter().zip(&ends[1]).any(|(low, high)| low > high);
        let is_wrong = is_odd(&head.intercept) || ends[1].iter().any(is_odd) || is_turned;
        if is_wrong {
            return Some("`intercept` or `ends` contains an impossible number".to_owned());
        }
        let is_changed = self.clone().sealed().seal != self.seal;
        is_changed.then(|| "the row was changed after `learn` wrote it: the seal does not match".to_owned())
    }
}

/// The file of heads for a path: in a run folder, or the file itself.
pub(super) fn head_path(path: &Path) -> PathBuf {
    if path.is_dir() { path.join(format!("{HEAD}.jsonl")) } else { path.to_owned() }
}

/// Reads heads from a file.
pub(super) fn read_heads(path: &Path) -> Result<Vec<LearnedHead>, MethodError> {
    let file = head_path(path);
    if path.is_dir() && !file.exists() {
        let why = format!("it contains no {HEAD}.jsonl and is thus not a finished run of `learn`");
        return MethodError::refuse(format!("--head {}", path.display()), why, "pass the folder of a run of `learn`");
    }
    let path = file;
    read(&path).map_err(|source| MethodError::Other { option: Some("head"), source: Box::new(source) })
}

fn read(path: &Path) -> Result<Vec<LearnedHead>, DataError> {
    let mut problems = LineProblems::new(path.display().to_string());
    let mut heads: Vec<LearnedHead> = Vec::new();
    for (line, row) in JsonLines::<LearnedHead, _>::new(open_regular(path)?) {
        match row {
            Ok(row) => match row.problem() {
                Some(why) => problems.push(line, LineError::content("", why)),
                None if heads.iter().any(|known| known.name() == row.name()) => {
                    problems.push(line, LineError::content("attribute", "duplicate"));
                }
                None => heads.push(row),
            },
            Err(error) => problems.push(line, error),
        }
    }
    if heads.is_empty() && problems.is_empty() {
        problems.push(1, LineError::content("", "the file contains no heads"));
    }
    if problems.is_empty() { Ok(heads) } else { Err(DataError::Problems(problems)) }
}

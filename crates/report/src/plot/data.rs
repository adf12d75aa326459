//! Plots as data: a method describes them, a run's summary holds them, and a report draws them.

use serde::{Deserialize, Serialize};

use super::{CORRELATES, Figure, bias, forest, heat, lines, map};
use crate::text::visible_line;

/// A plot of a method's figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plot {
    /// Identifies it within its run: letters, digits and hyphens.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// How to read it.
    pub caption: String,
    /// What is drawn.
    #[serde(flatten)]
    pub drawing: Drawing,
}

/// What a [`Plot`] draws.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "drawing", rename_all = "snake_case")]
pub enum Drawing {
    /// Series over one axis.
    Lines {
        /// The horizontal axis.
        x: LineAxis,
        /// The name of the vertical axis.
        y: String,
        /// The lines.
        series: Vec<Series>,
    },
    /// Groups of points in a plane.
    Map {
        /// The groups.
        groups: Vec<Series>,
    },
    /// Correlations between the same names in rows and columns.
    Correlations {
        /// The names.
        names: Vec<String>,
        /// `cells[row][column]`; `None` where it is not defined.
        cells: Vec<Vec<Option<f64>>>,
    },
    /// Estimates with intervals.
    Forest {
        /// The name of the horizontal axis.
        x: String,
        /// One row each.
        rows: Vec<ForestEstimate>,
        /// The value at which a broken line stands.
        reference: f64,
    },
    /// How often the first position wins, before and after it was corrected for position bias.
    PositionBias {
        /// One row for each prompt.
        rows: Vec<BiasEstimate>,
    },
}

/// A point of a line.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// On the horizontal axis; of names, their position.
    pub x: f64,
    /// On the vertical axis.
    pub y: f64,
    /// The ends between which y may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub band: Option<(f64, f64)>,
}

/// A line with its points, from left to right; or a group of points.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its points.
    pub points: Vec<Point>,
}

/// The horizontal axis of lines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LineAxis {
    /// Counts, with the name of what is counted.
    Counts(String),
    /// Names, at the positions 0, 1, 2 …
    Names(Vec<String>),
}

/// An estimate with its interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ForestEstimate {
    /// What it is of.
    pub name: String,
    /// The estimate.
    pub value: f64,
    /// The ends of its interval.
    pub interval: Option<(f64, f64)>,
}

/// The share of comparisons that the first position wins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BiasEstimate {
    /// The prompt.
    pub name: String,
    /// As judged.
    pub before: f64,
    /// After it was corrected.
    pub after: Option<f64>,
}

impl Plot {
    /// The plot of the run whose figures' ids begin with `prefix`; `None` where there is nothing to draw. It may come from
    /// a file that somebody changed.
    pub(crate) fn draw(&self, prefix: &str) -> Option<Figure> {
        let is_id = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if self.id.is_empty() || !self.id.chars().all(is_id) {
            return None;
        }
        let (id, title) = (format!("{prefix}-{}", self.id), visible_line(&self.title));
        let caption = visible_line(&self.caption);
        match &self.drawing {
            Drawing::Lines { x, y, series } => lines(id, title, caption, x, y, series),
            Drawing::Map { groups } => map(id, title, caption, groups),
            Drawing::Correlations { names, cells } => {
                let is_square = cells.len() == names.len() && cells.iter().all(|row| row.len() == names.len());
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                (is_square && !names.is_empty()).then(|| heat(id, title, &caption, &CORRELATES, &names, cells))
            }
            Drawing::Forest { x, rows, reference } => {
                (!rows.is_empty()).then(|| forest(id, title, caption, x, rows, *reference))
            }
            Drawing::PositionBias { rows } => (!rows.is_empty()).then(|| bias(id, title, caption, rows)),
        }
    }
}

//! Plots as data: a method describes them, a run's summary stores them, and a report draws them.

use serde::{Deserialize, Serialize};

/// Number of distinct series styles.
pub const SERIES: usize = 6;

/// A plot of figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plot {
    /// Unique within its run: letters, digits and hyphens.
    pub id: String,
    /// Title.
    pub title: String,
    /// Caption: how to read it.
    pub caption: String,
    /// Contents.
    #[serde(flatten)]
    pub drawing: Drawing,
}

/// Contents of a [`Plot`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "drawing", rename_all = "snake_case")]
pub enum Drawing {
    /// Lines over a common axis.
    Lines {
        /// Horizontal axis.
        x: LineAxis,
        /// Name of the vertical axis.
        y: String,
        /// Lines.
        series: Vec<Series>,
    },
    /// Groups of points in a plane.
    Map {
        /// Groups.
        groups: Vec<Series>,
    },
    /// Correlation matrix.
    Correlations {
        /// Names of rows and columns.
        names: Vec<String>,
        /// `cells[row][column]`; `None` if undefined.
        cells: Vec<Vec<Option<f64>>>,
    },
    /// Estimates with intervals.
    Forest {
        /// Name of the horizontal axis.
        x: String,
        /// One row each.
        rows: Vec<ForestEstimate>,
        /// Position of the broken reference line.
        reference: f64,
    },
    /// Win rate of the first position, before and after correction for position bias.
    PositionBias {
        /// One row for each prompt.
        rows: Vec<BiasEstimate>,
    },
}

/// A point of a line.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Horizontal value; for names, their position.
    pub x: f64,
    /// Vertical value.
    pub y: f64,
    /// Band around y.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub band: Option<(f64, f64)>,
}

/// A line with its points from left to right, or a group of points.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Points.
    pub points: Vec<Point>,
}

/// Horizontal axis of lines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LineAxis {
    /// Counts, with the name of what is counted.
    Counts(String),
    /// Names at the positions 0, 1, 2, …
    Names(Vec<String>),
}

/// An estimate with its interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ForestEstimate {
    /// Name.
    pub name: String,
    /// Value.
    pub value: f64,
    /// Interval.
    pub interval: Option<(f64, f64)>,
}

/// Share of comparisons that the first position wins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BiasEstimate {
    /// Prompt.
    pub name: String,
    /// Before correction.
    pub before: f64,
    /// After correction.
    pub after: Option<f64>,
}

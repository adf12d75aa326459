//! Plots as data: a method describes them, a run's summary holds them, and a report draws them.

use serde::{Deserialize, Serialize};

/// The number of series that look different in a plot.
pub const SERIES: usize = 6;

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
        /// The value of the broken line.
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

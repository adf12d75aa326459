//! Scatter plots of score against gold, with a regression line and its band.

use std::fmt::Write as _;

use maud::html;
use probity_analysis::measures::FittedLine;

use super::{Axis, Figure, WIDTH, unit, x_axis, y_axis};

/// Maximum number of points; more are thinned evenly.
pub(crate) const POINTS: usize = 1500;

/// Draws points (score, gold), with gold on the horizontal axis.
pub(crate) fn scatter(
    id: String,
    title: String,
    caption: String,
    names: (&str, &str),
    points: &[(f64, f64)],
    line: Option<&FittedLine>,
) -> Option<Figure> {
    let ends = |values: Vec<f64>| crate::histogram::range(&values);
    let (low_x, high_x) = ends(points.iter().map(|p| p.1).collect())?;
    let (low_y, high_y) = ends(points.iter().map(|p| p.0).collect())?;
    let (top, bottom, left, right) = (30.0, 290.0, 52.0, WIDTH - 12.0);
    let x = Axis::wide(low_x, high_x, left + 6.0, right - 6.0);
    let y = Axis::wide(low_y, high_y, bottom - 6.0, top + 6.0);
    let every = points.len().div_ceil(POINTS);
    // Clip the line to the axes: it may leave the range of the scores.
    let inside = |value: f64| value.clamp(y.low, y.high);
    let body = html! {
        (y_axis(&y, left, right, names.1))
        @for (score, gold) in points.iter().step_by(every) {
            circle.point cx=(unit(x.at(*gold))) cy=(unit(y.at(*score))) r="2.8" {}
        }
        @if let Some(line) = line {
            @if !line.band.is_empty() {
                path.band d=(band(&x, &y, line)) {}
            }
            line.fit x1=(unit(x.at(low_x))) x2=(unit(x.at(high_x)))
                y1=(unit(y.at(inside(line.intercept + line.slope * low_x)))) y2=(unit(y.at(inside(line.intercept + line.slope * high_x)))) {}
        }
        (x_axis(&x, bottom, names.0))
    };
    Some(Figure { id, title, caption, width: WIDTH, height: bottom + 46.0, body })
}

fn band(x: &Axis, y: &Axis, line: &FittedLine) -> String {
    let mut path = String::new();
    let upper = line.band.iter().map(|(gold, _, high)| (*gold, *high));
    let lower = line.band.iter().rev().map(|(gold, low, _)| (*gold, *low));
    for (index, (gold, score)) in upper.chain(lower).enumerate() {
        let letter = if index == 0 { 'M' } else { 'L' };
        let _ = write!(path, "{letter}{} {}", unit(x.at(gold)), unit(y.at(score.clamp(y.low, y.high))));
    }
    path + "Z"
}

//! Line plots over an axis of numbers or names, with bands.

use std::fmt::Write as _;

use maud::{Markup, html};
use probity_analysis::plot::{LineAxis, Point, SERIES, Series};

use super::{Axis, Figure, WIDTH, label, unit, x_axis, y_axis};
use crate::text::visible_line;

/// A line plot; `None` if no series has a point. At most [`SERIES`] series are drawn, and the caption names the others.
pub(crate) fn lines(
    id: String,
    title: String,
    mut caption: String,
    along: &LineAxis,
    above: &str,
    series: &[Series],
) -> Option<Figure> {
    let mut series: Vec<&Series> = series.iter().filter(|one| !one.points.is_empty()).collect();
    let others: Vec<String> =
        series.split_off(SERIES.min(series.len())).iter().map(|one| visible_line(&one.name)).collect();
    if !others.is_empty() {
        let _ = write!(caption, " Not drawn: {}.", others.join(", "));
    }
    let points = || series.iter().flat_map(|one| &one.points);
    let ends = |values: Vec<f64>| crate::histogram::range(&values);
    let (low_x, high_x) = ends(points().map(|point| point.x).collect())?;
    let heights = points().flat_map(|Point { y, band, .. }| [Some(*y), band.map(|b| b.0), band.map(|b| b.1)]).flatten();
    let (low_y, high_y) = ends(heights.collect())?;
    let (left, right) = (52.0, WIDTH - 12.0);
    let names: Vec<&str> = series.iter().map(|one| one.name.as_str()).collect();
    let (height, head) = legend(&names, left, right);
    let top = height + 26.0;
    let bottom = top + 240.0;
    let x = match along {
        LineAxis::Counts(_) => Axis::whole(low_x, high_x, left + 6.0, right - 6.0),
        LineAxis::Names(_) => Axis { low: low_x - 0.4, high: high_x + 0.4, start: left, end: right, least: 0.0 },
    };
    let y = Axis::wide(low_y, high_y, bottom - 6.0, top + 6.0);
    let path = |points: &mut dyn Iterator<Item = (f64, f64)>| {
        let mut path = String::new();
        for (index, (along, up)) in points.enumerate() {
            let _ = write!(path, "{}{} {}", if index == 0 { 'M' } else { 'L' }, unit(x.at(along)), unit(y.at(up)));
        }
        path
    };
    let body = html! {
        (y_axis(&y, left, right, above))
        (head)
        @for (index, one) in series.iter().enumerate() {
            @let banded: Vec<(f64, (f64, f64))> = one.points.iter().filter_map(|point| Some((point.x, point.band?))).collect();
            @if banded.len() > 1 {
                @let upper = banded.iter().map(|(x, band)| (*x, band.1));
                @let lower = banded.iter().rev().map(|(x, band)| (*x, band.0));
                path class=(format!("series-band s{index}")) d=(format!("{}Z", path(&mut upper.chain(lower)))) {}
            }
        }
        @for (index, one) in series.iter().enumerate() {
            path class=(format!("series s{index}")) d=(path(&mut one.points.iter().map(|point| (point.x, point.y)))) {}
            @for point in &one.points {
                circle class=(format!("mark s{index}")) cx=(unit(x.at(point.x))) cy=(unit(y.at(point.y))) r="2.6" {}
            }
        }
        @match along {
            LineAxis::Counts(name) => (x_axis(&x, bottom, name)),
            LineAxis::Names(names) => {
                line.axis x1=(unit(left)) x2=(unit(right)) y1=(unit(bottom)) y2=(unit(bottom)) {}
                @for (at, name) in names.iter().enumerate() {
                    text.tick x=(unit(x.at(at as f64))) y=(unit(bottom + 17.0)) text-anchor="middle" { (label(name, 14)) }
                }
            }
        }
    };
    Some(Figure { id, title, caption, width: WIDTH, height: bottom + 46.0, body })
}

/// Legend of the series, and its height.
pub(super) fn legend(names: &[&str], left: f64, right: f64) -> (f64, Markup) {
    let place = |index: usize| {
        let (row, column) = (index / LEGEND_COLUMNS, index % LEGEND_COLUMNS);
        (left + column as f64 * (right - left) / LEGEND_COLUMNS as f64, 12.0 + row as f64 * LEGEND_ROW)
    };
    let head = html! {
        @for (index, name) in names.iter().enumerate() {
            @let (at, height) = place(index);
            line class=(format!("series s{index}")) x1=(unit(at)) x2=(unit(at + 20.0)) y1=(unit(height - 4.0)) y2=(unit(height - 4.0)) {}
            text.tick x=(unit(at + 26.0)) y=(unit(height)) { (label(name, 17)) }
        }
    };
    (names.len().div_ceil(LEGEND_COLUMNS) as f64 * LEGEND_ROW, head)
}

const LEGEND_COLUMNS: usize = 3;
const LEGEND_ROW: f64 = 18.0;

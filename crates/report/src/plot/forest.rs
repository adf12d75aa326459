//! Forest plots: estimates with intervals in rows.

use maud::html;
use probity_analysis::plot::ForestEstimate;

use super::{Axis, Figure, WIDTH, label, unit, x_axis};
use crate::text::fixed;

/// A plot with one row for each estimate, and a broken line at `reference` if the axis includes it.
pub(crate) fn forest(
    id: String,
    title: String,
    caption: String,
    x_name: &str,
    rows: &[ForestEstimate],
    reference: f64,
) -> Figure {
    let row = 36.0;
    let (left, right, top) = (16.0, WIDTH - 16.0, 6.0);
    let bottom = top + row * rows.len() as f64 + 6.0;
    let ends = |f: fn(f64, f64) -> f64, start: f64| {
        rows.iter().flat_map(|r| r.interval.map_or([r.value; 2], |(l, h)| [l, h])).fold(start, f)
    };
    let (low, high) = (ends(f64::min, reference), ends(f64::max, reference));
    let x = Axis::wide(low, high, left, right);
    let body = html! {
        @for (value, _) in x.ticks() {
            line.grid x1=(unit(x.at(value))) x2=(unit(x.at(value))) y1=(unit(top)) y2=(unit(bottom)) {}
        }
        line.refer x1=(unit(x.at(reference))) x2=(unit(x.at(reference))) y1=(unit(top)) y2=(unit(bottom)) {}
        @for (index, estimate) in rows.iter().enumerate() {
            @let y = top + row * (index as f64 + 0.5) + 8.0;
            text.tick x=(unit(left)) y=(unit(y - 11.0)) { (label(&estimate.name, 48)) }
            text.tick x=(unit(right)) y=(unit(y - 11.0)) text-anchor="end" { (fixed(estimate.value, 3)) }
            @if let Some((low, high)) = estimate.interval {
                line.interval x1=(unit(x.at(low))) x2=(unit(x.at(high))) y1=(unit(y)) y2=(unit(y)) {}
                line.interval x1=(unit(x.at(low))) x2=(unit(x.at(low))) y1=(unit(y - 4.0)) y2=(unit(y + 4.0)) {}
                line.interval x1=(unit(x.at(high))) x2=(unit(x.at(high))) y1=(unit(y - 4.0)) y2=(unit(y + 4.0)) {}
            }
            circle.dot cx=(unit(x.at(estimate.value))) cy=(unit(y)) r="4.5" {}
        }
        (x_axis(&x, bottom, x_name))
    };
    Figure { id, title, caption, width: WIDTH, height: bottom + 44.0, body }
}

//! Win rate of the first position, before and after debiasing.

use maud::html;
use probity_analysis::plot::BiasEstimate;

use super::{Axis, Figure, WIDTH, label, unit, x_axis};
use crate::text::fixed;

/// A plot with one row for each estimate.
pub(crate) fn bias(id: String, title: String, caption: String, rows: &[BiasEstimate]) -> Figure {
    let row = 34.0;
    let (left, right, top) = (16.0, WIDTH - 16.0, 26.0);
    let bottom = top + row * rows.len() as f64 + 6.0;
    let x = Axis { low: 0.0, high: 1.0, start: left, end: right, least: 0.0 };
    let body = html! {
        circle.before cx="22" cy="11" r="5" {}
        text.tick x="32" y="15" { "as judged" }
        circle.after cx="106" cy="11" r="5" {}
        text.tick x="116" y="15" { "debiased" }
        line.refer x1=(unit(x.at(0.5))) x2=(unit(x.at(0.5))) y1=(unit(top)) y2=(unit(bottom)) {}
        @for (index, BiasEstimate { name, before, after }) in rows.iter().enumerate() {
            @let y = top + row * (index as f64 + 0.5) + 7.0;
            text.tick x=(unit(left)) y=(unit(y - 10.0)) { (label(name, 40)) }
            @if let Some(after) = after {
                line.way x1=(unit(x.at(*before))) x2=(unit(x.at(*after))) y1=(unit(y)) y2=(unit(y)) {}
                circle.after cx=(unit(x.at(*after))) cy=(unit(y)) r="5.5" { title { "debiased " (fixed(*after, 3)) } }
            }
            circle.before cx=(unit(x.at(*before))) cy=(unit(y)) r="5.5" { title { "as judged " (fixed(*before, 3)) } }
            text.tick x=(unit(right)) y=(unit(y - 10.0)) text-anchor="end" { (bias_change(*before, *after)) }
        }
        (x_axis(&x, bottom, "share of comparisons won by the first position, P(A)"))
    };
    Figure { id, title, caption, width: WIDTH, height: bottom + 44.0, body }
}

fn bias_change(before: f64, after: Option<f64>) -> String {
    after.map_or_else(|| fixed(before, 3), |after| format!("{} → {}", fixed(before, 3), fixed(after, 3)))
}

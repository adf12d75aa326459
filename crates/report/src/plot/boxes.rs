//! Box plots of scores by candidate.

use maud::html;

use super::{Axis, Figure, WIDTH, label, unit, x_axis};

/// Distribution of a candidate's scores.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Spread {
    pub(crate) name: String,
    /// Quantiles at 5%, 25%, 50%, 75% and 95%.
    pub(crate) quantiles: [f64; 5],
    pub(crate) mean: f64,
    pub(crate) n: usize,
}

/// A plot with one row for each candidate.
pub(crate) fn boxes(id: String, title: String, caption: String, x_name: &str, spreads: &[Spread]) -> Figure {
    let row = 20.0;
    let top = 8.0;
    let longest = spreads.iter().map(|s| label(&s.name, 18).chars().count()).max().unwrap_or(0) as f64;
    let (left, right) = (longest * 6.8 + 14.0, WIDTH - 44.0);
    let bottom = top + row * spreads.len() as f64 + 4.0;
    let low = spreads.iter().map(|s| s.quantiles[0].min(s.mean)).fold(f64::INFINITY, f64::min);
    let high = spreads.iter().map(|s| s.quantiles[4].max(s.mean)).fold(f64::NEG_INFINITY, f64::max);
    let x = Axis::wide(low, high, left, right);
    let body = html! {
        @for (value, _) in x.ticks() {
            line.grid x1=(unit(x.at(value))) x2=(unit(x.at(value))) y1=(unit(top)) y2=(unit(bottom)) {}
        }
        @for (index, spread) in spreads.iter().enumerate() {
            @let y = top + row * (index as f64 + 0.5);
            @let [a, b, c, d, e] = spread.quantiles.map(|q| x.at(q));
            text.tick x=(unit(left - 8.0)) y=(unit(y + 4.0)) text-anchor="end" { (label(&spread.name, 18)) }
            line.whisker x1=(unit(a)) x2=(unit(e)) y1=(unit(y)) y2=(unit(y)) {}
            rect.box x=(unit(b)) y=(unit(y - 5.5)) width=(unit((d - b).max(0.5))) height="11" {}
            line.median x1=(unit(c)) x2=(unit(c)) y1=(unit(y - 5.5)) y2=(unit(y + 5.5)) {}
            circle.dot cx=(unit(x.at(spread.mean))) cy=(unit(y)) r="3" {}
            text.tick x=(unit(WIDTH - 2.0)) y=(unit(y + 4.0)) text-anchor="end" { "n=" (spread.n) }
        }
        (x_axis(&x, bottom, x_name))
    };
    Figure { id, title, caption, width: WIDTH, height: bottom + 44.0, body }
}

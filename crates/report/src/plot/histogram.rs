//! Counts as bars.

use maud::html;

use super::{Axis, Figure, WIDTH, unit, x_axis, y_axis};
use crate::histogram::Histogram;
use crate::text::fixed;
use crate::text::thousands;

/// Texts of a histogram.
pub(crate) struct Bars<'a> {
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) caption: String,
    /// The horizontal axis, with its unit.
    pub(crate) x: &'a str,
    /// What is counted.
    pub(crate) y: &'a str,
    /// Position of a broken reference line.
    pub(crate) reference: Option<f64>,
}

/// A histogram with a mark at the mean.
pub(crate) fn histogram(histogram: &Histogram, words: Bars<'_>) -> Figure {
    let (top, bottom, left, right) = (34.0, 210.0, 52.0, WIDTH - 12.0);
    let most = histogram.counts.iter().copied().max().unwrap_or(0).max(1);
    let x = Axis { low: histogram.low, high: histogram.high, start: left, end: right, least: 0.0 };
    // Counts need integer ticks.
    let y = Axis { low: 0.0, high: most as f64, start: bottom, end: top, least: 1.0 };
    let bars = histogram.counts.iter().enumerate().filter(|(_, count)| **count > 0).map(|(bin, count)| {
        let (from, to) = (histogram.edge(bin), histogram.edge(bin + 1));
        let told = format!("{} to {}: {}", fixed(from, 3), fixed(to, 3), thousands(*count));
        (x.at(from) + 0.75, x.at(to) - x.at(from) - 1.5, y.at(*count as f64), told)
    });
    let body = html! {
        (y_axis(&y, left, right, words.y))
        @for (start, width, height, told) in bars {
            rect.bar x=(unit(start)) y=(unit(height)) width=(unit(width.max(0.5))) height=(unit((bottom - height).max(0.75))) { title { (told) } }
        }
        @if let Some(reference) = words.reference {
            line.refer x1=(unit(x.at(reference))) x2=(unit(x.at(reference))) y1=(unit(top)) y2=(unit(bottom)) {}
        }
        @if let Some(mean) = histogram.mean() {
            line.mean x1=(unit(x.at(mean))) x2=(unit(x.at(mean))) y1=(unit(top - 6.0)) y2=(unit(bottom)) {}
            text.mean-text x=(unit(x.at(mean).clamp(left + 34.0, right - 34.0))) y=(unit(top - 11.0)) text-anchor="middle" { "mean " (fixed(mean, 3)) }
        }
        (x_axis(&x, bottom, words.x))
    };
    Figure { id: words.id, title: words.title, caption: words.caption, width: WIDTH, height: bottom + 46.0, body }
}

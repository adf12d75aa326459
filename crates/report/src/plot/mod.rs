//! Plots as SVG, readable at small sizes. Inline plots use the page's style; files contain their own.
//!
//! Numbers are rounded to hundredths when written, so that equal figures give equal bytes.

mod bias;
mod boxes;
mod draw;
mod forest;
mod heat;
mod histogram;
mod lines;
mod map;
pub(crate) mod palette;
mod scatter;

use maud::{Markup, PreEscaped, html};
use probity_lm::text::fixed;

pub(crate) use bias::bias;
pub(crate) use boxes::{Spread, boxes};
pub(crate) use draw::draw;
pub(crate) use forest::forest;
pub(crate) use heat::{BEATS, CORRELATES, heat};
pub(crate) use histogram::{Bars, histogram};
pub(crate) use lines::lines;
pub(crate) use map::map;
pub use palette::theme_style;
pub(crate) use scatter::{POINTS as POINTS_DRAWN, scatter};

use crate::text::{shortened, visible_line};

/// A drawing with its texts.
#[derive(Debug, Clone)]
pub struct Figure {
    /// Name of its file and anchor: lower-case letters, digits and hyphens.
    pub id: String,
    /// Title.
    pub title: String,
    /// Caption, with n and the kind of interval.
    pub caption: String,
    pub(crate) width: f64,
    pub(crate) height: f64,
    pub(crate) body: Markup,
}

impl Figure {
    /// The image for the page, with its size and an accessible name and description.
    pub(crate) fn inline(&self) -> Markup {
        let (title, desc) = (format!("{}-t", self.id), format!("{}-d", self.id));
        let labelled = format!("{title} {desc}");
        html! {
            svg.plot viewBox=(self.view_box()) width=(unit(self.width)) height=(unit(self.height)) role="img" aria-labelledby=(labelled) {
                title id=(title) { (visible_line(&self.title)) }
                desc id=(desc) { (visible_line(&self.caption)) }
                (self.body)
            }
        }
    }

    /// A complete SVG file, light or dark as the system's theme.
    pub fn standalone(&self) -> String {
        let style = palette::standalone_style();
        let svg = html! {
            svg xmlns="http://www.w3.org/2000/svg" viewBox=(self.view_box()) width=(unit(self.width)) height=(unit(self.height)) role="img" aria-labelledby="t d" {
                title id="t" { (visible_line(&self.title)) }
                desc id="d" { (visible_line(&self.caption)) }
                style { (PreEscaped(style)) }
                rect.paper width="100%" height="100%" {}
                (self.body)
            }
        };
        format!("{}\n", svg.into_string())
    }

    fn view_box(&self) -> String {
        format!("0 0 {} {}", unit(self.width), unit(self.height))
    }
}

/// Default width: one plot on a phone, two side by side on a desktop.
pub(crate) const WIDTH: f64 = 460.0;

/// A length, rounded to hundredths.
pub(crate) fn unit(value: f64) -> String {
    fixed(value, 2).trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A linear axis from data to drawing coordinates.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Axis {
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) start: f64,
    pub(crate) end: f64,
    /// Minimum distance of ticks.
    pub(crate) least: f64,
}

impl Axis {
    /// Extends the range to whole ticks.
    pub(crate) fn wide(low: f64, high: f64, start: f64, end: f64) -> Self {
        Self { low, high, start, end, least: 0.0 }.widened()
    }

    /// Like [`Self::wide`], for counts: ticks are integers.
    pub(crate) fn whole(low: f64, high: f64, start: f64, end: f64) -> Self {
        Self { low, high, start, end, least: 1.0 }.widened()
    }

    fn widened(self) -> Self {
        let half = 0.5_f64.max(self.least);
        let (low, high) =
            if self.low == self.high { (self.low - half, self.high + half) } else { (self.low, self.high) };
        let step = step(low, high).max(self.least);
        // A tolerance for rounding, so that an end on a tick does not add another.
        Self { low: (low / step + 1e-9).floor() * step, high: (high / step - 1e-9).ceil() * step, ..self }
    }

    pub(crate) fn at(&self, value: f64) -> f64 {
        self.start + (self.end - self.start) * (value - self.low) / (self.high - self.low)
    }

    /// Round values in the range, with as many decimals as needed.
    pub(crate) fn ticks(&self) -> Vec<(f64, String)> {
        let step = step(self.low, self.high).max(self.least);
        let decimals = (-(step.log10() + 1e-9).floor()).clamp(0.0, 8.0) as usize;
        let first = (self.low / step - 1e-9).ceil() as i64;
        let last = (self.high / step + 1e-9).floor() as i64;
        (first..=last).map(|k| k as f64 * step).map(|value| (value, crate::text::fixed(value, decimals))).collect()
    }
}

/// Tick distance: 1, 2 or 5 times a power of ten, for four to nine ticks.
fn step(low: f64, high: f64) -> f64 {
    let rough = (high - low) / 5.0;
    let power = 10.0_f64.powf(rough.log10().floor());
    let factor = match rough / power {
        f if f < 1.5 => 1.0,
        f if f < 3.5 => 2.0,
        f if f < 7.5 => 5.0,
        _ => 10.0,
    };
    factor * power
}

/// Horizontal axis at `bottom`, with line, ticks and name.
pub(crate) fn x_axis(axis: &Axis, bottom: f64, name: &str) -> Markup {
    html! {
        line.axis x1=(unit(axis.start)) x2=(unit(axis.end)) y1=(unit(bottom)) y2=(unit(bottom)) {}
        @for (value, tick) in axis.ticks() {
            line.axis x1=(unit(axis.at(value))) x2=(unit(axis.at(value))) y1=(unit(bottom)) y2=(unit(bottom + 4.0)) {}
            text.tick x=(unit(axis.at(value))) y=(unit(bottom + 17.0)) text-anchor="middle" { (tick) }
        }
        text.name x=(unit(f64::midpoint(axis.start, axis.end))) y=(unit(bottom + 36.0)) text-anchor="middle" { (label(name, 70)) }
    }
}

/// Horizontal grid lines with values on the left, and the axis name above.
pub(crate) fn y_axis(axis: &Axis, left: f64, right: f64, name: &str) -> Markup {
    html! {
        @for (value, tick) in axis.ticks() {
            line.grid x1=(unit(left)) x2=(unit(right)) y1=(unit(axis.at(value))) y2=(unit(axis.at(value))) {}
            text.tick x=(unit(left - 7.0)) y=(unit(axis.at(value) + 4.0)) text-anchor="end" { (tick) }
        }
        text.name x="2" y=(unit(axis.end.min(axis.start) - 12.0)) { (label(name, 70)) }
    }
}

/// A label from data: one line, sanitised and shortened.
pub(crate) fn label(text: &str, most: usize) -> String {
    shortened(&visible_line(text), most)
}

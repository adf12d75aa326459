//! Plots as SVG, drawn to be read small: inline in the page they take their colours from its style, as files they bring
//! it along.
//!
//! Every number is rounded to a hundredth of a unit when it is written, so the same figures give the same bytes.

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

/// A drawing with the words that go with it.
#[derive(Debug, Clone)]
pub struct Figure {
    /// Names the file and the anchor: lower-case letters, digits and hyphens.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// What one sees, with n and what intervals are.
    pub caption: String,
    pub(crate) width: f64,
    pub(crate) height: f64,
    pub(crate) body: Markup,
}

impl Figure {
    /// For the page: a sized image with a name and a description for those who do not see it.
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

    /// A file by itself, light or dark as the reader's system is.
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

/// The usual width: on a phone it fills the page, on a desk two stand side by side.
pub(crate) const WIDTH: f64 = 460.0;

/// A length, to a hundredth.
pub(crate) fn unit(value: f64) -> String {
    fixed(value, 2).trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A straight axis from data to the drawing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Axis {
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) start: f64,
    pub(crate) end: f64,
    /// Ticks are no closer than this.
    pub(crate) least: f64,
}

impl Axis {
    /// The range widened to whole ticks.
    pub(crate) fn wide(low: f64, high: f64, start: f64, end: f64) -> Self {
        Self { low, high, start, end, least: 0.0 }.widened()
    }

    /// The same of counts, between which nothing lies.
    pub(crate) fn whole(low: f64, high: f64, start: f64, end: f64) -> Self {
        Self { low, high, start, end, least: 1.0 }.widened()
    }

    fn widened(self) -> Self {
        let half = 0.5_f64.max(self.least);
        let (low, high) =
            if self.low == self.high { (self.low - half, self.high + half) } else { (self.low, self.high) };
        let step = step(low, high).max(self.least);
        // A little of a tick is given way: an end that lies on a tick but for rounding would else add one more.
        Self { low: (low / step + 1e-9).floor() * step, high: (high / step - 1e-9).ceil() * step, ..self }
    }

    pub(crate) fn at(&self, value: f64) -> f64 {
        self.start + (self.end - self.start) * (value - self.low) / (self.high - self.low)
    }

    /// Round values inside the range, with as many decimals as they need.
    pub(crate) fn ticks(&self) -> Vec<(f64, String)> {
        let step = step(self.low, self.high).max(self.least);
        let decimals = (-(step.log10() + 1e-9).floor()).clamp(0.0, 8.0) as usize;
        let first = (self.low / step - 1e-9).ceil() as i64;
        let last = (self.high / step + 1e-9).floor() as i64;
        (first..=last).map(|k| k as f64 * step).map(|value| (value, crate::text::fixed(value, decimals))).collect()
    }
}

/// 1, 2 or 5 times a power of ten, for four to nine ticks.
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

/// The horizontal axis below a plot that ends at `bottom`: line, ticks, name.
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

/// Horizontal lines with their values at the left, and the axis's name above them.
pub(crate) fn y_axis(axis: &Axis, left: f64, right: f64, name: &str) -> Markup {
    html! {
        @for (value, tick) in axis.ticks() {
            line.grid x1=(unit(left)) x2=(unit(right)) y1=(unit(axis.at(value))) y2=(unit(axis.at(value))) {}
            text.tick x=(unit(left - 7.0)) y=(unit(axis.at(value) + 4.0)) text-anchor="end" { (tick) }
        }
        text.name x="2" y=(unit(axis.end.min(axis.start) - 12.0)) { (label(name, 70)) }
    }
}

/// A label from data: one line, nothing hostile, not longer than there is room for.
pub(crate) fn label(text: &str, most: usize) -> String {
    shortened(&visible_line(text), most)
}

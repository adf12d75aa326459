//! Matrices of probabilities or correlations as coloured cells with numbers.

use maud::html;

use super::{Figure, label, palette, unit};
use crate::text::fixed;

/// Colour scale and wording of a matrix.
pub(crate) struct Scale {
    /// Neutral value.
    middle: f64,
    /// Possible distances from the neutral value to the ends of the scale. The smallest that covers all cells is used
    /// and labelled.
    reaches: &'static [f64],
    /// Text between two names in a cell's tooltip.
    between: &'static str,
    /// Meaning of the ends.
    ends: [&'static str; 2],
}

/// P(row beats column).
pub(crate) const BEATS: Scale =
    Scale { middle: 0.5, reaches: &[0.05, 0.1, 0.25, 0.5], between: "beats", ends: [" row loses", "row wins "] };

/// Correlation coefficients.
pub(crate) const CORRELATES: Scale =
    Scale { middle: 0.0, reaches: &[0.25, 0.5, 1.0], between: "with", ends: [" negative", "positive "] };

/// Draws `cells[row][column]`, where `None` is a missing number. Rows and columns have the same names in the same
/// order.
pub(crate) fn heat(
    id: String,
    title: String,
    caption: &str,
    scale: &Scale,
    names: &[&str],
    cells: &[Vec<Option<f64>>],
) -> Figure {
    let n = names.len();
    let longest = names.iter().map(|name| label(name, 16).chars().count()).max().unwrap_or(0) as f64;
    let left = longest * 6.6 + 12.0;
    // Few systems get large cells; many get small cells without numbers.
    let side = (420.0 / n as f64).clamp(11.0, 46.0);
    let numbers = side >= 22.0;
    let every = if side >= 11.5 { 1 } else { 2 };
    let top = longest.min(16.0) * 5.2 + 14.0;
    let size = side * n as f64;
    let furthest = cells.iter().flatten().flatten().map(|p| (p - scale.middle).abs()).fold(0.0, f64::max);
    let widest = scale.reaches.last().copied().unwrap_or(1.0);
    let reach = scale.reaches.iter().copied().find(|reach| furthest <= *reach).unwrap_or(widest);
    let decimals = if reach <= 0.05 { 3 } else { 2 };
    let centre = |index: usize| index as f64 * side + side / 2.0;
    let body = html! {
        @for (row, name) in names.iter().enumerate().filter(|(row, _)| row % every == 0) {
            text.tick x=(unit(left - 6.0)) y=(unit(top + centre(row) + 4.0)) text-anchor="end" { (label(name, 16)) }
            @let (x, y) = (left + centre(row) + 4.0, top - 6.0);
            text.tick x=(unit(x)) y=(unit(y)) transform=(format!("rotate(-50 {} \
                {})", unit(x), unit(y))) { (label(name, 16)) }
        }
        @for (row, values) in cells.iter().enumerate() {
            @for (column, value) in values.iter().enumerate() {
                @let (x, y) = (left + column as f64 * side, top + row as f64 * side);
                @if let Some(p) = value {
                    @let step = palette::step(0.5 + (p - scale.middle) / (2.0 * reach));
                    rect class=(format!("h{step}")) x=(unit(x)) y=(unit(y)) width=(unit(side - 1.0)) height=(unit(side - 1.0)) {
                        title { (label(names[row], 40)) " " (scale.between) " " (label(names[column], 40)) ": " (fixed(*p, 3)) }
                    }
                    @if numbers {
                        text class=(format!("cell i{step}")) x=(unit(x + side / 2.0 - 0.5)) y=(unit(y + side / 2.0 + 3.0)) text-anchor="middle" { (short(*p, decimals)) }
                    }
                } @else {
                    rect.empty x=(unit(x)) y=(unit(y)) width=(unit(side - 1.0)) height=(unit(side - 1.0)) {}
                }
            }
        }
        (legend(left, top + size + 16.0, size.max(200.0), scale, reach))
    };
    let [low, high] = [scale.middle - reach, scale.middle + reach].map(|end| fixed(end, 2).replace('-', "−"));
    let caption = format!("{caption} The colour scale ranges from {low} to {high}.");
    let width = (left + size.max(200.0)).max(left + size + longest.min(16.0) * 4.5) + 8.0;
    Figure { id, title, caption, width, height: top + size + 58.0, body }
}

/// `.53`, `−.2`, `1.0`.
fn short(p: f64, decimals: usize) -> String {
    let text = fixed(p.abs(), decimals);
    let sign = if fixed(p, decimals).starts_with('-') { "−" } else { "" };
    format!("{sign}{}", text.strip_prefix('0').unwrap_or("1.0"))
}

/// Legend with the values at the ends and the middle.
fn legend(left: f64, top: f64, width: f64, scale: &Scale, reach: f64) -> maud::Markup {
    let step = width / palette::STEPS as f64;
    let end = |value: f64| fixed(value, if value == scale.middle { 1 } else { 2 }).replace('-', "−");
    html! {
        @for k in 0..palette::STEPS {
            rect class=(format!("h{k}")) x=(unit(left + k as f64 * step)) y=(unit(top)) width=(unit(step + 0.3)) height="9" {}
        }
        text.tick x=(unit(left)) y=(unit(top + 24.0)) { (end(scale.middle - reach)) (scale.ends[0]) }
        text.tick x=(unit(left + width / 2.0)) y=(unit(top + 24.0)) text-anchor="middle" { (end(scale.middle)) }
        text.tick x=(unit(left + width)) y=(unit(top + 24.0)) text-anchor="end" { (scale.ends[1]) (end(scale.middle + reach)) }
    }
}

//! A matrix of probabilities as coloured cells with their numbers.

use maud::html;

use super::{Figure, label, palette, unit};
use crate::table::fixed;

/// How far from 0.5 the colours reach: the least of these that holds all cells, so that small differences are seen as
/// such, and named.
const REACHES: [f64; 4] = [0.05, 0.1, 0.25, 0.5];

/// `cells[row][column]`: P(row beats column); `None` where the two never met. Rows and columns carry the same names in
/// the same order.
pub(crate) fn heat(id: String, title: String, caption: &str, names: &[&str], cells: &[Vec<Option<f64>>]) -> Figure {
    let n = names.len();
    let longest = names.iter().map(|name| label(name, 16).chars().count()).max().unwrap_or(0) as f64;
    let left = longest * 6.6 + 12.0;
    // Few systems get large cells; many get small ones without numbers.
    let side = (420.0 / n as f64).clamp(11.0, 46.0);
    let numbers = side >= 22.0;
    let every = if side >= 11.5 { 1 } else { 2 };
    let top = longest.min(16.0) * 5.2 + 14.0;
    let size = side * n as f64;
    let furthest = cells.iter().flatten().flatten().map(|p| (p - 0.5).abs()).fold(0.0, f64::max);
    let reach = REACHES.into_iter().find(|reach| furthest <= *reach).unwrap_or(0.5);
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
                    @let step = palette::step(0.5 + (p - 0.5) / (2.0 * reach));
                    rect class=(format!("h{step}")) x=(unit(x)) y=(unit(y)) width=(unit(side - 1.0)) height=(unit(side - 1.0)) {
                        title { (label(names[row], 40)) " beats " (label(names[column], 40)) ": " (fixed(*p, 3)) }
                    }
                    @if numbers {
                        text class=(format!("cell i{step}")) x=(unit(x + side / 2.0 - 0.5)) y=(unit(y + side / 2.0 + 3.0)) text-anchor="middle" { (short(*p, decimals)) }
                    }
                } @else {
                    rect.empty x=(unit(x)) y=(unit(y)) width=(unit(side - 1.0)) height=(unit(side - 1.0)) {}
                }
            }
        }
        (legend(left, top + size + 16.0, size.max(200.0), reach))
    };
    let caption = format!("{caption} The colours reach from {} to {}.", fixed(0.5 - reach, 2), fixed(0.5 + reach, 2));
    let width = (left + size.max(200.0)).max(left + size + longest.min(16.0) * 4.5) + 8.0;
    Figure { id, title, caption, width, height: top + size + 58.0, body }
}

/// `.53`, `1.0`.
fn short(p: f64, decimals: usize) -> String {
    let text = fixed(p, decimals);
    text.strip_prefix('0').map_or_else(|| "1.0".to_owned(), str::to_owned)
}

/// The scale, named at its ends and its middle.
fn legend(left: f64, top: f64, width: f64, reach: f64) -> maud::Markup {
    let step = width / palette::STEPS as f64;
    html! {
        @for k in 0..palette::STEPS {
            rect class=(format!("h{k}")) x=(unit(left + k as f64 * step)) y=(unit(top)) width=(unit(step + 0.3)) height="9" {}
        }
        text.tick x=(unit(left)) y=(unit(top + 24.0)) { (fixed(0.5 - reach, 2)) " row loses" }
        text.tick x=(unit(left + width / 2.0)) y=(unit(top + 24.0)) text-anchor="middle" { "0.5" }
        text.tick x=(unit(left + width)) y=(unit(top + 24.0)) text-anchor="end" { "row wins " (fixed(0.5 + reach, 2)) }
    }
}

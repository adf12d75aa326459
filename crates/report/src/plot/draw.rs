//! Draws the plots that a run's summary describes.

use probity_analysis::plot::{Drawing, Plot};

use super::{CORRELATES, Figure, bias, forest, heat, lines, map};
use crate::text::visible_line;

/// The figure of a plot whose id begins with `prefix`; `None` if there is nothing to draw. The plot may come from a file
/// that was changed by hand.
pub(crate) fn draw(plot: &Plot, prefix: &str) -> Option<Figure> {
    let is_id = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if plot.id.is_empty() || !plot.id.chars().all(is_id) {
        return None;
    }
    let (id, title) = (format!("{prefix}-{}", plot.id), visible_line(&plot.title));
    let caption = visible_line(&plot.caption);
    match &plot.drawing {
        Drawing::Lines { x, y, series } => lines(id, title, caption, x, y, series),
        Drawing::Map { groups } => map(id, title, caption, groups),
        Drawing::Correlations { names, cells } => {
            let is_square = cells.len() == names.len() && cells.iter().all(|row| row.len() == names.len());
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            (is_square && !names.is_empty()).then(|| heat(id, title, &caption, &CORRELATES, &names, cells))
        }
        Drawing::Forest { x, rows, reference } => {
            (!rows.is_empty()).then(|| forest(id, title, caption, x, rows, *reference))
        }
        Drawing::PositionBias { rows } => (!rows.is_empty()).then(|| bias(id, title, caption, rows)),
    }
}

//! Draws the plots described in a run's summary.

use probity_analysis::plot::{Drawing, LineAxis, Plot, SERIES, Series};

use super::{CORRELATES, Figure, bias, forest, heat, lines, map};
use crate::text::visible_line;

/// Maximum length of an id, which becomes a file name.
const LONGEST_ID: usize = 64;
/// Maximum number of names in a matrix.
const MOST_NAMES: usize = 200;
/// Maximum number of rows or points, to keep the page fast.
const MOST_POINTS: usize = 20_000;
/// Largest value on an axis, which still has exact ticks.
const LARGEST: f64 = 1e12;

/// Whether a plot can be drawn. It may come from a modified file.
fn is_sound(plot: &Plot) -> bool {
    let is_id = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let is_plain = |value: f64| value.abs() <= LARGEST;
    let are_plain = |ends: Option<(f64, f64)>| ends.is_none_or(|(low, high)| is_plain(low) && is_plain(high));
    let points = |all: &[Series]| {
        let points = || all.iter().flat_map(|series| &series.points);
        points().count() <= MOST_POINTS
            && points().all(|point| is_plain(point.x) && is_plain(point.y) && are_plain(point.band))
    };
    (1..=LONGEST_ID).contains(&plot.id.len())
        && plot.id.chars().all(is_id)
        && match &plot.drawing {
            Drawing::Lines { x, series, .. } => {
                points(series) && !matches!(x, LineAxis::Names(names) if names.len() > MOST_NAMES)
            }
            Drawing::Map { groups } => groups.len() <= SERIES && points(groups),
            Drawing::Correlations { names, cells } => {
                (1..=MOST_NAMES).contains(&names.len())
                    && cells.len() == names.len()
                    && cells.iter().all(|row| row.len() == names.len())
                    && cells.iter().flatten().flatten().all(|r| r.abs() <= 1.0 + 1e-9)
            }
            Drawing::Forest { rows, reference, .. } => {
                rows.len() <= MOST_NAMES
                    && is_plain(*reference)
                    && rows.iter().all(|row| is_plain(row.value) && are_plain(row.interval))
            }
            Drawing::PositionBias { rows } => {
                let is_share = |value: f64| (0.0..=1.0).contains(&value);
                rows.len() <= MOST_NAMES
                    && rows.iter().all(|row| is_share(row.before) && row.after.is_none_or(is_share))
            }
        }
}

/// Draws a plot with an id that starts with `prefix`; `None` if there is nothing to draw.
pub(crate) fn draw(plot: &Plot, prefix: &str) -> Option<Figure> {
    if !is_sound(plot) {
        return None;
    }
    let (id, title) = (format!("{prefix}-{}", plot.id), visible_line(&plot.title));
    let caption = visible_line(&plot.caption);
    match &plot.drawing {
        Drawing::Lines { x, y, series } => lines(id, title, caption, x, y, series),
        Drawing::Map { groups } => map(id, title, caption, groups),
        Drawing::Correlations { names, cells } => {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            Some(heat(id, title, &caption, &CORRELATES, &names, cells))
        }
        Drawing::Forest { x, rows, reference } => {
            (!rows.is_empty()).then(|| forest(id, title, caption, x, rows, *reference))
        }
        Drawing::PositionBias { rows } => (!rows.is_empty()).then(|| bias(id, title, caption, rows)),
    }
}

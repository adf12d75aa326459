//! Points in a plane, by group.

use maud::html;
use probity_analysis::plot::Series;

use super::lines::legend;
use super::{Axis, Figure, WIDTH, unit};

/// A map; `None` without points. The axes have no names, since only distances are meaningful.
pub(crate) fn map(id: String, title: String, caption: String, groups: &[Series]) -> Option<Figure> {
    let points = || groups.iter().flat_map(|group| &group.points);
    let (low_x, high_x) = crate::histogram::range(&points().map(|point| point.x).collect::<Vec<_>>())?;
    let (low_y, high_y) = crate::histogram::range(&points().map(|point| point.y).collect::<Vec<_>>())?;
    let names: Vec<&str> = groups.iter().map(|group| group.name.as_str()).collect();
    let (height, head) = legend(&names, 8.0, WIDTH - 8.0);
    let (top, left, right) = (height + 14.0, 8.0, WIDTH - 8.0);
    let bottom = top + 300.0;
    let x = Axis::wide(low_x, high_x, left + 6.0, right - 6.0);
    let y = Axis::wide(low_y, high_y, bottom - 6.0, top + 6.0);
    let body = html! {
        (head)
        @for (index, group) in groups.iter().enumerate() {
            @for point in &group.points {
                circle class=(format!("mark s{index}")) fill-opacity="0.6" cx=(unit(x.at(point.x))) cy=(unit(y.at(point.y))) r="2.4" {}
            }
        }
    };
    Some(Figure { id, title, caption, width: WIDTH, height: bottom + 8.0, body })
}

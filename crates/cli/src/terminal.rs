//! Text for people: tables, sizes, and hostile characters made visible.

use std::fmt::Write as _;
use std::io::{self, Write};

use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};
use probity_report::text::is_hostile;
pub(crate) use probity_report::text::{thousands, visible, visible_line};

/// JSON stays the same JSON, but without characters that a terminal would obey.
pub(crate) fn visible_json(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for c in json.chars() {
        if is_hostile(c) {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                let _ = write!(safe, "\\u{unit:04x}");
            }
        } else {
            safe.push(c);
        }
    }
    safe
}

/// `98.4 MB`: powers of ten.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.2} GB", bytes as f64 / 1e9),
    }
}

/// A line under the head and none between rows.
const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// A table with a head; columns whose cells are numbers are set flush right.
pub(crate) fn table(columns: &[String], rows: &[Vec<String>]) -> String {
    let mut table = Table::new();
    table.load_style(STYLE).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(columns.iter().map(|cell| visible_line(cell)));
    for row in rows {
        table.add_row(row.iter().map(|cell| visible_line(cell)));
    }
    for index in 0..columns.len() {
        let is_number = |cell: &String| matches!(cell.as_str(), "–" | "-" | "") || cell.trim_end_matches('%').parse::<f64>().is_ok();
        if rows.iter().all(|row| row.get(index).is_none_or(is_number))
            && let Some(column) = table.column_mut(index)
        {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string().lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

/// Writes to standard output, the place of data; a closed pipe comes back as an error that ends the program with 0.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.write_all(b"\n")?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_characters_are_shown_and_others_kept() {
        assert_eq!(visible("a\u{1b}]0;x\u{7}\tb\u{9b}\u{202e}"), "a\\u{1b}]0;x\\u{7}\tb\\u{9b}\\u{202e}");
        assert_eq!(visible("naïve 日本 हिन्दी 😀\n"), "naïve 日本 हिन्दी 😀\n");
    }

    #[test]
    fn json_without_hostile_characters_means_the_same() {
        let value = serde_json::json!({"t": "\u{9b}x\u{202e}\u{e0041}é"});
        let safe = visible_json(&value.to_string());
        assert!(!safe.chars().any(is_hostile));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&safe).expect("still JSON"), value);
    }

    #[test]
    fn numbers_are_readable() {
        assert_eq!((thousands(0).as_str(), thousands(999).as_str(), thousands(1_234_567).as_str()), ("0", "999", "1,234,567"));
        assert_eq!((size(98_362_432), size(1_117_320_768)), ("98.4 MB".to_owned(), "1.12 GB".to_owned()));
    }

    #[test]
    fn a_table_cannot_be_broken_by_its_cells() {
        let shown = table(&["id".into(), "score".into()], &[vec!["a\nb\u{1b}[31m".into(), "0.5".into()]]);
        assert!(shown.contains("a\\nb\\u{1b}[31m") && !shown.contains('\u{1b}'), "{shown}");
    }
}

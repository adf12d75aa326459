//! Text for people: tables, sizes, and escaped control characters.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};

use comfy_table::{CellAlignment, ContentArrangement, LineStyle, TableStyle};
use probity_analysis::{Cell, Table};
use probity_report::text::is_hostile;
pub(crate) use probity_report::text::{counted, thousands, visible, visible_line};
use unicode_width::UnicodeWidthStr;

use crate::error::OutputError;

/// Escapes characters that a terminal would interpret; the JSON keeps its meaning.
pub(crate) fn visible_json(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for c in json.chars() {
        if is_hostile(c) {
            // JSON escapes are UTF-16: characters above U+FFFF need two units.
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
        0..1_000 => counted(bytes, "byte"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.2} GB", bytes as f64 / 1e9),
    }
}

/// A line below the header and none between rows.
const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// The width of standard output: that of the terminal, otherwise `$COLUMNS`. Files and other programs get unlimited
/// lines, so that each row is one line.
fn width() -> Option<usize> {
    width_of(&io::stdout(), terminal_size::terminal_size_of(io::stdout()))
}

/// The width of a stream whose terminal has this size.
fn width_of(stream: &impl IsTerminal, size: Option<(terminal_size::Width, terminal_size::Height)>) -> Option<usize> {
    if !stream.is_terminal() {
        return None;
    }
    let told = || std::env::var("COLUMNS").ok()?.parse().ok();
    size.map(|(width, _)| usize::from(width.0)).or_else(told).filter(|width| *width >= NARROWEST)
}

/// Minimum width for any layout.
const NARROWEST: usize = 20;

/// Wraps text between words; continuation lines are indented by `indent` more columns.
pub(crate) fn wrapped(text: &str, indent: usize) -> String {
    wrapped_within(text, width(), indent)
}

fn wrapped_within(text: &str, width: Option<usize>, indent: usize) -> String {
    let Some(width) = width else { return text.to_owned() };
    text.split('\n').map(|line| wrapped_to(line, width, indent)).collect::<Vec<_>>().join("\n")
}

fn wrapped_to(line: &str, width: usize, indent: usize) -> String {
    let words = line.trim_start_matches(' ');
    let start = line.len() - words.len();
    let indent = start + indent;
    // `filled`: the current line contains a word.
    let (mut out, mut column, mut filled) = (" ".repeat(start), start, false);
    for (word, begins) in words.split(' ').flat_map(|word| parts(word, width.saturating_sub(indent))) {
        let (len, gap) = (word.width(), usize::from(begins));
        if filled && column + gap + len > width {
            out.truncate(out.trim_end_matches(' ').len());
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            (column, filled) = (indent, false);
        }
        if filled && begins {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += len;
        filled |= len > 0;
    }
    out
}

/// The parts of a word, each with whether it is the first; a signature wider than a line is broken after its bars.
fn parts(word: &str, room: usize) -> impl Iterator<Item = (&str, bool)> {
    let all = if word.width() > room { word.split_inclusive('|').collect() } else { vec![word] };
    // Splitting an empty text gives no parts.
    let all = if all.is_empty() { vec![word] } else { all };
    all.into_iter().enumerate().map(|(at, part)| (part, at == 0))
}

/// A table with its title, and its notes below.
pub(crate) fn table_text(of: &Table) -> String {
    let mut text = format!("{}\n", visible(&of.title));
    if !of.columns.is_empty() {
        let rows: Vec<Vec<String>> = of.rows.iter().map(|row| row.iter().map(Cell::to_text).collect()).collect();
        text.push_str(&table(&of.columns, &rows));
        text.push('\n');
    }
    for note in &of.notes {
        text.push_str(&wrapped(&visible_line(note), 2));
        text.push('\n');
    }
    text
}

/// A table within the available width. Remaining columns follow in further tables, each repeating the columns that name
/// its rows; if too many tables were needed, each row becomes a list of its cells.
pub(crate) fn table(columns: &[String], rows: &[Vec<String>]) -> String {
    table_to(columns, rows, width())
}

/// More tables than this are harder to read than a list.
const MOST_PARTS: usize = 3;

fn table_to(columns: &[String], rows: &[Vec<String>], width: Option<usize>) -> String {
    let columns: Vec<String> = columns.iter().map(|cell| visible_line(cell)).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(|cell| visible_line(cell)).collect()).collect();
    let is_number =
        |cell: &String| matches!(cell.as_str(), "–" | "-" | "") || cell.trim_end_matches('%').parse::<f64>().is_ok();
    let numeric: Vec<bool> =
        (0..columns.len()).map(|k| rows.iter().all(|row| row.get(k).is_none_or(is_number))).collect();
    let all: Vec<usize> = (0..columns.len()).collect();
    let Some(width) = width else { return part(&columns, &rows, &numeric, &all) };
    // A column has a space on either side and one after it.
    let wide = |k: usize| {
        3 + rows.iter().filter_map(|row| row.get(k)).chain([&columns[k]]).map(|cell| cell.width()).max().unwrap_or(0)
    };
    let named = naming(&rows, &numeric, columns.len());
    let names: usize = (0..named).map(wide).sum();
    let mut parts: Vec<(Vec<usize>, usize)> = Vec::new();
    for k in named..columns.len() {
        match parts.last_mut() {
            Some((part, taken)) if *taken + wide(k) <= width => {
                part.push(k);
                *taken += wide(k);
            }
            _ => parts.push(((0..named).chain([k]).collect(), names + wide(k))),
        }
    }
    if parts.len() > MOST_PARTS || parts.iter().any(|(_, taken)| *taken > width) || names > width {
        return listed(&columns, &rows, width);
    }
    if parts.is_empty() {
        return part(&columns, &rows, &numeric, &all);
    }
    parts.iter().map(|(columns_of, _)| part(&columns, &rows, &numeric, columns_of)).collect::<Vec<_>>().join("\n\n")
}

/// The number of leading columns that name the rows: as many as make them unique, and at least two if they are texts.
fn naming(rows: &[Vec<String>], numeric: &[bool], columns: usize) -> usize {
    let texts = numeric.iter().take_while(|numeric| !**numeric).count();
    let apart = |count: &usize| {
        let mut heads: Vec<&[String]> = rows.iter().map(|row| &row[..(*count).min(row.len())]).collect();
        heads.sort_unstable();
        heads.windows(2).all(|pair| pair[0] != pair[1])
    };
    let least = texts.clamp(1, 2).min(columns);
    (least..=columns.min(MOST_NAMING)).find(apart).unwrap_or(least)
}

/// Maximum number of columns that name rows.
const MOST_NAMING: usize = 4;

/// Some columns of a table; numeric columns are aligned right.
fn part(columns: &[String], rows: &[Vec<String>], numeric: &[bool], shown: &[usize]) -> String {
    let mut table = comfy_table::Table::new();
    // The width was decided above; the library must not wrap cells again.
    table.load_style(STYLE).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(shown.iter().map(|k| &columns[*k]));
    for row in rows {
        table.add_row(shown.iter().map(|k| row.get(*k).map_or("", String::as_str)));
    }
    for (place, k) in shown.iter().enumerate() {
        if let Some(column) = table.column_mut(place).filter(|_| numeric[*k]) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string().lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

/// Each row as lines of `column  cell`, wrapped between words; in a table of names and values, each row is one line.
fn listed(columns: &[String], rows: &[Vec<String>], width: usize) -> String {
    if columns.len() == 2 && columns[0].is_empty() {
        return lines(rows.iter().filter_map(|row| Some((row.first()?, row.get(1)?))), width);
    }
    let row = |row: &Vec<String>| lines(columns.iter().zip(row), width);
    rows.iter().map(row).collect::<Vec<_>>().join("\n\n")
}

/// `name  cell`, one per line.
fn lines<'t>(cells: impl Iterator<Item = (&'t String, &'t String)> + Clone, width: usize) -> String {
    let names = cells.clone().map(|(name, _)| name.width()).max().unwrap_or(0).min(width / 2);
    let line = |(name, cell): (&String, &String)| {
        let gap = " ".repeat((names + 2).saturating_sub(name.width()).max(2));
        wrapped_to(&format!(" {name}{gap}{cell}"), width, 4)
    };
    cells.map(line).collect::<Vec<_>>().join("\n")
}

/// Writes to standard output, which carries data. A closed pipe is ignored, so that the exit code does not depend on
/// the reader.
pub(crate) fn print(text: &str) -> Result<(), OutputError> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

/// Writes a line to standard error. Errors are ignored: they must not stop the work.
pub(crate) fn eprint_wrapped(text: &str) {
    let width = width_of(&io::stderr(), terminal_size::terminal_size_of(io::stderr()));
    eprint_line(&wrapped_within(text, width, 2));
}

/// Writes a line for other programs, without wrapping.
pub(crate) fn eprint_line(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// An argument quoted for a shell.
pub(crate) fn quoted(argument: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !argument.is_empty() && argument.chars().all(is_plain) {
        argument.to_owned()
    } else {
        format!("'{}'", argument.replace('\'', "'\\''"))
    }
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
        assert_eq!(
            (thousands(0).as_str(), thousands(999).as_str(), thousands(1_234_567).as_str()),
            ("0", "999", "1,234,567")
        );
        assert_eq!((size(98_362_432), size(1_117_320_768)), ("98.4 MB".to_owned(), "1.12 GB".to_owned()));
    }

    #[test]
    fn a_table_cannot_be_broken_by_its_cells() {
        let shown = table(&["id".into(), "score".into()], &[vec!["a\nb\u{1b}[31m".into(), "0.5".into()]]);
        assert!(shown.contains("a\\nb\\u{1b}[31m") && !shown.contains('\u{1b}'), "{shown}");
    }

    fn wide_table() -> (Vec<String>, Vec<Vec<String>>) {
        let columns =
            ["attribute", "template", "P(A)", "P(B)", "order gap", "same verdict"].map(str::to_owned).to_vec();
        let row = |name: &str| [name, "1", "0.501", "0.499", "0.120", "0.870"].map(str::to_owned).to_vec();
        (columns, vec![row("coherence"), row("consistency")])
    }

    #[test]
    fn a_table_is_never_wider_than_the_terminal_and_loses_no_cell() {
        let (columns, rows) = wide_table();
        let whole = table_to(&columns, &rows, None);
        assert_eq!(table_to(&columns, &rows, Some(80)), whole);
        for width in [20, 30, 40, 50, 60] {
            let shown = table_to(&columns, &rows, Some(width));
            assert!(shown.lines().all(|line| line.width() <= width), "{width}\n{shown}");
            for cell in columns.iter().chain(&rows[0]).chain(&rows[1]) {
                let words: Vec<&str> = cell.split(' ').collect();
                assert!(words.iter().all(|word| shown.contains(word)), "{width}: {cell}\n{shown}");
            }
        }
        // Each part names its rows.
        assert_eq!(table_to(&columns, &rows, Some(44)).matches("consistency").count(), 2);
    }

    #[test]
    fn a_wide_table_of_names_and_values_is_a_line_each() {
        let row = |name: &str, value: &str| vec![name.to_owned(), value.to_owned()];
        let rows = [row("method", "compare"), row("sha256", &"0".repeat(30))];
        let shown = table_to(&[String::new(), "value".to_owned()], &rows, Some(40));
        assert_eq!(shown, format!(" method  compare\n sha256  {}", "0".repeat(30)));
    }

    #[test]
    fn text_is_broken_between_words_and_continued_with_an_indent() {
        assert_eq!(wrapped_to("one two three four", 9, 2), "one two\n  three\n  four");
        assert_eq!(wrapped_to("averylongwordthatcannotbebroken", 9, 2), "averylongwordthatcannotbebroken");
        assert_eq!(wrapped_to("", 9, 2), "");
        assert_eq!(wrapped_to("  one two three", 9, 2), "  one two\n    three");
        assert_eq!(wrapped_to("a longword", 9, 2), "a\n  longword");
        let signature = "bleu|nrefs:1|case:mixed|eff:no|version:0.1.0";
        assert_eq!(wrapped_to(signature, 24, 2), "bleu|nrefs:1|case:mixed|\n  eff:no|version:0.1.0");
        assert_eq!(wrapped_to(signature, 80, 2), signature);
        assert_eq!(wrapped_to("a b|c", 9, 2), "a b|c");
    }
}

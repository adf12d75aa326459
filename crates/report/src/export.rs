//! Export of tables to other formats. Cells may be hostile: each format has its own escaping.

use probity_analysis::{Cell, Table};
use serde_json::{Value, json};

use crate::text::{cell_text, visible, visible_line};

/// JSON: cells in column order, numbers unrounded, intervals as objects.
pub fn json(table: &Table) -> Value {
    let rows: Vec<Vec<Value>> = table.rows.iter().map(|row| row.iter().map(cell_json).collect()).collect();
    json!({
        "id": table.id, "run": table.run, "title": table.title, "columns": table.columns, "rows": rows,
        "notes": table.notes,
    })
}

fn cell_json(cell: &Cell) -> Value {
    match (cell, cell.value(), cell.ends()) {
        (Cell::Text(text) | Cell::Sample { sample: text, .. }, ..) => json!(text),
        (Cell::Count(count), ..) => json!(count),
        (_, Some(value), Some((low, high))) => json!({"value": value, "low": low, "high": high}),
        (_, None, Some((low, high))) => json!({"low": low, "high": high}),
        (_, value, None) => json!(value),
    }
}

/// CSV (RFC 4180), with the ends of intervals in separate columns.
///
/// Numbers are unrounded and missing values are empty cells. An apostrophe precedes texts that a spreadsheet would
/// evaluate as formulas.
pub fn csv(table: &Table) -> String {
    let intervals: Vec<bool> = (0..table.columns.len()).map(|column| has_intervals(table, column)).collect();
    let heads = table.columns.iter().zip(&intervals).flat_map(|(name, has_ends)| {
        let ends = if *has_ends { vec![format!("{name} low"), format!("{name} high")] } else { Vec::new() };
        std::iter::once(name.clone()).chain(ends)
    });
    let mut text = heads.map(|head| csv_text(&head)).collect::<Vec<_>>().join(",") + "\r\n";
    for row in &table.rows {
        let cells = row.iter().zip(&intervals).flat_map(|(cell, has_ends)| csv_cells(cell, *has_ends));
        text += &cells.collect::<Vec<_>>().join(",");
        text += "\r\n";
    }
    text
}

fn has_intervals(table: &Table, column: usize) -> bool {
    table.rows.iter().filter_map(|row| row.get(column)).any(|cell| cell.ends().is_some())
}

/// A Markdown table with its title and notes.
pub fn markdown(table: &Table) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let rule = (0..table.columns.len())
        .map(|column| if table.is_numeric(column) { "---:".to_owned() } else { "---".to_owned() });
    let mut text = format!("### {}\n\n", markdown_text(&table.heading()));
    if !table.columns.is_empty() {
        text += &line(table.columns.iter().map(|c| markdown_text(c)).collect());
        text += &line(rule.collect());
        for row in &table.rows {
            text += &line(row.iter().map(|cell| markdown_text(&cell_text(cell))).collect());
        }
    }
    for note in &table.notes {
        text += "\n";
        text += &markdown_text(note);
        text += "\n";
    }
    text
}

/// A LaTeX table for the booktabs package.
pub fn latex(table: &Table) -> String {
    let columns: String =
        (0..table.columns.len()).map(|column| if table.is_numeric(column) { 'r' } else { 'l' }).collect();
    let line = |cells: Vec<String>| format!("    {} \\\\\n", cells.join(" & "));
    let mut text = format!("\\begin{{table}}\n  \\centering\n  \\caption{{{}}}\n", latex_text(&table.heading()));
    if !table.columns.is_empty() {
        text += &["  \\begin{tabular}{", &columns, "}\n    \\toprule\n"].concat();
        text += &line(table.columns.iter().map(|c| latex_text(c)).collect());
        text += "    \\midrule\n";
        for row in &table.rows {
            text += &line(row.iter().map(|cell| latex_text(&cell_text(cell))).collect());
        }
        text += "    \\bottomrule\n  \\end{tabular}\n";
    }
    for note in &table.notes {
        text += &["  \\par\\footnotesize ", &latex_text(note), "\n"].concat();
    }
    text + "\\end{table}\n"
}

fn csv_cells(cell: &Cell, has_ends: bool) -> Vec<String> {
    let number = |number: Option<f64>| number.map(|number| number.to_string()).unwrap_or_default();
    let value = match cell {
        Cell::Text(text) | Cell::Sample { sample: text, .. } => csv_text(text),
        Cell::Count(count) => count.to_string(),
        _ => number(cell.value()),
    };
    let (low, high) = cell.ends().unzip();
    if has_ends { vec![value, number(low), number(high)] } else { vec![value] }
}

/// Quotes a text if necessary. Spreadsheets evaluate cells that start with `=`, `+`, `-`, `@`, a tab or a carriage
/// return, quoted or not.
fn csv_text(text: &str) -> String {
    let text = visible(text);
    // Spreadsheets also skip leading spaces and accept full-width forms.
    let formula = text.trim_start_matches(' ').starts_with(['=', '+', '-', '@', '\t', '\r', '＝', '＋', '－', '＠']);
    let text = if formula { format!("'{text}") } else { text };
    if text.contains([',', '"', '\n', '\r', '\'']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

/// Escapes all Markdown and HTML syntax. A cell stays on one line.
pub fn markdown_text(text: &str) -> String {
    let mut safe = String::new();
    for c in visible_line(text).chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '\\' | '`' | '*' | '_' | '{' | '}' | '[' | ']' | '(' | ')' | '#' | '!' | '|' | '~' | '$' => {
                safe.extend(['\\', c]);
            }
            _ => safe.push(c),
        }
    }
    // Prevents automatic links.
    safe.replace("://", "\\://").replace("www.", "www\\.")
}

fn latex_text(text: &str) -> String {
    let mut safe = String::new();
    for c in visible_line(text).chars() {
        match c {
            '\\' => safe.push_str("\\textbackslash{}"),
            '{' | '}' | '$' | '&' | '#' | '%' | '_' => safe.extend(['\\', c]),
            '~' => safe.push_str("\\textasciitilde{}"),
            '^' => safe.push_str("\\textasciicircum{}"),
            '<' => safe.push_str("\\textless{}"),
            '>' => safe.push_str("\\textgreater{}"),
            '|' => safe.push_str("\\textbar{}"),
            '"' => safe.push_str("\\textquotedbl{}"),
            // Characters in our own tables that common LaTeX fonts lack.
            '−' => safe.push_str("$-$"),
            '–' => safe.push_str("--"),
            '…' => safe.push_str("\\ldots{}"),
            'τ' => safe.push_str("$\\tau$"),
            'ρ' => safe.push_str("$\\rho$"),
            // Prevents ligatures and quotation marks from repeated characters.
            '-' | '`' | '\'' => safe.extend([c, '{', '}']),
            _ => safe.push(c),
        }
    }
    safe
}

//! Tables for other programs. Cells may be hostile: each form is escaped by its own rules.

use crate::table::{ReportTable, TableCell};
use crate::text::{visible, visible_line};

impl ReportTable {
    /// Comma-separated values (RFC 4180), intervals in columns of their own. Numbers are unrounded; nothing is an empty
    /// cell. A text that a spreadsheet would take for a formula begins with an apostrophe.
    pub fn csv(&self) -> String {
        let widths: Vec<bool> = (0..self.columns.len()).map(|column| self.has_intervals(column)).collect();
        let mut text = String::new();
        let heads = self.columns.iter().zip(&widths).flat_map(|(name, wide)| {
            let ends = if *wide { vec![format!("{name} low"), format!("{name} high")] } else { Vec::new() };
            std::iter::once(name.clone()).chain(ends)
        });
        text += &heads.map(|head| csv_text(&head)).collect::<Vec<_>>().join(",");
        text += "\r\n";
        for row in &self.rows {
            let cells = row.iter().zip(&widths).flat_map(|(cell, wide)| csv_cells(cell, *wide));
            text += &cells.collect::<Vec<_>>().join(",");
            text += "\r\n";
        }
        text
    }

    fn has_intervals(&self, column: usize) -> bool {
        self.rows.iter().any(|row| matches!(row.get(column), Some(TableCell::Interval(_, Some(_)))))
    }

    /// A Markdown table with its title and notes.
    pub fn markdown(&self) -> String {
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let rule = (0..self.columns.len())
            .map(|column| if self.is_numeric(column) { "---:".to_owned() } else { "---".to_owned() });
        let mut text = format!("### {}\n\n", markdown_text(&self.heading()));
        if !self.columns.is_empty() {
            text += &line(self.columns.iter().map(|c| markdown_text(c)).collect());
            text += &line(rule.collect());
            for row in &self.rows {
                text += &line(row.iter().map(|cell| markdown_text(&cell.shown())).collect());
            }
        }
        for note in &self.notes {
            text += "\n";
            text += &markdown_text(note);
            text += "\n";
        }
        text
    }

    /// A LaTeX table for the package booktabs.
    pub fn latex(&self) -> String {
        let columns: String =
            (0..self.columns.len()).map(|column| if self.is_numeric(column) { 'r' } else { 'l' }).collect();
        let line = |cells: Vec<String>| format!("    {} \\\\\n", cells.join(" & "));
        let mut text = format!("\\begin{{table}}\n  \\centering\n  \\caption{{{}}}\n", latex_text(&self.heading()));
        if !self.columns.is_empty() {
            text += &["  \\begin{tabular}{", &columns, "}\n    \\toprule\n"].concat();
            text += &line(self.columns.iter().map(|c| latex_text(c)).collect());
            text += "    \\midrule\n";
            for row in &self.rows {
                text += &line(row.iter().map(|cell| latex_text(&cell.shown())).collect());
            }
            text += "    \\bottomrule\n  \\end{tabular}\n";
        }
        for note in &self.notes {
            text += &["  \\par\\footnotesize ", &latex_text(note), "\n"].concat();
        }
        text + "\\end{table}\n"
    }

    pub(crate) fn heading(&self) -> String {
        self.run.as_ref().map_or_else(|| self.title.clone(), |run| format!("{} ({run})", self.title))
    }
}

fn csv_cells(cell: &TableCell, wide: bool) -> Vec<String> {
    let (value, ends) = match cell {
        TableCell::Text(text) | TableCell::Sample(_, text) => (csv_text(text), None),
        TableCell::Count(count) => (count.to_string(), None),
        TableCell::Number(value, _) => (value.to_string(), None),
        TableCell::Interval(value, ends) => (value.to_string(), *ends),
        TableCell::Missing => (String::new(), None),
    };
    let end = |end: Option<f64>| end.map(|end| end.to_string()).unwrap_or_default();
    if wide { vec![value, end(ends.map(|e| e.0)), end(ends.map(|e| e.1))] } else { vec![value] }
}

/// Quoted where it must be. Spreadsheets take a cell that begins with `=`, `+`, `-`, `@`, a tab or a return for a
/// formula, quoted or not.
fn csv_text(text: &str) -> String {
    let text = visible(text);
    // Spaces before it do not help against spreadsheets, and neither do full-width forms.
    let formula = text.trim_start_matches(' ').starts_with(['=', '+', '-', '@', '\t', '\r', '＝', '＋', '－', '＠']);
    let text = if formula { format!("'{text}") } else { text };
    if text.contains([',', '"', '\n', '\r', '\'']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

/// Every mark of Markdown and HTML loses its meaning; a cell stays on its line.
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
    // A bare address would become a link.
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
            // Characters that our own tables write and that LaTeX's usual fonts lack.
            '−' => safe.push_str("$-$"),
            '–' => safe.push_str("--"),
            '…' => safe.push_str("\\ldots{}"),
            'τ' => safe.push_str("$\\tau$"),
            'ρ' => safe.push_str("$\\rho$"),
            // Two of these in a row would be a ligature or a quotation mark.
            '-' | '`' | '\'' => safe.extend([c, '{', '}']),
            _ => safe.push(c),
        }
    }
    safe
}

//! CSV and TSV tables.

use std::collections::VecDeque;
use std::io::{self, BufRead, Read};

use serde_json::Value;

use crate::column::{TableRow, names, repeated};
use crate::line_error::{LineError, TO_UTF8};
use crate::lines::MAX_LINE;

/// Rows of a CSV or TSV file, each numbered by its first line.
///
/// Quoting follows RFC 4180. An unclosed quote and text after a closing quote are errors here, although the parser
/// accepts them. A row whose number of cells differs from the header is an error; later rows are still read. Holds at
/// most one row in memory, up to the line limit.
pub(crate) struct Delimited<R> {
    reader: csv::Reader<Quotes<R>>,
    columns: Vec<String>,
    wanted: Vec<bool>,
    record: csv::StringRecord,
    finished: bool,
}

impl<R: BufRead> Delimited<R> {
    /// Reads the header. `delimiter` separates cells.
    pub(crate) fn new(reader: R, delimiter: u8) -> Result<Self, (usize, LineError)> {
        Self::with_limit(reader, delimiter, MAX_LINE)
    }

    fn with_limit(reader: R, delimiter: u8, limit: usize) -> Result<Self, (usize, LineError)> {
        let reader = csv::ReaderBuilder::new().delimiter(delimiter).from_reader(Quotes::new(reader, delimiter, limit));
        let mut table =
            Self { reader, columns: Vec::new(), wanted: Vec::new(), record: csv::StringRecord::new(), finished: false };
        match table.reader.headers() {
            // Headers often have spaces after delimiters, which users do not type in --map.
            Ok(head) => table.columns = head.iter().map(|name| name.trim().to_owned()).collect(),
            Err(e) => {
                let error = table.explain(&e);
                return Err((1, error));
            }
        }
        if let Some(name) = repeated(&table.columns) {
            return Err((
                1,
                LineError::content("", format!("two columns are named `{}`", crate::line_error::excerpt(name))),
            ));
        }
        if let Some(Start { line, wrong: Some(wrong) }) = table.reader.get_mut().starts.pop_front() {
            return Err((line, wrong.to_line_error()));
        }
        table.wanted = vec![true; table.columns.len()];
        Ok(table)
    }

    /// The column names in the header, trimmed.
    pub(crate) fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Restricts rows to these columns.
    pub(crate) fn want(&mut self, columns: &[String]) {
        let wanted = names(columns);
        self.wanted = self.columns.iter().map(|name| wanted.contains(name.as_str())).collect();
    }

    fn explain(&mut self, error: &csv::Error) -> LineError {
        match error.kind() {
            // The error of our own watcher arrives through the parser as a read error.
            csv::ErrorKind::Io(_) if self.reader.get_ref().is_too_long() => {
                self.finished = true;
                self.reader.get_ref().too_long()
            }
            csv::ErrorKind::Io(e) => {
                self.finished = true;
                LineError::Read(io::Error::new(e.kind(), e.to_string()))
            }
            csv::ErrorKind::Utf8 { err, .. } => {
                let column = self.columns.get(err.field()).map_or_else(|| (err.field() + 1).to_string(), Clone::clone);
                LineError::Cell {
                    column,
                    field: String::new(),
                    why: format!("byte {} of the cell is not valid UTF-8", err.valid_up_to() + 1),
                    hint: Some(TO_UTF8.to_owned()),
                }
            }
            csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
                let cells = if *len == 1 { "cell" } else { "cells" };
                let hint = "put a cell that contains the delimiter or a line break in double quotes";
                LineError::content("", format!("{len} {cells}, but the first line names {expected_len} columns"))
                    .with_hint(hint)
            }
            _ => LineError::Read(io::Error::other(error.to_string())),
        }
    }
}

impl<R: BufRead> Iterator for Delimited<R> {
    type Item = (usize, Result<TableRow, LineError>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.finished {
            return None;
        }
        let mut record = std::mem::take(&mut self.record);
        let read = self.reader.read_record(&mut record);
        // The parser reads ahead, so the watcher has already seen later rows begin: starts wait in a queue.
        let start = self.reader.get_mut().starts.pop_front();
        // The input can fail before a row begins.
        let line = start.as_ref().map_or_else(|| self.reader.get_ref().line, |start| start.line);
        let quotes = start.and_then(|start| start.wrong);
        let item = match (read, quotes) {
            (Ok(false), _) => return None,
            // Wrong quotes also explain a wrong number of cells.
            (Ok(true) | Err(_), Some(wrong)) => Err(wrong.to_line_error()),
            (Ok(true), None) => Ok(self.row(&record)),
            (Err(e), None) => Err(self.explain(&e)),
        };
        self.record = record;
        Some((line, item))
    }
}

impl<R> Delimited<R> {
    fn row(&self, record: &csv::StringRecord) -> TableRow {
        let cells = self.columns.iter().zip(record).zip(&self.wanted);
        cells
            .filter(|(_, wanted)| **wanted)
            .map(|((name, cell), _)| (name.clone(), Value::String(cell.to_owned())))
            .collect()
    }
}

/// Tracks where rows begin, their quotes and their length.
struct Quotes<R> {
    inner: R,
    delimiter: u8,
    limit: usize,
    state: ParserState,
    line: usize,
    opened: usize,
    row_bytes: usize,
    /// Rows read ahead, and the current one.
    starts: VecDeque<Start>,
}

/// The first line of a row and its quoting error, if any.
struct Start {
    line: usize,
    wrong: Option<WrongQuotes>,
}

enum WrongQuotes {
    TextAfter,
    /// With the line of the opening quote.
    NeverClosed(usize),
}

impl WrongQuotes {
    fn to_line_error(&self) -> LineError {
        let (why, hint) = match self {
            Self::TextAfter => {
                ("text after a closing quote".to_owned(), "write a quote inside a quoted cell as two: \"a 5\"\" nail\"")
            }
            Self::NeverClosed(line) => (
                format!("the quote opened on line {line} is never closed"),
                "close it, or write a quote inside a cell as two: \"\"",
            ),
        };
        LineError::content("", why).with_hint(hint)
    }
}

#[derive(Clone, Copy, PartialEq)]
enum ParserState {
    /// Between rows.
    Between,
    /// At the start of a cell.
    Start,
    /// In an unquoted cell.
    Bare,
    /// Between quotes.
    Quoted,
    /// After a quote in a quoted cell: the end of the cell or the first half of an escaped quote.
    Quote,
}

impl<R> Quotes<R> {
    fn new(inner: R, delimiter: u8, limit: usize) -> Self {
        Self {
            inner,
            delimiter,
            limit,
            state: ParserState::Between,
            line: 1,
            opened: 0,
            row_bytes: 0,
            starts: VecDeque::new(),
        }
    }

    fn step(&mut self, byte: u8) {
        // A line break inside quotes is text (RFC 4180). Treating it as a row end would misnumber all later rows.
        let ends_row = matches!(byte, b'\n' | b'\r') && self.state != ParserState::Quoted;
        if self.state == ParserState::Between && !ends_row {
            self.starts.push_back(Start { line: self.line, wrong: None });
            self.row_bytes = 0;
            self.state = ParserState::Start;
        }
        // Blank lines between rows do not count.
        self.row_bytes += usize::from(self.state != ParserState::Between);
        self.state = match (self.state, byte) {
            _ if ends_row => ParserState::Between,
            (ParserState::Quoted, b'"') => ParserState::Quote,
            (ParserState::Quoted, _) | (ParserState::Quote, b'"') => ParserState::Quoted,
            (ParserState::Start, b'"') => {
                self.opened = self.line;
                ParserState::Quoted
            }
            (_, byte) if byte == self.delimiter => ParserState::Start,
            // The parser would accept such a cell and concatenate both parts.
            (ParserState::Quote, _) => {
                self.wrong(WrongQuotes::TextAfter);
                ParserState::Bare
            }
            (ParserState::Between | ParserState::Start | ParserState::Bare, _) => ParserState::Bare,
        };
        self.line += usize::from(byte == b'\n');
    }

    fn wrong(&mut self, wrong: WrongQuotes) {
        if let Some(start) = self.starts.back_mut() {
            // Report only the first error: later ones follow from it.
            start.wrong.get_or_insert(wrong);
        }
    }

    /// The line of the quote that is still open.
    fn open_since(&self) -> Option<usize> {
        (self.state == ParserState::Quoted).then_some(self.opened)
    }

    fn is_too_long(&self) -> bool {
        self.row_bytes > self.limit
    }

    fn too_long(&self) -> LineError {
        match self.open_since() {
            Some(opened) => {
                let why = format!("the quote opened on line {opened} is not closed within {} bytes", self.limit);
                LineError::content("", why).with_hint("close it, or write a quote inside a cell as two: \"\"")
            }
            None => LineError::TooLong { limit: self.limit },
        }
    }
}

impl<R: Read> Read for Quotes<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        // At the end of the file the parser would close the quote and return all remaining rows as one cell.
        if read == 0
            && let Some(opened) = self.open_since()
        {
            self.wrong(WrongQuotes::NeverClosed(opened));
        }
        for &byte in &buffer[..read] {
            self.step(byte);
            // Stop here: the parser would hold the whole row in memory before it could be checked.
            if self.is_too_long() {
                return Err(io::Error::other("row too long"));
            }
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<(usize, Result<TableRow, LineError>)> {
        Delimited::new(text.as_bytes(), b',').map_err(|(_, e)| e).expect("a head").collect()
    }

    fn problems(text: &str) -> Vec<(usize, String)> {
        read(text).into_iter().filter_map(|(line, row)| Some((line, row.err()?.to_string()))).collect()
    }

    #[test]
    fn rows_are_numbered_by_the_line_on_which_they_begin() {
        let rows = read("\"id\", text\r\n1,\"a\r\nb \"\"c\"\"\"\r\n\r\n\n2,\n3,x");
        let rows: Vec<_> = rows
            .into_iter()
            .map(|(n, row)| (n, serde_json::to_string(row.expect("good").values()).expect("JSON")))
            .collect();
        assert_eq!(rows[0], (2, r#"{"id":"1","text":"a\r\nb \"c\""}"#.to_owned()));
        assert_eq!(rows[1], (6, r#"{"id":"2","text":""}"#.to_owned()));
        assert_eq!(rows[2].0, 7);
    }

    #[test]
    fn a_row_of_another_length_is_a_problem_and_the_next_is_read() {
        let text = "a,b\n1,2\n1\n1,2,3\n4,5\n";
        let found = problems(text);
        assert_eq!(found[0], (3, "1 cell, but the first line names 2 columns".to_owned()));
        assert_eq!((found[1].0, found.len(), read(text).len()), (4, 2, 4));
    }

    #[test]
    fn a_quote_that_is_never_closed_is_told_with_its_line() {
        let found = problems("a,b\n1,2\n3,\"open\n4,5\n6,7\n");
        assert_eq!(found, [(3, "the quote opened on line 3 is never closed".to_owned())]);
    }

    #[test]
    fn text_after_a_closing_quote_is_a_problem_of_its_row_alone() {
        let found = problems("a,b\n1,\"x\"\n2,\"a\" b\n3,5\" nail\n\"4\",\"ok\"\n5,\"a\"b\n");
        assert_eq!(found.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [3, 6]);
        assert!(found[0].1.starts_with("text after a closing quote"));
    }

    #[test]
    fn a_cell_that_is_not_utf8_is_named() {
        let rows: Vec<_> =
            Delimited::new(&b"a,b\n1,x\xff\n2,y\n"[..], b',').map_err(|(_, e)| e).expect("a head").collect();
        assert_eq!(
            rows[0].1.as_ref().expect_err("not UTF-8").to_string(),
            "column `b`: byte 2 of the cell is not valid UTF-8"
        );
        assert!(rows[0].0 == 2 && rows[1].1.is_ok());
    }

    #[test]
    fn a_row_beyond_the_limit_ends_the_reading_without_being_held() {
        let endless = io::BufReader::new(b"a\n\"".chain(io::repeat(b'x').take(1 << 22)));
        let mut rows = Delimited::with_limit(endless, b',', 1000).map_err(|(_, e)| e).expect("a head");
        let (_, error) = rows.next().expect("an error");
        assert!(error.expect_err("too long").to_string().contains("opened on line 2 is not closed within 1000 bytes"));
        assert!(rows.next().is_none());
    }

    #[test]
    fn blank_lines_between_rows_belong_to_none() {
        let text = format!("a,b\n1,2\n{}3,4\n", "\r\n".repeat(2000));
        let rows = Delimited::with_limit(text.as_bytes(), b',', 1000).map_err(|(_, e)| e).expect("a head");
        let lines: Vec<usize> = rows.map(|(line, row)| (line, row.expect("short")).0).collect();
        assert_eq!(lines, [2, 2003]);
    }

    #[test]
    fn two_columns_of_one_name_are_refused() {
        assert!(
            Delimited::new(&b"a,b,a\n"[..], b',')
                .is_err_and(|(_, e)| e.to_string().contains("two columns are named `a`"))
        );
        assert!(Delimited::new(&b",a,\n1,2,3\n"[..], b',').is_ok());
    }
}

//! File formats of samples.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The kinds of files that hold samples or tables of them. Each but Parquet may be packed by gzip or zstd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DataFormat {
    /// One JSON object per line.
    Jsonl,
    /// Comma-separated cells, or semicolon-separated if the header has no comma; the first row names the columns.
    Csv,
    /// Tab-separated cells; the first row names the columns.
    Tsv,
    /// Apache Parquet.
    Parquet,
}

impl DataFormat {
    /// All formats.
    pub const ALL: [Self; 4] = [Self::Jsonl, Self::Csv, Self::Tsv, Self::Parquet];

    /// Name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Jsonl => "jsonl",
            Self::Csv => "csv",
            Self::Tsv => "tsv",
            Self::Parquet => "parquet",
        }
    }

    /// Detects the format from the first (unpacked) bytes, then from the file name; JSON lines by default.
    pub(crate) fn detect(start: &[u8], path: &Path) -> Self {
        // Before the name: no text begins with these bytes.
        if start.starts_with(b"PAR1") {
            return Self::Parquet;
        }
        // Before the first line, which is a guess: the text of a CSV cell may begin with a brace and contain tabs.
        if let Some(format) = named(path) {
            return format;
        }
        let head = start.split(|&b| b == b'\n').next().unwrap_or_default();
        match start.trim_ascii_start().first() {
            Some(b'{' | b'[') | None => Self::Jsonl,
            // Before commas: cells of text often contain commas but rarely tabs.
            _ if head.contains(&b'\t') => Self::Tsv,
            _ if head.contains(&b',') || head.contains(&b';') => Self::Csv,
            _ => Self::Jsonl,
        }
    }
}

/// The format of a file name extension, ignoring a compression suffix.
fn named(path: &Path) -> Option<DataFormat> {
    let name = path.file_name()?.to_str()?.to_ascii_lowercase();
    let name = [".gz", ".zst", ".zstd"].iter().find_map(|packed| name.strip_suffix(packed)).unwrap_or(&name);
    match name.rsplit_once('.')?.1 {
        "jsonl" | "json" | "ndjson" => Some(DataFormat::Jsonl),
        "csv" => Some(DataFormat::Csv),
        "tsv" | "tab" => Some(DataFormat::Tsv),
        "parquet" => Some(DataFormat::Parquet),
        _ => None,
    }
}

/// The type of an unsupported file, from its first bytes, and a suggested fix.
pub(crate) fn foreign(start: &[u8]) -> Option<(&'static str, &'static str)> {
    const OLE: &[u8] = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1";
    if start.starts_with(b"PK\x03\x04") {
        return Some((
            "an Excel workbook (.xlsx) or another zip archive", "save the sheet as CSV (UTF-8), or unpack the archive",
        ));
    }
    if start.starts_with(OLE) {
        return Some(("an old Excel workbook (.xls)", "save the sheet as CSV (UTF-8)"));
    }
    start.starts_with(b"SQLite format 3").then_some(("an SQLite database", "export its table as CSV"))
}

impl fmt::Display for DataFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Unknown name of a [`DataFormat`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
#[error("unknown format `{name}`; the formats are {}", DataFormat::ALL.map(DataFormat::as_str).join(", "))]
pub struct UnknownFormat {
    /// The name.
    pub name: String,
}

impl FromStr for DataFormat {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        let found = Self::ALL.into_iter().find(|format| format.as_str() == name);
        found.ok_or_else(|| UnknownFormat { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_tells_parquet_then_the_name_then_the_first_line() {
        let cases: [(&[u8], &str, DataFormat); 11] = [
            (b"PAR1\x15", "data.csv", DataFormat::Parquet),
            (b"garbage", "d.parquet", DataFormat::Parquet),
            (b"a,b\n", "d.jsonl.gz", DataFormat::Jsonl),
            (b"{\"a\": 1}", "D.CSV.ZST", DataFormat::Csv),
            (b"a\tb,c\n1,2", "-", DataFormat::Tsv),
            (b"id,context\n", "-", DataFormat::Csv),
            (b"id;context\n", "data", DataFormat::Csv),
            (b" {\"id\": \"a,b\"}", "-", DataFormat::Jsonl),
            (b"[{}]", "-", DataFormat::Jsonl),
            (b"", "-", DataFormat::Jsonl),
            (b"text", "-", DataFormat::Jsonl),
        ];
        for (start, name, expected) in cases {
            assert_eq!(DataFormat::detect(start, Path::new(name)), expected, "{name}");
        }
    }

    #[test]
    fn names_are_read_back() {
        assert!(DataFormat::ALL.into_iter().all(|format| format.to_string().parse() == Ok(format)));
        assert!("xlsx".parse::<DataFormat>().is_err_and(|e| e.to_string().contains("jsonl, csv, tsv, parquet")));
    }
}

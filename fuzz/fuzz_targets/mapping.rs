//! A table with arbitrary cells and mapping gives samples, problems with line numbers, or a printable error.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use probity_data::{DataFormat, MapEntry, Mapping, SampleSource};
use probity_fuzz::{Input, Word, show};

#[derive(Arbitrary)]
struct Table {
    tabs: bool,
    entries: Vec<Entry>,
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

#[derive(Arbitrary)]
struct Entry {
    field: u8,
    name: Word,
    constant: bool,
    column: Column,
}

#[derive(Arbitrary)]
enum Column {
    Own(u8),
    Letter(u8),
    Path(Vec<Step>),
    Word(Word),
}

#[derive(Arbitrary)]
enum Step {
    Key(u8),
    At(u16),
    All,
}

#[derive(Arbitrary)]
enum Cell {
    Word(Word),
    Number(f64),
    Small(i8),
    Json(Vec<Word>),
    Broken(Word),
}

const FIELDS: [&str; 12] = [
    "id",
    "context",
    "instruction",
    "candidate",
    "candidate-id",
    "reference",
    "score.a",
    "score.a.b",
    "preference",
    "preference.1",
    "candidate.a",
    "preference.tie",
];

const OWN: [&str; 14] = [
    "id",
    "context",
    "candidate",
    "candidate_a",
    "candidate_1",
    "candidates",
    "reference",
    "references",
    "score.a",
    "score.a.b",
    "preference",
    "chosen",
    "rejected",
    "instruction",
];

impl Column {
    fn text(&self) -> String {
        match self {
            Self::Own(at) => OWN[usize::from(*at) % OWN.len()].to_owned(),
            Self::Letter(letter) => char::from(b'a' + letter % 6).to_string(),
            Self::Path(steps) => steps.iter().fold("a".to_owned(), |path, step| match step {
                Step::Key(key) => format!("{path}.{}", char::from(b'a' + key % 3)),
                Step::At(at) => format!("{path}[{at}]"),
                Step::All => path + "[]",
            }),
            Self::Word(word) => word.to_string(),
        }
    }
}

impl Cell {
    fn text(&self) -> String {
        match self {
            Self::Word(word) => word.to_string(),
            Self::Number(number) => number.to_string(),
            Self::Small(number) => number.to_string(),
            Self::Json(list) => {
                serde_json::to_string(&serde_json::json!([{"a": list, "b": list.first()}])).expect("JSON")
            }
            Self::Broken(word) => format!("[{{\"a\": {word}"),
        }
    }
}

impl Table {
    fn source(&self) -> (Vec<String>, Vec<u8>) {
        let separator = if self.tabs { '\t' } else { ',' };
        let quoted = |text: String| {
            if self.tabs { text.replace(['\t', '\n'], " ") } else { format!("\"{}\"", text.replace('"', "\"\"")) }
        };
        let line = |cells: &mut dyn Iterator<Item = String>| {
            let cells: Vec<String> = cells.map(quoted).collect();
            cells.join(separator.encode_utf8(&mut [0; 4])) + "\n"
        };
        let mut text = line(&mut self.columns.iter().map(Column::text));
        for row in &self.rows {
            text += &line(&mut row.iter().map(Cell::text));
        }
        (self.entries.iter().map(Entry::text).collect(), text.into_bytes())
    }
}

impl Entry {
    fn text(&self) -> String {
        let field = FIELDS[usize::from(self.field) % FIELDS.len()];
        let named = field.ends_with(".a") && !self.name.0.is_empty();
        let name = if named { self.name.0 } else { "" };
        format!("{field}{name}{}={}", if self.constant { ":" } else { "" }, self.column.text())
    }
}

fuzz_target!(|data: &[u8]| {
    // As bytes: lines of a mapping, an empty line, the table.
    let (entries, bytes, format) = match Input::<Table>::new(data) {
        Some(Input::Text(text)) => {
            let text = String::from_utf8_lossy(text);
            let Some((mapping, table)) = text.split_once("\n\n") else { return };
            (mapping.lines().map(str::to_owned).collect(), table.as_bytes().to_vec(), DataFormat::Csv)
        }
        Some(Input::Made(table)) => {
            let (entries, bytes) = table.source();
            (entries, bytes, if table.tabs { DataFormat::Tsv } else { DataFormat::Csv })
        }
        None => return,
    };
    show(&format!("{entries:?}\n{}", String::from_utf8_lossy(&bytes)));
    let Ok(entries) = entries.iter().map(|entry| entry.parse::<MapEntry>()).collect::<Result<Vec<_>, _>>() else {
        return;
    };
    assert!(entries.iter().all(|entry| entry.to_string().parse().as_ref() == Ok(entry)));
    let Ok(map) = Mapping::new(entries) else { return };
    let source = SampleSource { format: Some(format), map, ..SampleSource::new("fuzzed") };
    let Ok(mut file) = source.open_from(std::io::Cursor::new(bytes)) else { return };
    let rows = file.records.by_ref().take(10_000);
    assert!(rows.into_iter().all(|(line, sample)| line > 0 && !sample.id.is_empty() && sample.check().is_empty()));
    file.unmapped();
    let problems = file.records.into_problems();
    assert!(problems.to_string().chars().all(|c| c == '\n' || !c.is_control()));
});

//! A recipe with arbitrary bytes, or with arbitrary tables, keys and values, is read or rejected with printable
//! problems.
#![no_main]

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use probity_fuzz::{Input, Word, scratch, show};

/// One quoted key per line; also libFuzzer's dictionary.
const KEYS: &str = include_str!("../dictionaries/recipe.dict");

static FILE: LazyLock<PathBuf> = LazyLock::new(|| scratch().join("recipe.toml"));

#[derive(Arbitrary)]
struct Table {
    kind: u8,
    name: Option<Word>,
    entries: Vec<(u8, Value)>,
}

#[derive(Arbitrary)]
enum Value {
    Key(u8),
    Number(i64),
    Float(f64),
    Flag(bool),
    Text(Word),
    Braces(u8),
    List(Vec<Value>),
    Map(Vec<(u8, Value)>),
    Method(u8),
}

const METHODS: [&str; 10] =
    ["compare", "g-eval", "gpt-score", "judge", "para-pluie", "revise", "reviseval", "attributes", "metrics", "meta"];
const KINDS: [&str; 6] = ["defaults", "data", "model", "report", "run", "other"];

fn key(at: u8) -> &'static str {
    let keys = KEYS.lines().filter_map(|line| line.strip_prefix('"')?.strip_suffix('"'));
    let count = keys.clone().count().max(1);
    keys.clone().nth(usize::from(at) % count).unwrap_or("method")
}

fn quoted(text: &str) -> String {
    // JSON escapes are valid in TOML.
    serde_json::to_string(text).expect("text").replace('\u{7f}', "")
}

impl Value {
    fn text(&self) -> String {
        match self {
            Self::Key(at) => quoted(key(*at)),
            Self::Number(number) => number.to_string(),
            Self::Float(number) => format!("{number:?}").replace("NaN", "nan"),
            Self::Flag(flag) => flag.to_string(),
            Self::Text(word) => quoted(word.0),
            Self::Braces(at) => quoted(["{run}", "{model}/{data}", "{", "{}", "{x}", "../{run}"][usize::from(*at) % 6]),
            Self::List(list) => format!("[{}]", list.iter().map(Self::text).collect::<Vec<_>>().join(", ")),
            Self::Map(entries) => {
                let entries: Vec<String> = entries
                    .iter()
                    .map(|(at, value)| {
                        format!(
                            "{} = \
                    {}",
                            quoted(key(*at)),
                            value.text()
                        )
                    })
                    .collect();
                format!("{{{}}}", entries.join(", "))
            }
            Self::Method(at) => quoted(METHODS[usize::from(*at) % METHODS.len()]),
        }
    }
}

fn text(tables: &[Table]) -> String {
    let mut text = String::new();
    for Table { kind, name, entries } in tables {
        let kind = KINDS[usize::from(*kind) % KINDS.len()];
        let _ = match name {
            Some(name) => writeln!(text, "[{kind}.{}]", quoted(name.0)),
            None => writeln!(text, "[{kind}]"),
        };
        for (at, value) in entries {
            let _ = writeln!(text, "{} = {}", key(*at), value.text());
        }
    }
    text
}

fuzz_target!(|data: &[u8]| {
    let recipe = match Input::<Vec<Table>>::new(data) {
        Some(Input::Text(bytes)) => bytes.to_vec(),
        Some(Input::Made(tables)) => text(&tables).into_bytes(),
        None => return,
    };
    show(&String::from_utf8_lossy(&recipe));
    std::fs::write(&*FILE, recipe).expect("written");
    let told = probity_cli::check_recipe(&FILE);
    assert!(told.chars().all(|c| matches!(c, '\n' | '\t') || !c.is_control()), "{told:?}");
});

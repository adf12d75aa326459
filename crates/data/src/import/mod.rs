//! Importers of public data sets.
//!
//! An importer reads the keys that it knows and ignores the others. Sample ids depend only on the file.

mod alpaca_farm;
mod judge_bench;
mod metacritique;
mod pairs;
mod parareval;
mod podcast;
mod reward_bench;
mod summeval;
mod topical_chat;
mod webnlg;
mod wmt_mqm;

use std::path::Path;

pub use metacritique::{CritiqueLabels, LabelledCritiques, labelled_critiques};
pub use parareval::extended_choice;

use serde::de::DeserializeOwned;

use probity_lm::{nearest, refuse_repeated_keys};

use crate::line_error::{LineError, excerpt, in_words};
use crate::open::{file_name, read_whole};
use crate::{DataError, JsonLines, Sample};

/// Maximum unpacked size of an imported file, which is held in memory.
const LONGEST: u64 = 1 << 30;

/// Converts a file of one public data set to samples.
#[derive(Clone, Copy)]
pub struct Importer {
    /// Name on the command line.
    pub name: &'static str,
    /// One-line description of the data set and of the samples made from it.
    pub summary: &'static str,
    convert: fn(&[u8]) -> Result<Vec<Sample>, Malformed>,
}

/// Location and cause of a mismatch with the expected form.
struct Malformed {
    path: String,
    why: String,
}

/// All importers, sorted by name.
pub fn importers() -> &'static [Importer] {
    const IMPORTERS: &[Importer] = &[
        alpaca_farm::IMPORTER,
        pairs::AUTO_J,
        judge_bench::IMPORTER,
        pairs::LLMBAR,
        metacritique::IMPORTER,
        parareval::IMPORTER,
        podcast::IMPORTER,
        reward_bench::IMPORTER,
        summeval::IMPORTER,
        topical_chat::IMPORTER,
        webnlg::IMPORTER,
        wmt_mqm::IMPORTER,
    ];
    IMPORTERS
}

/// The importer with this name.
pub fn importer(name: &str) -> Result<&'static Importer, DataError> {
    importers().iter().find(|i| i.name == name).ok_or_else(|| {
        let names = importers().iter().map(|i| i.name);
        let known = names.clone().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ");
        DataError::UnknownImporter { name: excerpt(name), nearest: nearest(name, names), known }
    })
}

impl Importer {
    /// Imports a file, or standard input for `-`: valid samples with unique ids, in the order of the file.
    pub fn import(&self, path: &Path) -> Result<Vec<Sample>, DataError> {
        self.import_bytes(&read_whole(path, LONGEST)?, &file_name(path))
    }

    /// Same as [`Importer::import`], from memory; `file` is the file name for messages.
    pub fn import_bytes(&self, bytes: &[u8], file: &str) -> Result<Vec<Sample>, DataError> {
        // Only on failure: this runs every other importer over the whole file.
        let fits = || {
            let reads = |other: &&Importer| {
                other.name != self.name && (other.convert)(bytes).is_ok_and(|samples| !samples.is_empty())
            };
            importers().iter().find(reads).map(|other| other.name)
        };
        let fail = |m: Malformed| DataError::Import {
            file: file.to_owned(),
            importer: self.name,
            path: excerpt(&m.path),
            why: m.why,
            hint: fits().map(|fits| format!("probity import {fits} {file}")),
        };
        let samples = (self.convert)(bytes).map_err(fail)?;
        if samples.is_empty() {
            return Err(fail(Malformed { path: String::new(), why: "it has no items".into() }));
        }
        let wrong =
            |(index, error): (usize, LineError)| Malformed { path: samples[index].id.clone(), why: error.to_string() };
        crate::write::check_all(&samples).map_err(|e| fail(wrong(e)))?;
        Ok(samples)
    }
}

/// Parses the whole file as `T`; errors have the path of keys.
fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Malformed> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|e| {
        let path = e.path().to_string();
        Malformed {
            path: if path == "." { String::new() } else { path },
            why: excerpt(&in_words(&without_place(e.into_inner().to_string()))),
        }
    })?;
    // Text after the document means JSON lines or two files in one: rows would be lost.
    deserializer.end().map_err(|e| Malformed { path: String::new(), why: e.to_string() })?;
    refuse_repeated_keys(bytes).map_err(|e| Malformed { path: String::new(), why: excerpt(&e.to_string()) })?;
    Ok(value)
}

/// The items of a file that is one array or JSON lines.
fn parse_rows<T: DeserializeOwned>(bytes: &[u8]) -> Result<Vec<T>, Malformed> {
    if bytes.trim_ascii_start().starts_with(b"[") {
        return parse(bytes);
    }
    let row = |(line, row): (usize, Result<T, LineError>)| {
        row.map_err(|e| Malformed { path: format!("line {line}"), why: e.to_string() })
    };
    JsonLines::new(bytes).map(row).collect()
}

/// serde reports errors of the whole file at column 0 of line 1, which is misleading.
fn without_place(why: String) -> String {
    why.strip_suffix(" at line 1 column 0").map(str::to_owned).unwrap_or(why)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::error::hint_of;

    /// A public file in the folder `PROBITY_SHARED_DATA` (default: `../shared/data` beside the workspace), if it
    /// exists.
    pub(crate) fn public_file(name: &str) -> Option<PathBuf> {
        let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data");
        let folder = std::env::var_os("PROBITY_SHARED_DATA").map_or_else(|| PathBuf::from(beside), PathBuf::from);
        let path = folder.join(name);
        if !path.is_file() {
            eprintln!("skipped: {name} is not there; set PROBITY_SHARED_DATA to the folder that holds it");
            return None;
        }
        Some(path)
    }

    /// The message of a file rejected by `name`.
    pub(crate) fn refusal(name: &str, text: &str) -> String {
        importer(name).expect("registered").import_bytes(text.as_bytes(), "f.json").expect_err("malformed").to_string()
    }

    #[test]
    fn names_are_unique_sorted_and_described() {
        assert!(importers().windows(2).all(|w| w[0].name < w[1].name));
        assert!(importers().iter().all(|i| !i.summary.is_empty() && !i.summary.ends_with('.')));
    }

    #[test]
    fn an_unknown_name_suggests_the_nearest_and_lists_the_rest() {
        let hint = hint_of(&importer("sumeval").map(|i| i.name).expect_err("unknown"));
        assert!(
            hint.contains(
                "did you mean `summeval`? the importers are `alpaca-farm`, `auto-j`, `judge-bench`, `llmbar`, \
                 `metacritique`, `parareval`, `podcast`, \
                 `reward-bench`, `summeval`, `topical-chat`, `webnlg`, `wmt-mqm`"
            ),
            "{hint}"
        );
    }

    #[test]
    fn a_key_that_is_there_twice_is_refused() {
        let row = r#"{"id": {"a": 1, "a": 2}}"#;
        for text in [format!("[\n{row}]"), row.to_owned()] {
            let why = parse_rows::<serde_json::Value>(text.as_bytes()).map(|_| ()).expect_err("twice").why;
            assert!(why.starts_with("duplicate key `a`"), "{why}");
        }
    }

    #[test]
    fn every_importer_refuses_what_is_not_its_file() {
        for importer in importers() {
            for text in ["", "3", "null", "[", "{}", "[]", "{\"a\": 1}", "[1]", "{\"a\":{}} x", "\u{feff}[{}]"] {
                let error = importer.import_bytes(text.as_bytes(), "f.json").expect_err("not a data set");
                let expected = format!("f.json is not a valid {} file: ", importer.name);
                assert!(error.to_string().starts_with(&expected), "{error}");
            }
        }
    }
}

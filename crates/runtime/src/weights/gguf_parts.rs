//! Models in several GGUF files, `NAME-00001-of-00003.gguf` and so on. The first has the metadata; each has its number,
//! the number of files, and the number of tensors of all files (`split.*`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use probity_models::TensorMemory;

use super::gguf_header::{GgufHeader, MetadataValue};
use super::{WeightsError, map_file};

const NUMBER: &str = "split.no";
const COUNT: &str = "split.count";
const TENSORS: &str = "split.tensors.count";
/// Digits of a number in a file name.
const DIGITS: usize = 5;
const ALL_NEEDED: &str = "download the parts again into one folder, with their published names; all are needed";

/// A file with its checked header.
pub(super) struct GgufPart {
    pub(super) path: PathBuf,
    pub(super) owner: Arc<dyn TensorMemory>,
    pub(super) header: GgufHeader,
}

/// The name of a part: `NAME-00002-of-00003.gguf`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PartName<'a> {
    /// `NAME`, with its folder if there is one.
    pub(crate) whole: &'a str,
    /// From 1.
    pub(crate) number: usize,
    pub(crate) count: usize,
    /// `gguf`, or that of another format with the same names.
    extension: &'a str,
}

impl<'a> PartName<'a> {
    pub(crate) fn parse(name: &'a str) -> Option<Self> {
        let (head, tail) = name.rsplit_once("-of-")?;
        let (whole, number) = head.rsplit_once('-')?;
        let (count, extension) = tail.rsplit_once('.')?;
        let read = |text: &str| {
            let is_number = text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| text.parse().ok()).flatten()
        };
        let (number, count) = (read(number)?, read(count)?);
        (1..=count).contains(&number).then_some(Self { whole, number, count, extension })
    }

    /// The name of another part.
    pub(crate) fn of_number(self, number: usize) -> String {
        format!("{}-{number:0DIGITS$}-of-{:0DIGITS$}.{}", self.whole, self.count, self.extension)
    }
}

/// The number of files of a model, by the metadata of one of them.
pub(super) fn count(part: &GgufPart) -> Result<u64, WeightsError> {
    Ok(integer(part, COUNT)?.unwrap_or(1))
}

/// The first part with all others, which are beside it.
pub(super) fn with_others(first: GgufPart) -> Result<Vec<GgufPart>, WeightsError> {
    let (count, place) = (count(&first)?, integer(&first, NUMBER)?.unwrap_or(0));
    let name = first.path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    let known = PartName::parse(&name).filter(|name| name.count as u64 == count && name.number as u64 == place + 1);
    let Some(known) = known else {
        let ending = format!("-{:0DIGITS$}-of-{count:0DIGITS$}.gguf", place + 1);
        let why = format!("it is part {} of {count}, but its name does not end in `{ending}`", place + 1);
        return Err(wrong(&first.path, NUMBER, why, "give all parts their published names"));
    };
    if place != 0 {
        let why = format!("it is part {} of {count}, and the metadata of the model are in part 1", place + 1);
        let hint = format!("use {}", beside(&first.path, &known.of_number(1)).display());
        return Err(wrong(&first.path, NUMBER, why, &hint));
    }
    let mut parts = vec![first];
    for number in 2..=known.count {
        let part = open(&beside(&parts[0].path, &known.of_number(number)), (number, known.count))?;
        check_belongs(&part, &parts[0], (number, known.count))?;
        parts.push(part);
    }
    check_tensors(&parts)?;
    Ok(parts)
}

fn beside(path: &Path, name: &str) -> PathBuf {
    path.with_file_name(name)
}

fn open(path: &Path, (number, count): (usize, usize)) -> Result<GgufPart, WeightsError> {
    if !path.is_file() {
        let (what, why) = (format!("part {number} of {count}"), "it is missing".to_owned());
        return Err(WeightsError::Malformed { path: path.to_owned(), what, why, hint: ALL_NEEDED.to_owned() });
    }
    GgufPart::read(path, Arc::new(map_file(path)?))
}

/// Checks that a part has its number, and the other metadata of the first part if it has any.
fn check_belongs(part: &GgufPart, first: &GgufPart, (number, count): (usize, usize)) -> Result<(), WeightsError> {
    for (key, expected) in [(NUMBER, number as u64 - 1), (COUNT, count as u64)] {
        let found = integer(part, key)?;
        if found != Some(expected) {
            let found = found.map_or_else(|| "none".to_owned(), |found| found.to_string());
            return Err(wrong(&part.path, key, format!("expected {expected} by its name, found {found}"), ALL_NEEDED));
        }
    }
    let differs = |(key, value): &(&String, &MetadataValue)| match key.as_str() {
        NUMBER | COUNT => false,
        // Its type may differ.
        TENSORS => integer(part, TENSORS).ok() != integer(first, TENSORS).ok(),
        key => first.header.metadata.get(key) != Some(*value),
    };
    match part.header.metadata.iter().find(differs) {
        Some((key, _)) => {
            let why = format!("it differs from that of {}, so they belong to different models", first.path.display());
            Err(wrong(&part.path, key, why, ALL_NEEDED))
        }
        None => Ok(()),
    }
}

/// Checks that the parts have as many tensors as the first says, each once.
fn check_tensors(parts: &[GgufPart]) -> Result<(), WeightsError> {
    let mut holders: BTreeMap<&str, &GgufPart> = BTreeMap::new();
    for (part, tensor) in parts.iter().flat_map(|part| part.header.tensors.iter().map(move |tensor| (part, tensor))) {
        if let Some(other) = holders.insert(&tensor.name, part) {
            return Err(WeightsError::Malformed {
                path: part.path.clone(),
                what: format!("tensor `{}`", tensor.name),
                why: format!("it is also in {}", other.path.display()),
                hint: ALL_NEEDED.to_owned(),
            });
        }
    }
    match integer(&parts[0], TENSORS)? {
        Some(expected) if expected != holders.len() as u64 => {
            let why = format!("expected {expected} tensors in all parts, found {}", holders.len());
            Err(wrong(&parts[0].path, TENSORS, why, ALL_NEEDED))
        }
        _ => Ok(()),
    }
}

fn integer(part: &GgufPart, key: &str) -> Result<Option<u64>, WeightsError> {
    let Some(value) = part.header.metadata.get(key) else { return Ok(None) };
    let why = || format!("expected a non-negative integer, found {}", value.kind());
    value.as_u64().map(Some).ok_or_else(|| wrong(&part.path, key, why(), ALL_NEEDED))
}

fn wrong(path: &Path, key: &str, why: String, hint: &str) -> WeightsError {
    WeightsError::Malformed { path: path.to_owned(), what: format!("metadata `{key}`"), why, hint: hint.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_known_by_its_name() {
        let name = PartName::parse("a/m-Q4_0-00002-of-00012.gguf").expect("a part");
        assert_eq!((name.whole, name.number, name.count), ("a/m-Q4_0", 2, 12));
        assert_eq!(name.of_number(1), "a/m-Q4_0-00001-of-00012.gguf");
        for other in ["m.gguf", "m-2-of-3.gguf", "m-00001-of-00003", "m-0000x-of-00003.gguf", "m-00004-of-00003.gguf"] {
            assert_eq!(PartName::parse(other), None, "{other}");
        }
    }
}

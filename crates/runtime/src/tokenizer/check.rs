//! Checks a `tokenizer.json` before the library parses it. The library trusts such files: unbounded steps, unbounded
//! growth of texts, and inconsistent parts, on which it panics or which it ignores.

use std::collections::HashSet;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value as Json;

use super::pipeline::missing_byte;

/// Maximum number of steps of one kind, nested or in sequence; real tokenizers have up to six.
const MAX_STEPS: usize = 64;
/// Maximum growth factor in bytes over all replacements; real ones reach about ten (an Arabic ligature).
const MAX_GROWTH: usize = 256;
/// Maximum number of special tokens around a text; real tokenizers have up to four.
const MAX_FRAME: usize = 256;

/// The parts of a `tokenizer.json` that the library does not check.
#[derive(serde::Deserialize)]
pub(super) struct UncheckedParts {
    #[serde(default)]
    pub(super) normalizer: Json,
    #[serde(default)]
    pub(super) pre_tokenizer: Json,
    #[serde(default)]
    post_processor: Json,
    #[serde(default)]
    pub(super) decoder: Json,
    #[serde(default)]
    added_tokens: Vec<Added>,
    pub(super) model: VocabularyModel,
}

#[derive(serde::Deserialize)]
struct Added {
    id: u32,
    content: String,
}

#[derive(serde::Deserialize)]
pub(super) struct VocabularyModel {
    #[serde(default)]
    pub(super) unk_token: Option<String>,
    #[serde(default)]
    pub(super) unk_id: Option<u32>,
    #[serde(default, rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    dropout: Option<f64>,
    #[serde(default)]
    ignore_merges: bool,
    #[serde(default)]
    vocab: Vocabulary,
    /// Only counted.
    #[serde(default)]
    merges: Option<Vec<IgnoredAny>>,
}

/// An invalid part of a `tokenizer.json`.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PartError {
    #[error("`{part}` has {steps} steps; {MAX_STEPS} are allowed")]
    Steps { part: &'static str, steps: usize },
    #[error("`{part}` may turn one byte into {growth}; {MAX_GROWTH} are allowed")]
    Growth { part: &'static str, growth: usize },
    #[error("`{part}`: {source}")]
    Charsmap { part: &'static str, source: Damaged },
    #[error(
        "`decoder` maps characters to bytes (ByteLevel), but neither `normalizer` nor `pre_tokenizer` maps bytes to \
         characters"
    )]
    DecoderAlone,
    #[error("`model.vocab` has no piece for the byte {byte:#04x}, so texts with it would lose it")]
    NoByte { byte: u8 },
    #[error("the added token `{name}` has id {id} in `added_tokens`, but {found} in the vocabulary")]
    Added { name: String, id: u32, found: String },
    #[error("`model.dropout` makes tokens random, so scores would not be reproducible")]
    Dropout,
    #[error("`model.merges` is empty, but the vocabulary has {pieces} pieces that need merges")]
    NoMerges { pieces: usize },
    #[error("`post_processor.{form}` has the token `{name}`, which is missing in `special_tokens`")]
    Template { form: &'static str, name: String },
    #[error("`post_processor` adds {tokens} tokens around a text; {MAX_FRAME} are allowed")]
    Frame { tokens: usize },
}

/// An invalid sentencepiece replacement table.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`precompiled_charsmap` is damaged: {what}")]
pub(super) struct Damaged {
    what: String,
}

/// The beginning of a text from a file, escaped for a message.
fn excerpt(text: &str) -> String {
    text.chars().take(40).flat_map(char::escape_debug).collect()
}

impl UncheckedParts {
    /// Checks all parts; the error names the invalid one.
    pub(super) fn check(&self) -> Result<(), PartError> {
        for (name, value) in [
            ("normalizer", &self.normalizer),
            ("pre_tokenizer", &self.pre_tokenizer),
            ("post_processor", &self.post_processor),
            ("decoder", &self.decoder),
        ] {
            let steps = steps(value);
            if steps.len() > MAX_STEPS {
                return Err(PartError::Steps { part: name, steps: steps.len() });
            }
            let growth = steps
                .iter()
                .map(|step| growth(step))
                .try_fold(1_usize, |all, one| Ok::<_, Damaged>(all.saturating_mul(one?)));
            let growth = growth.map_err(|source| PartError::Charsmap { part: name, source })?;
            if growth > MAX_GROWTH {
                return Err(PartError::Growth { part: name, growth });
            }
        }
        steps(&self.post_processor).into_iter().try_for_each(template)?;
        self.check_bytes()?;
        self.model.check()
    }

    /// Checks a byte-level tokenizer: bytes become characters before characters become bytes, and every possible byte
    /// has a piece. Otherwise the library drops bytes.
    fn check_bytes(&self) -> Result<(), PartError> {
        let has = |part: &Json| steps(part).iter().any(|step| step["type"] == "ByteLevel");
        let (before, after) = (has(&self.normalizer) || has(&self.pre_tokenizer), has(&self.decoder));
        if after && !before {
            return Err(PartError::DecoderAlone);
        }
        let is_bpe = self.model.kind.as_deref() == Some("BPE");
        // With an unknown token, the library writes that for a missing byte.
        if before && is_bpe && self.model.unk_token.is_none() {
            let added = self.added_tokens.iter().map(|token| token.content.as_str());
            if let Some(byte) = missing_byte(self.model.vocab.characters.iter().map(String::as_str).chain(added)) {
                return Err(PartError::NoByte { byte });
            }
        }
        Ok(())
    }

    /// Checks that each added token has the id from the file; `id_of` returns the library's id.
    pub(super) fn check_added(&self, id_of: impl Fn(&str) -> Option<u32>) -> Result<(), PartError> {
        let wrong = self.added_tokens.iter().find_map(|token| {
            let found = id_of(&token.content);
            (found != Some(token.id)).then_some((token, found))
        });
        let Some((token, found)) = wrong else { return Ok(()) };
        let found = found.map_or_else(|| "none".to_owned(), |id| id.to_string());
        Err(PartError::Added { name: excerpt(&token.content), id: token.id, found })
    }
}

impl VocabularyModel {
    fn check(&self) -> Result<(), PartError> {
        if self.dropout.is_some_and(|dropout| dropout != 0.0) {
            return Err(PartError::Dropout);
        }
        let is_bpe = self.kind.as_deref().is_none_or(|kind| kind == "BPE");
        if let Some(merges) = self.merges.as_ref().filter(|_| is_bpe && !self.ignore_merges)
            && merges.is_empty()
            && self.vocab.longest > 1
            && self.vocab.pieces > 512
        {
            return Err(PartError::NoMerges { pieces: self.vocab.pieces });
        }
        Ok(())
    }
}

/// Vocabulary statistics.
#[derive(Default)]
struct Vocabulary {
    pieces: usize,
    /// Length of the longest piece in characters.
    longest: usize,
    /// Pieces of one character. A byte-level tokenizer has one for each byte.
    characters: Vec<String>,
}

impl Vocabulary {
    fn add(&mut self, piece: &str) {
        self.pieces += 1;
        self.longest = self.longest.max(piece.chars().count());
        if piece.chars().nth(1).is_none() {
            self.characters.push(piece.to_owned());
        }
    }
}

impl<'de> Deserialize<'de> for Vocabulary {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Count;
        impl<'de> Visitor<'de> for Count {
            type Value = Vocabulary;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("pieces with their ids, or a list of pieces with their scores")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vocabulary, A::Error> {
                let mut found = Vocabulary::default();
                // Used only for membership, so its order does not matter.
                let mut ids = HashSet::new();
                while let Some((piece, id)) = map.next_entry::<String, u32>()? {
                    found.add(&piece);
                    // Fuzzing produced such a file, and the library accepted it.
                    if !ids.insert(id) {
                        let piece = excerpt(&piece);
                        return Err(A::Error::custom(format!(
                            "`model.vocab` gives the piece `{piece}` the id {id} of another piece"
                        )));
                    }
                }
                Ok(found)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vocabulary, A::Error> {
                let mut found = Vocabulary::default();
                while let Some((piece, _)) = list.next_element::<(String, IgnoredAny)>()? {
                    found.add(&piece);
                }
                Ok(found)
            }
        }
        deserializer.deserialize_any(Count)
    }
}

/// The steps of a part, with sequences flattened.
fn steps(part: &Json) -> Vec<&Json> {
    let inner =
        ["normalizers", "pretokenizers", "processors", "decoders"].into_iter().find_map(|name| part[name].as_array());
    match inner {
        Some(list) => list.iter().flat_map(steps).collect(),
        None if part.is_null() => Vec::new(),
        None => vec![part],
    }
}

/// Maximum bytes that a step makes of one byte.
fn growth(step: &Json) -> Result<usize, Damaged> {
    let len = |value: &Json| value.as_str().map_or(0, str::len);
    match step["type"].as_str() {
        Some("Replace") => {
            let content = len(&step["content"]);
            Ok(match step["pattern"]["String"].as_str().map(str::len) {
                Some(pattern) if pattern > 0 => content.div_ceil(pattern).max(1),
                // A regular expression can match the empty string before each byte.
                _ => content + 1,
            })
        }
        Some("Prepend") => Ok(len(&step["prepend"]) + 1),
        // A non-ASCII byte becomes two; a piece of one byte may get a leading space. A fuzzer chained such steps and
        // turned one byte into 67 million.
        Some("ByteLevel") => Ok(if step["add_prefix_space"] == true { 4 } else { 2 }),
        Some("Metaspace") => Ok(1 + len(&step["replacement"])),
        Some("Precompiled") => charsmap(step["precompiled_charsmap"].as_str().unwrap_or_default()),
        _ => Ok(1),
    }
}

/// Checks that a template only names tokens that it defines.
fn template(step: &Json) -> Result<(), PartError> {
    if step["type"] != "TemplateProcessing" {
        return Ok(());
    }
    let mut tokens = 0;
    for form in ["single", "pair"] {
        for piece in step[form].as_array().into_iter().flatten() {
            let Some(id) = piece["SpecialToken"]["id"].as_str() else { continue };
            let Some(ids) = step["special_tokens"][id]["ids"].as_array() else {
                return Err(PartError::Template { form, name: excerpt(id) });
            };
            tokens += ids.len();
        }
    }
    if tokens > MAX_FRAME { Err(PartError::Frame { tokens }) } else { Ok(()) }
}

/// A node of sentencepiece's table as read by `spm_precompiled`: a unit of a double array (Darts-clone).
#[derive(Clone, Copy)]
struct Node(usize);

impl Node {
    fn has_leaf(self) -> bool {
        (self.0 >> 8) & 1 == 1
    }

    fn value(self) -> usize {
        self.0 & ((1 << 31) - 1)
    }

    fn label(self) -> usize {
        self.0 & ((1 << 31) | 0xff)
    }

    fn offset(self) -> usize {
        (self.0 >> 10) << ((self.0 & (1 << 9)) >> 6)
    }
}

/// Maximum bytes that sentencepiece's replacement table makes of one byte. An error if a text could lead outside the
/// table.
///
/// The table consists of the size of a double array, the array, and the zero-terminated texts that its leaves point to.
/// The library trusts the size and all offsets.
fn charsmap(text: &str) -> Result<usize, Damaged> {
    let damaged = |what: &str| Damaged { what: what.to_owned() };
    let bytes = STANDARD.decode(text).map_err(|error| damaged(&error.to_string()))?;
    if bytes.is_empty() {
        return Ok(1);
    }
    let (size, rest) = bytes.split_first_chunk::<4>().ok_or_else(|| damaged("it has no size"))?;
    let size = u32::from_le_bytes(*size) as usize;
    if size == 0 || !size.is_multiple_of(4) || size > rest.len() {
        return Err(damaged(&format!("its array should have {size} bytes, but has {}", rest.len())));
    }
    let (array, texts) = rest.split_at(size);
    let array: Vec<Node> =
        array.as_chunks::<4>().0.iter().map(|unit| Node(u32::from_le_bytes(*unit) as usize)).collect();
    let texts = std::str::from_utf8(texts).map_err(|_| damaged("its texts are not UTF-8"))?;
    let mut growth = 1;
    let mut seen = vec![false; array.len()];
    let mut open = vec![(array[0].offset(), 0_usize)];
    while let Some((at, depth)) = open.pop() {
        // Any byte may follow.
        if at | 0xff >= array.len() {
            return Err(damaged("an offset is outside its array"));
        }
        // A corrupt array may contain a cycle.
        if std::mem::replace(&mut seen[at], true) {
            continue;
        }
        for byte in 1..=0xff_usize {
            let node = array[at ^ byte];
            if node.label() != byte {
                continue;
            }
            let next = (at ^ byte) ^ node.offset();
            if node.has_leaf() {
                let leaf = array.get(next).ok_or_else(|| damaged("a leaf is outside its array"))?.value();
                let text =
                    texts.get(leaf..).ok_or_else(|| damaged("a text is outside it, or begins inside a character"))?;
                let len = text.bytes().take_while(|&byte| byte != 0).count();
                growth = growth.max(len.div_ceil(depth + 1));
            }
            open.push((next, depth + 1));
        }
    }
    Ok(growth)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn checked(change: impl FnOnce(&mut Json)) -> Result<(), PartError> {
        let mut file = json!({
            "normalizer": {"type": "Sequence", "normalizers": [{"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
            "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [], "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [1], "tokens": ["[CLS]"]}}},
            "model": {"type": "BPE", "vocab": {"a": 0, "ab": 1}, "merges": []},
        });
        change(&mut file);
        serde_json::from_value::<UncheckedParts>(file).expect("readable").check()
    }

    #[test]
    fn parts_that_the_library_would_trust_are_refused_by_name() {
        assert_eq!(checked(|_| ()), Ok(()));
        let refused = |change: &dyn Fn(&mut Json)| checked(|file| change(file)).expect_err("refused").to_string();
        let many = |file: &mut Json| {
            file["pre_tokenizer"] =
                json!({"type": "Sequence", "pretokenizers": vec![json!({"type": "Digits"}); 10_000]});
        };
        assert!(refused(&many).contains("`pre_tokenizer` has 10000 steps"));
        let replace = json!({"type": "Replace", "pattern": {"String": "a"}, "content": "a".repeat(1_000)});
        let grown =
            refused(&|file| file["normalizer"] = json!({"type": "Sequence", "normalizers": vec![replace.clone(); 5]}));
        assert!(grown.contains("may turn one byte into 1000000000000000"), "{grown}");
        for (part, list) in [("normalizer", "normalizers"), ("pre_tokenizer", "pretokenizers")] {
            let doubled =
                refused(&|file| file[part] = json!({"type": "Sequence", list: vec![json!({"type": "ByteLevel"}); 26]}));
            assert!(doubled.contains("may turn one byte into 67108864"), "{doubled}");
        }
        let absent = refused(&|file| file["post_processor"]["special_tokens"] = json!({}));
        assert!(absent.contains("the token `[CLS]`, which is missing in `special_tokens`"), "{absent}");
        let dropped = refused(&|file| file["model"]["dropout"] = json!(0.1));
        assert!(dropped.contains("`model.dropout`"), "{dropped}");
        let vocab: serde_json::Map<String, Json> = (0..1_000).map(|id| (format!("piece{id}"), json!(id))).collect();
        let emptied = refused(&|file| file["model"]["vocab"] = vocab.clone().into());
        assert!(emptied.contains("`model.merges` is empty"), "{emptied}");
    }

    #[test]
    fn a_byte_level_vocabulary_has_a_piece_for_each_byte_and_an_id_for_each_piece() {
        let byte_level = |change: &dyn Fn(&mut serde_json::Map<String, Json>, &mut Json)| {
            let pieces = (0..=0x143).filter_map(char::from_u32).filter(|c| !c.is_control());
            let mut vocab = pieces.enumerate().map(|(id, c)| (c.to_string(), json!(id))).collect();
            let mut steps = json!({"type": "ByteLevel"});
            change(&mut vocab, &mut steps);
            let file = json!({"pre_tokenizer": steps, "decoder": {"type": "ByteLevel"}, "model": {"type": "BPE", "vocab": vocab, "merges": []}});
            serde_json::from_value::<UncheckedParts>(file)
                .map_err(|why| why.to_string())
                .and_then(|parts| parts.check().map_err(|why| why.to_string()))
        };
        assert_eq!(byte_level(&|_, _| ()), Ok(()));
        let lost = byte_level(&|vocab, _| drop(vocab.remove("R"))).expect_err("refused");
        assert!(lost.contains("no piece for the byte 0x52"), "{lost}");
        let shared = byte_level(&|vocab, _| vocab["R"] = vocab["S"].clone()).expect_err("refused");
        assert!(shared.contains("of another piece"), "{shared}");
        let bytes = byte_level(&|_, steps| *steps = Json::Null).expect_err("refused");
        assert!(bytes.contains("neither `normalizer` nor `pre_tokenizer`"), "{bytes}");
    }

    #[test]
    fn a_table_of_replacements_is_walked_to_its_ends() {
        let with = |text: &str| {
            checked(|file| file["normalizer"] = json!({"type": "Precompiled", "precompiled_charsmap": text}))
        };
        for damaged in ["AAAA", "////////", "BAAAAP////8=", "not base64!"] {
            assert!(
                with(damaged).is_err_and(|why| why.to_string().contains("`precompiled_charsmap` is damaged")),
                "{damaged}"
            );
        }
        // One block in which `a` maps to the text at 0: a node for `a` (0x61) at 0x61 with offset 0x80, so its leaf is
        // at 0xe1.
        let mut array = vec![0_u32; 256];
        array[0x61] = (0x80 << 10) | (1 << 8) | 0x61;
        array[0xe1] = 1 << 31;
        let table = |array: &[u32], texts: &[u8]| {
            let size = (array.len() as u32 * 4).to_le_bytes();
            STANDARD.encode(
                [&size[..], &array.iter().flat_map(|unit| unit.to_le_bytes()).collect::<Vec<u8>>(), texts].concat(),
            )
        };
        assert_eq!(with(&table(&array, b"bc\0")), Ok(()));
        let long = with(&table(&array, &[b'x'; 1_000])).expect_err("too long").to_string();
        assert!(long.contains("may turn one byte into 1000"), "{long}");
        assert!(with(&table(&array, &[0xff])).is_err_and(|why| why.to_string().contains("UTF-8")));
        array[0xe1] = (1 << 31) | 7;
        assert!(with(&table(&array, b"bc\0")).is_err_and(|why| why.to_string().contains("a text is outside")));
        array[0x61] = (0x3fff << 10) | 0x61;
        assert!(with(&table(&array, b"bc\0")).is_err_and(|why| why.to_string().contains("outside its array")));
    }

    #[test]
    fn an_added_token_has_the_id_that_its_file_says() {
        let file = json!({"added_tokens": [{"id": 2, "content": "<s>"}], "model": {"vocab": {"a": 0}}});
        let parts: UncheckedParts = serde_json::from_value(file).expect("readable");
        assert_eq!(parts.check_added(|_| Some(2)), Ok(()));
        let wrong = parts.check_added(|_| Some(1)).expect_err("another id");
        assert_eq!(wrong.to_string(), "the added token `<s>` has id 2 in `added_tokens`, but 1 in the vocabulary");
    }
}

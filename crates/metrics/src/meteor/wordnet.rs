//! Synonyms from `WordNet`'s database files (wndb(5WN)), as in nltk's reader.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use probity_options::read_text;
use rustc_hash::FxBuildHasher;

/// A part of speech: its file names and its rules from inflected to base forms, as pairs of endings.
struct PartOfSpeech {
    name: &'static str,
    endings: &'static [(&'static str, &'static str)],
}

const PARTS: [PartOfSpeech; 4] = [
    PartOfSpeech {
        name: "noun",
        endings: &[
            ("s", ""),
            ("ses", "s"),
            ("ves", "f"),
            ("xes", "x"),
            ("zes", "z"),
            ("ches", "ch"),
            ("shes", "sh"),
            ("men", "man"),
            ("ies", "y"),
        ],
    },
    PartOfSpeech {
        name: "verb",
        endings: &[
            ("s", ""),
            ("ies", "y"),
            ("es", "e"),
            ("es", ""),
            ("ed", "e"),
            ("ed", ""),
            ("ing", "e"),
            ("ing", ""),
        ],
    },
    PartOfSpeech { name: "adj", endings: &[("er", ""), ("est", ""), ("er", "e"), ("est", "e")] },
    PartOfSpeech { name: "adv", endings: &[] },
];

type WordTable<K, V> = HashMap<K, V, FxBuildHasher>;

/// The words of each synset, and the synsets of each word. Multi-word entries (with `_`) are omitted, because they
/// never match.
#[derive(Debug)]
pub(super) struct WordNet {
    parts: Vec<Lexicon>,
    version: String,
}

/// One part of speech.
#[derive(Debug, Default)]
struct Lexicon {
    /// Synset offsets of a word.
    index: WordTable<String, Vec<u64>>,
    /// Words of the synset at an offset.
    synsets: WordTable<u64, Vec<String>>,
    /// Base forms of irregular forms.
    exceptions: WordTable<String, Vec<String>>,
}

/// Error of reading `WordNet`'s files.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub(super) enum WordNetError {
    #[error("cannot read {path}: {source}")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{path}, line {line}: {what} is missing or not well formed")]
    Malformed { path: PathBuf, line: usize, what: &'static str },
}

impl WordNet {
    /// Reads the index, data and exception files of nouns, verbs, adjectives and adverbs in a folder.
    pub(super) fn read(folder: &Path) -> Result<Self, WordNetError> {
        let mut version = None;
        let mut parts = Vec::new();
        for part in PARTS {
            let mut lexicon = Lexicon::default();
            read(folder.join(format!("index.{}", part.name)), |line| lexicon.index_line(line))?;
            let data = read(folder.join(format!("data.{}", part.name)), |line| lexicon.data_line(line))?;
            read(folder.join(format!("{}.exc", part.name)), |line| lexicon.exception_line(line))?;
            version =
                version.or_else(|| data.lines().take_while(|line| line.starts_with(' ')).find_map(stated_version));
            parts.push(lexicon);
        }
        Ok(Self { parts, version: version.unwrap_or_else(|| "unknown".to_owned()) })
    }

    /// The version named in the licence of the files, such as `3.0`.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// All words that share a synset with a word or with a base form of it; may contain duplicates.
    pub(super) fn synonyms(&self, word: &str) -> Vec<&str> {
        let mut synonyms = Vec::new();
        for (part, lexicon) in PARTS.iter().zip(&self.parts) {
            for form in lexicon.base_forms(part, word) {
                let synsets = lexicon.index.get(&form).into_iter().flatten();
                synonyms.extend(synsets.filter_map(|offset| lexicon.synsets.get(offset)).flatten().map(String::as_str));
            }
        }
        synonyms
    }
}

impl Lexicon {
    /// `lemma pos synset_cnt p_cnt [ptr_symbol…] sense_cnt tagsense_cnt synset_offset [synset_offset…]`
    fn index_line(&mut self, line: &str) -> Result<(), &'static str> {
        let mut fields = line.split_ascii_whitespace();
        let lemma = fields.next().ok_or("the lemma")?;
        let synsets: usize = fields.nth(1).and_then(number).ok_or("the number of synsets")?;
        let pointers: usize = fields.next().and_then(number).ok_or("the number of pointers")?;
        // Two counts follow the pointers and are skipped: sense_cnt and tagsense_cnt.
        let offsets: Option<Vec<u64>> = fields.skip(pointers + 2).map(number).collect();
        let offsets = offsets.filter(|offsets| offsets.len() == synsets).ok_or("a synset's offset")?;
        self.index.insert(lemma.to_owned(), offsets);
        Ok(())
    }

    /// `synset_offset lex_filenum ss_type w_cnt word lex_id [word lex_id…] …`; the word of an adjective may have a
    /// marker, as in `galore(ip)`.
    fn data_line(&mut self, line: &str) -> Result<(), &'static str> {
        let mut fields = line.split_ascii_whitespace();
        let offset = fields.next().and_then(number).ok_or("the synset's offset")?;
        let count =
            // The number of words in a synset is hexadecimal, unlike the counts of the index.
            fields.nth(2).and_then(|count| usize::from_str_radix(count, 16).ok()).ok_or("the number of words")?;
        let mut words = Vec::new();
        for _ in 0..count {
            let word = fields.next().ok_or("a word")?;
            fields.next().ok_or("a word's number")?;
            let word = word.strip_suffix(')').and_then(|marked| marked.rsplit_once('(')).map_or(word, |(word, _)| word);
            if !word.contains('_') {
                words.push(word.to_owned());
            }
        }
        self.synsets.insert(offset, words);
        Ok(())
    }

    /// `inflected base [base…]`
    fn exception_line(&mut self, line: &str) -> Result<(), &'static str> {
        let mut fields = line.split_ascii_whitespace().map(str::to_owned);
        let inflected = fields.next().ok_or("the inflected form")?;
        self.exceptions.insert(inflected, fields.collect());
        Ok(())
    }

    /// The word and its base forms: from the exception list if it has the word, otherwise from the rules for endings.
    /// Forms missing from the index have no synsets.
    fn base_forms(&self, part: &PartOfSpeech, word: &str) -> Vec<String> {
        let mut forms = vec![word.to_owned()];
        match self.exceptions.get(word) {
            // As in nltk's morphy: the rules for endings are not applied to irregular forms.
            Some(bases) => forms.extend(bases.iter().cloned()),
            None => forms
                .extend(part.endings.iter().filter_map(|(old, new)| Some(word.strip_suffix(old)?.to_owned() + new))),
        }
        forms
    }
}

fn number<T: std::str::FromStr>(field: &str) -> Option<T> {
    field.parse().ok()
}

/// `3.0` from a line of the licence, `… WordNet 3.0 Copyright 2006 …`.
fn stated_version(line: &str) -> Option<String> {
    let (before, _) = line.split_once(" Copyright")?;
    let version = before.rsplit(' ').next()?;
    version.starts_with(|c: char| c.is_ascii_digit()).then(|| version.to_owned())
}

/// Passes each line to `entry` and returns the text. Licence lines, which start with a space, are skipped.
fn read(path: PathBuf, mut entry: impl FnMut(&str) -> Result<(), &'static str>) -> Result<String, WordNetError> {
    let text = match read_text(&path) {
        Ok(text) => text,
        Err(source) => return Err(WordNetError::Read { path, source }),
    };
    for (line, number) in text.lines().zip(1..).filter(|(line, _)| !line.starts_with(' ')) {
        if let Err(what) = entry(line) {
            return Err(WordNetError::Malformed { path, line: number, what });
        }
    }
    Ok(text)
}

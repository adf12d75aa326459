//! Reads documents from text, Markdown and JSON lines files, and from folders of them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use unicode_segmentation::UnicodeSegmentation as _;

use crate::line_error::{LineError, excerpt};
use crate::open::{file_name, open, read_whole};
use crate::{DataError, JsonLines, LineProblems};

/// Maximum unpacked size of a text file, which is held in memory.
const LONGEST: u64 = 1 << 30;

/// File name extensions that are read from a folder.
const ENDINGS: [&str; 5] = ["txt", "md", "markdown", "text", "jsonl"];

const EXAMPLE: &str = r#"{"id": "a1", "text": "…"}"#;

/// A named text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// Unique among the documents read together.
    pub id: String,
    /// The text, not empty.
    pub text: String,
}

/// A row of JSON lines. The context of a sample is a document too.
#[derive(Deserialize)]
struct DocumentRow {
    id: Option<String>,
    #[serde(alias = "context")]
    text: String,
}

/// Reads documents from files and folders, in the order of `paths` and, within a folder, of the paths of its files.
///
/// Each line of a `.jsonl` file is a document, with its `id` (or line number) and its `text` or `context`. Any other
/// file is one document, named after the file. Folders are searched recursively for text, Markdown and JSON lines
/// files; hidden files and other extensions are skipped.
///
/// # Errors
/// A file is unreadable, empty or not text; a line is invalid; two documents have the same name.
pub fn read_documents(paths: &[PathBuf]) -> Result<Vec<Document>, DataError> {
    let mut documents = Vec::new();
    let mut known = BTreeSet::new();
    for path in paths {
        for file in document_files(path)? {
            let name = file.strip_prefix(path).ok().filter(|rest| !rest.as_os_str().is_empty());
            let name = name.map_or_else(|| file_name(&file), |rest| rest.display().to_string());
            for (line, mut document) in read_file(&file, &name)? {
                if document.id == name && known.contains(&name) {
                    // Two folders may contain files of one name, so use the whole path.
                    document.id = file.display().to_string();
                }
                if !known.insert(document.id.clone()) {
                    let why = format!("duplicate document id `{}`", excerpt(&document.id));
                    let error = LineError::content("id", why).with_hint("give each document a unique `id`");
                    return Err(problem(&file, line, error));
                }
                documents.push(document);
            }
        }
    }
    Ok(documents)
}

/// The files that documents are read from: `path` itself, or the files of a folder sorted by name.
///
/// # Errors
/// A folder is unreadable or contains no document.
pub fn document_files(path: &Path) -> Result<Vec<PathBuf>, DataError> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    look_through(path, &mut files)?;
    if files.is_empty() { Err(problem(path, 1, nothing_in_folder())) } else { Ok(files) }
}

fn nothing_in_folder() -> LineError {
    let hint = format!("add files whose names end in {}", ENDINGS.map(|ending| format!(".{ending}")).join(", "));
    LineError::content("", "the folder contains no documents").with_hint(hint)
}

fn problem(file: &Path, line: usize, error: LineError) -> DataError {
    let mut problems = LineProblems { example: Some(EXAMPLE), ..LineProblems::new(file_name(file)) };
    problems.push(line, error);
    DataError::Problems(problems)
}

fn look_through(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), DataError> {
    let refused = DataError::open(file_name(folder));
    let mut entries: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(folder).map_err(&refused)? {
        entries.push(entry.map_err(&refused)?.path());
    }
    // The order of the file system is undefined.
    entries.sort();
    for path in entries {
        let is_hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        // A link to a folder may lead back up.
        let is_link = path.is_symlink();
        if is_hidden || (is_link && path.is_dir()) {
            continue;
        }
        if path.is_dir() {
            look_through(&path, files)?;
        } else if is_document(&path) && path.is_file() {
            // A pipe in a folder may never end.
            files.push(path);
        }
    }
    Ok(())
}

fn is_document(path: &Path) -> bool {
    ending(path).is_some_and(|ending| ENDINGS.contains(&ending.as_str()))
}

/// The extension of a file name in lower case, ignoring a compression suffix.
fn ending(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_string_lossy().to_lowercase();
    let name = name.strip_suffix(".gz").or(name.strip_suffix(".zst")).unwrap_or(&name);
    name.rsplit_once('.').map(|(_, ending)| ending.to_owned())
}

/// The documents of one file, each with its line number.
fn read_file(file: &Path, name: &str) -> Result<Vec<(usize, Document)>, DataError> {
    // Pipes are rejected because they cannot be read a second time.
    probity_options::open_regular(file).map_err(DataError::open(file_name(file)))?;
    let ending = ending(file);
    if ending.as_deref() == Some("json") {
        let error = LineError::content("", "a .json file cannot be read as a document");
        return Err(problem(file, 1, error.with_hint("write one document per line in a .jsonl file")));
    }
    if ending.as_deref() != Some("jsonl") {
        let text = read_text(file)?;
        return Ok(vec![(1, Document { id: name.to_owned(), text })]);
    }
    let mut problems = LineProblems { example: Some(EXAMPLE), ..LineProblems::new(file_name(file)) };
    let mut documents = Vec::new();
    for (line, row) in JsonLines::<DocumentRow, _>::new(open(file)?) {
        match row {
            Ok(DocumentRow { text, .. }) if text.trim().is_empty() => {
                problems.push(line, LineError::content("text", "the document is empty").with_hint(LEAVE_OUT));
            }
            Ok(DocumentRow { text, .. }) if text.contains('\0') => {
                problems.push(line, LineError::content("text", NO_TEXT).with_hint(LEAVE_OUT));
            }
            Ok(DocumentRow { id, text }) => {
                let id = id.filter(|id| !id.is_empty()).unwrap_or_else(|| format!("{name}:{line}"));
                documents.push((line, Document { id, text }));
            }
            Err(error) => problems.push(line, error),
        }
    }
    if documents.is_empty() && problems.is_empty() {
        problems.push(1, LineError::content("", "the file contains no documents").with_hint(LEAVE_OUT));
    }
    if problems.is_empty() { Ok(documents) } else { Err(DataError::Problems(problems)) }
}

const LEAVE_OUT: &str = "remove it, or add its text";
const NO_TEXT: &str = "it contains a NUL character";

fn read_text(file: &Path) -> Result<String, DataError> {
    let bytes = read_whole(file, LONGEST)?;
    let line_of = |at: usize| bytes[..at].split(|byte| *byte == b'\n').count();
    let refuse = |line: usize, why: &str| {
        problem(file, line, LineError::content("", why).with_hint("convert it to UTF-8, or remove it"))
    };
    if let Some(at) = bytes.iter().position(|byte| *byte == 0) {
        return Err(refuse(line_of(at), NO_TEXT));
    }
    let text =
        std::str::from_utf8(&bytes).map_err(|error| refuse(line_of(error.valid_up_to()), "it is not valid UTF-8"))?;
    if text.trim().is_empty() {
        return Err(problem(file, 1, LineError::content("", "the document is empty").with_hint(LEAVE_OUT)));
    }
    Ok(text.to_owned())
}

/// Splits a text into passages of whole sentences with up to `size` tokens. Each passage starts with the last sentences
/// of the one before it, up to `overlap` tokens. `count` returns the token counts of several texts. A sentence longer
/// than a passage is split between words.
///
/// # Errors
/// The errors of `count`.
pub fn passages<E>(
    text: &str,
    size: usize,
    overlap: usize,
    mut count: impl FnMut(&[&str]) -> Result<Vec<usize>, E>,
) -> Result<Vec<String>, E> {
    let sentences: Vec<&str> = text.split_sentence_bounds().collect();
    let lengths = count(&sentences)?;
    let mut pieces: Vec<(&str, usize)> = Vec::with_capacity(sentences.len());
    for (sentence, length) in sentences.into_iter().zip(lengths) {
        if length <= size {
            pieces.push((sentence, length));
            continue;
        }
        // Scripts without spaces have no word boundaries, so long words are split by characters.
        let words: Vec<&str> = sentence.split_word_bounds().flat_map(|word| cut(word, size * CHARACTERS)).collect();
        let lengths = count(&words)?;
        let (mut start, mut end, mut sum) = (0, 0, 0);
        for (word, length) in words.iter().zip(lengths) {
            if sum + length > size && end > start {
                pieces.push((&sentence[start..end], sum));
                (start, sum) = (end, 0);
            }
            (end, sum) = (end + word.len(), sum + length);
        }
        pieces.push((&sentence[start..end], sum));
    }
    let mut passages = Vec::new();
    let mut first = 0;
    while first < pieces.len() {
        let (mut last, mut sum) = (first, 0);
        while last < pieces.len() && (last == first || sum + pieces[last].1 <= size) {
            sum += pieces[last].1;
            last += 1;
        }
        let passage: String = pieces[first..last].iter().map(|(piece, _)| *piece).collect();
        if !passage.trim().is_empty() {
            passages.push(passage.trim().to_owned());
        }
        if last == pieces.len() {
            break;
        }
        let mut next = last;
        let mut shared = 0;
        // Advance by at least one piece, so that the loop terminates.
        while next > first + 1 && shared + pieces[next - 1].1 <= overlap {
            next -= 1;
            shared += pieces[next].1;
        }
        first = next;
    }
    Ok(passages)
}

/// Maximum characters per token in passage lengths: an unknown word of any length may be one token.
const CHARACTERS: usize = 8;

/// Splits a word into pieces of at most `most` characters.
fn cut(word: &str, most: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = word;
    while let Some((at, _)) = rest.char_indices().nth(most) {
        pieces.push(&rest[..at]);
        rest = &rest[at..];
    }
    pieces.push(rest);
    pieces
}

/// The number of tokens of a text for passage lengths, at least one per 8 characters.
pub fn passage_tokens(text: &str, tokens: usize) -> usize {
    tokens.max(text.chars().count().div_ceil(CHARACTERS))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::error::hint_of;

    #[expect(clippy::unnecessary_wraps, reason = "what counts tokens may fail")]
    fn count_words(texts: &[&str]) -> Result<Vec<usize>, Infallible> {
        Ok(texts.iter().map(|text| text.split_whitespace().count()).collect())
    }

    #[test]
    fn passages_are_whole_sentences_that_overlap() {
        let text = "One two three. Four five.\n\nSix seven eight nine. Ten.";
        let Ok(found) = passages(text, 6, 2, count_words);
        assert_eq!(found, ["One two three. Four five.", "Four five.\n\nSix seven eight nine.", "Ten."]);
        let Ok(found) = passages(text, 100, 10, count_words);
        assert_eq!(found, [text]);
        let long = "a".repeat(100);
        let count = |texts: &[&str]| -> Result<Vec<usize>, Infallible> {
            Ok(texts.iter().map(|text| passage_tokens(text, 1)).collect())
        };
        let Ok(found) = passages(&long, 4, 0, count);
        assert_eq!(found.iter().map(String::len).collect::<Vec<_>>(), [32, 32, 32, 4]);
        let Ok(found) = passages("a b c d e f g. h", 3, 0, count_words);
        assert_eq!(found, ["a b c", "d e f", "g. h"]);
        let Ok(found) = passages("a b c d e f g. h", 3, 9, count_words);
        assert!(found.len() < 9 && found.last().is_some_and(|last| last.ends_with('h')), "{found:?}");
    }

    #[test]
    fn files_and_folders_are_read_in_order() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let write = |name: &str, content: &[u8]| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(&path, content).expect("written");
            path
        };
        write("b.md", b"\xef\xbb\xbf# B\n");
        write("sub/a.txt", b"A");
        write(".hidden.txt", b"H");
        write("picture.png", b"\0");
        let lines = write("c.jsonl", b"{\"id\": \"x\", \"text\": \"X\"}\n\n{\"context\": \"Y\", \"candidates\": []}\n");
        let read = |paths: &[PathBuf]| {
            read_documents(paths)
                .map(|all| all.into_iter().map(|one| format!("{}={}", one.id, one.text)).collect::<Vec<_>>())
        };
        assert_eq!(
            read(&[folder.path().to_owned()]).expect("readable"),
            ["b.md=# B\n", "x=X", "c.jsonl:3=Y", "sub/a.txt=A"]
        );
        for (path, part, hint) in [
            (write("empty.txt", b" \n"), "the document is empty", "remove it"),
            (write("binary.txt", b"a\nb\0"), "binary.txt: it contains a NUL", "UTF-8"),
            (write("latin.txt", b"a\n\nb\xe9"), "latin.txt: it is not valid UTF-8", "UTF-8"),
            (write("none.jsonl", b"\n"), "contains no documents", "remove it"),
            (write("bad.jsonl", b"{\"id\": \"x\"}\n"), "bad.jsonl", "{\"id\": \"a1\""),
            (write("blank.jsonl", b"{\"text\": \"a\"}\n{\"text\": \" \"}\n"), "blank.jsonl: field `text`", "remove it"),
            (folder.path().join("absent.txt"), "absent.txt", ""),
        ] {
            let error = read(&[path]).expect_err("refused");
            let (told, said) = (error.to_string(), hint_of(&error));
            assert!(told.contains(part) && said.contains(hint), "{part}: {told} / {said}");
        }
        let error = read(&[lines.clone(), lines]).expect_err("twice").to_string();
        assert!(error.contains("duplicate document id `x`"), "{error}");
        let empty = tempfile::tempdir().expect("temporary folder");
        assert!(read(&[empty.path().to_owned()]).expect_err("empty").to_string().contains("no document"));
    }
}

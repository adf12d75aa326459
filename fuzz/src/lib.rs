//! Code shared by the targets.

use std::fmt::{self, Display};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use libfuzzer_sys::arbitrary::{Arbitrary, Unstructured};

/// An input: plain bytes, so that files can be seeds, or generated from parts that fit together.
pub enum Input<'a, T> {
    /// The bytes after an even first byte.
    Text(&'a [u8]),
    /// The value after an odd first byte; boxed because it may be large.
    Made(Box<T>),
}

impl<'a, T: Arbitrary<'a>> Input<'a, T> {
    /// `None` if the bytes do not make a `T`.
    pub fn new(data: &'a [u8]) -> Option<Self> {
        TRIED.fetch_add(1, Ordering::Relaxed);
        let (first, rest) = data.split_first()?;
        match first % 2 {
            0 => Some(Self::Text(rest)),
            _ => T::arbitrary_take_rest(Unstructured::new(rest)).ok().map(|made| Self::Made(Box::new(made))),
        }
    }
}

/// Prints the generated input if `PROBITY_FUZZ_SHOW` is set, to inspect an artifact.
pub fn show(what: &impl Display) {
    static SHOW: LazyLock<bool> = LazyLock::new(|| std::env::var_os("PROBITY_FUZZ_SHOW").is_some());
    if *SHOW {
        eprintln!("{what}");
    }
}

/// A folder for files, in memory if possible.
pub fn scratch() -> PathBuf {
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let folder = place.join(format!("probity-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// Limits of a process: the number of inputs that reached a memory or time limit, and its pages, because the memory of
/// such inputs is never freed. `fuzz/run` starts the next process.
const MAX_STOPPED: usize = 2_000;
const MAX_PAGES: u64 = 600 << (20 - 12);

/// Number of inputs of this process; libFuzzer does not print it when a process exits by itself.
static TRIED: AtomicUsize = AtomicUsize::new(0);

/// Counts an error if it reports such a limit.
pub fn count_stopped(error: &impl Display) {
    static STOPPED: AtomicUsize = AtomicUsize::new(0);
    let text = error.to_string();
    if !(text.contains("MiB of memory") || text.contains("is not finished after")) {
        return;
    }
    let stopped = STOPPED.fetch_add(1, Ordering::Relaxed) + 1;
    if stopped == MAX_STOPPED {
        end();
    }
    end_when_large();
}

/// Ends the process if it has grown large over many inputs.
pub fn end_when_large() {
    let pages = std::fs::read_to_string("/proc/self/statm").ok().and_then(|text| text.split(' ').nth(1)?.parse().ok());
    if pages.unwrap_or(0) > MAX_PAGES {
        end();
    }
}

fn end() {
    eprintln!("after {} inputs a new process goes on", TRIED.load(Ordering::Relaxed));
    // SAFETY: ends the process; libFuzzer has already written every input that found something.
    unsafe { libc::_exit(0) }
}

/// A text from a short list, so that parts of an input refer to one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word(pub &'static str);

const WORDS: [&str; 48] = [
    "",
    "a",
    "b",
    "ab",
    "ba",
    "aa",
    "aab",
    "abab",
    " ",
    "  ",
    "\n",
    "\t",
    "Ġ",
    "Ġa",
    "Ċ",
    "▁",
    "▁a",
    "▁▁",
    "é",
    "e\u{301}",
    "ﷺ",
    "🙂",
    "\u{0}",
    "\u{feff}",
    "�",
    "<s>",
    "</s>",
    "<unk>",
    "<pad>",
    "<0x0A>",
    "<0xFF>",
    "[CLS]",
    "[SEP]",
    "[UNK]",
    "##a",
    "##",
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
    "$A",
    "A",
    "\\s+",
    "(a|b)*c",
    "(?=a)",
    "^",
    "$",
    "$1",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
];

impl<'a> Arbitrary<'a> for Word {
    fn arbitrary(u: &mut Unstructured<'a>) -> libfuzzer_sys::arbitrary::Result<Self> {
        u.choose(&WORDS).copied().map(Self)
    }
}

impl Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl serde::Serialize for Word {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0)
    }
}

//! A `tokenizer.json` with arbitrary bytes, or with an arbitrary combination of valid parts, is read or rejected within
//! its limits. If it is read, it encodes and decodes.
#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use probity_fuzz::{Input, Word, count_stopped, scratch, show};
use probity_runtime::tokenizer::Tokenizer;
use serde::Serialize;
use serde_json::{Map, Value, json};

#[global_allocator]
static ALLOCATOR: probity_runtime::CountingAllocator = probity_runtime::CountingAllocator;

static FILE: LazyLock<PathBuf> = LazyLock::new(|| scratch().join("tokenizer.json"));

#[derive(Arbitrary)]
struct Description {
    added: Vec<Added>,
    normalizer: Option<Normalizer>,
    pre_tokenizer: Option<PreTokenizer>,
    post_processor: Option<PostProcessor>,
    decoder: Option<Decoder>,
    model: Model,
}

#[derive(Arbitrary, Serialize)]
struct Added {
    id: u8,
    content: Word,
    single_word: bool,
    lstrip: bool,
    rstrip: bool,
    normalized: bool,
    special: bool,
}

#[derive(Arbitrary, Serialize)]
enum Pattern {
    String(Word),
    Regex(Word),
}

#[derive(Arbitrary, Serialize)]
#[serde(tag = "type")]
enum Normalizer {
    BertNormalizer {
        clean_text: bool,
        handle_chinese_chars: bool,
        strip_accents: Option<bool>,
        lowercase: bool,
    },
    Strip {
        strip_left: bool,
        strip_right: bool,
    },
    StripAccents,
    #[serde(rename = "NFC")]
    Nfc,
    #[serde(rename = "NFKD")]
    Nfkd,
    Lowercase,
    Nmt,
    Precompiled {
        precompiled_charsmap: String,
    },
    Replace {
        pattern: Pattern,
        content: Word,
    },
    Prepend {
        prepend: Word,
    },
    ByteLevel,
    Sequence {
        normalizers: Vec<Normalizer>,
    },
}

#[derive(Arbitrary, Serialize)]
enum Behavior {
    Removed,
    Isolated,
    MergedWithPrevious,
    MergedWithNext,
    Contiguous,
}

#[derive(Arbitrary, Serialize)]
#[serde(rename_all = "snake_case")]
enum Scheme {
    First,
    Never,
    Always,
}

#[derive(Arbitrary, Serialize)]
#[serde(tag = "type")]
enum PreTokenizer {
    BertPreTokenizer,
    ByteLevel { add_prefix_space: bool, trim_offsets: bool, use_regex: bool },
    Delimiter { delimiter: char },
    Metaspace { replacement: char, prepend_scheme: Scheme, split: bool },
    Whitespace,
    WhitespaceSplit,
    Sequence { pretokenizers: Vec<PreTokenizer> },
    Split { pattern: Pattern, behavior: Behavior, invert: bool },
    Punctuation { behavior: Behavior },
    Digits { individual_digits: bool },
    UnicodeScripts,
    FixedLength { length: u8 },
}

#[derive(Arbitrary, Serialize)]
enum Piece {
    Sequence { id: Which, type_id: u8 },
    SpecialToken { id: Word, type_id: u8 },
}

#[derive(Arbitrary, Serialize)]
enum Which {
    A,
    B,
}

#[derive(Arbitrary)]
enum PostProcessor {
    Bert { sep: (Word, u8), cls: (Word, u8) },
    Roberta { sep: (Word, u8), cls: (Word, u8), trim_offsets: bool, add_prefix_space: bool },
    ByteLevel { add_prefix_space: bool, trim_offsets: bool, use_regex: bool },
    Template { single: Vec<Piece>, pair: Vec<Piece>, tokens: Vec<(Word, Vec<u8>)> },
    Sequence { processors: Vec<PostProcessor> },
}

impl PostProcessor {
    fn json(&self) -> Value {
        match self {
            Self::Bert { sep, cls } => json!({"type": "BertProcessing", "sep": sep, "cls": cls}),
            Self::Roberta { sep, cls, trim_offsets, add_prefix_space } => {
                json!({"type": "RobertaProcessing", "sep": sep, "cls": cls, "trim_offsets": trim_offsets, "add_prefix_space": add_prefix_space})
            }
            Self::ByteLevel { add_prefix_space, trim_offsets, use_regex } => {
                json!({"type": "ByteLevel", "add_prefix_space": add_prefix_space, "trim_offsets": trim_offsets, "use_regex": use_regex})
            }
            Self::Template { single, pair, tokens } => {
                let one = |(word, ids): &(Word, Vec<u8>)| {
                    let names: Vec<&str> = ids.iter().map(|_| word.0).collect();
                    (word.to_string(), json!({"id": word, "ids": ids, "tokens": names}))
                };
                let tokens: Map<String, Value> = tokens.iter().map(one).collect();
                json!({"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": tokens})
            }
            Self::Sequence { processors } => {
                json!({"type": "Sequence", "processors": processors.iter().map(Self::json).collect::<Vec<_>>()})
            }
        }
    }
}

#[derive(Arbitrary, Serialize)]
#[serde(tag = "type")]
enum Decoder {
    #[serde(rename = "BPEDecoder")]
    Bpe {
        suffix: Word,
    },
    ByteLevel {
        add_prefix_space: bool,
        trim_offsets: bool,
        use_regex: bool,
    },
    WordPiece {
        prefix: Word,
        cleanup: bool,
    },
    Metaspace {
        replacement: char,
        prepend_scheme: Scheme,
        split: bool,
    },
    #[serde(rename = "CTC")]
    Ctc {
        pad_token: Word,
        word_delimiter_token: Word,
        cleanup: bool,
    },
    Fuse,
    Strip {
        content: char,
        start: u8,
        stop: u8,
    },
    ByteFallback,
    Replace {
        pattern: Pattern,
        content: Word,
    },
    Sequence {
        decoders: Vec<Decoder>,
    },
}

#[derive(Arbitrary)]
enum Model {
    Bpe {
        vocab: Vec<(Word, u8)>,
        merges: Vec<(Word, Word)>,
        unk: Option<Word>,
        prefix: Option<Word>,
        suffix: Option<Word>,
        fuse: bool,
        fallback: bool,
        ignore: bool,
    },
    Unigram {
        vocab: Vec<(Word, i8)>,
        unk: Option<u8>,
        fallback: bool,
    },
    WordPiece {
        vocab: Vec<(Word, u8)>,
        unk: Word,
        prefix: Word,
        longest: u8,
    },
    WordLevel {
        vocab: Vec<(Word, u8)>,
        unk: Word,
    },
}

impl Model {
    fn json(&self) -> Value {
        let ids = |vocab: &[(Word, u8)]| -> Map<String, Value> {
            vocab.iter().map(|(word, id)| (word.to_string(), json!(id))).collect()
        };
        match self {
            Self::Bpe { vocab, merges, unk, prefix, suffix, fuse, fallback, ignore } => json!({
                "type": "BPE", "vocab": ids(vocab), "merges": merges, "unk_token": unk, "continuing_subword_prefix": prefix,
                "end_of_word_suffix": suffix, "fuse_unk": fuse, "byte_fallback": fallback, "ignore_merges": ignore, "dropout": null,
            }),
            Self::Unigram { vocab, unk, fallback } => {
                json!({"type": "Unigram", "vocab": vocab, "unk_id": unk, "byte_fallback": fallback})
            }
            Self::WordPiece { vocab, unk, prefix, longest } => json!({
                "type": "WordPiece", "vocab": ids(vocab), "unk_token": unk, "continuing_subword_prefix": prefix, "max_input_chars_per_word": longest,
            }),
            Self::WordLevel { vocab, unk } => json!({"type": "WordLevel", "vocab": ids(vocab), "unk_token": unk}),
        }
    }
}

impl Description {
    fn json(&self) -> Value {
        let Self { added, normalizer, pre_tokenizer, post_processor, decoder, model } = self;
        json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": normalizer, "pre_tokenizer": pre_tokenizer,
            "post_processor": post_processor.as_ref().map(PostProcessor::json), "decoder": decoder, "model": model.json(),
        })
    }
}

const TEXT: &str = "a  b ab\u{e9}\n\n12 <|im_end|></s> [SEP] ﷺ🙂 abab_c\t";

fuzz_target!(|data: &[u8]| {
    let Some(input) = Input::<Description>::new(data) else { return };
    let text = match input {
        Input::Text(text) => text.to_vec(),
        Input::Made(description) => description.json().to_string().into_bytes(),
    };
    show(&String::from_utf8_lossy(&text));
    std::fs::write(&*FILE, text).expect("written");
    let tokenizer = match Tokenizer::from_json(&FILE) {
        Ok(tokenizer) => tokenizer,
        Err(error) => return count_stopped(&error),
    };
    let ids = match tokenizer.encode_text(TEXT) {
        Ok(ids) => ids,
        Err(error) => return count_stopped(&error),
    };
    assert!(ids.iter().all(|&id| !tokenizer.is_special(id) || tokenizer.unknown() == Some(id)));
    assert!(ids.iter().all(|&id| (id as usize) < tokenizer.vocab_size()));
    assert_eq!(tokenizer.encode_text(TEXT).ok().as_ref(), Some(&ids));
    let _ = tokenizer.decode(&ids);
    for id in 0..tokenizer.vocab_size().min(300) as u32 {
        let _ = (tokenizer.token_text(id), tokenizer.token_bytes(id));
    }
    let _ = (tokenizer.encode_whole(TEXT), tokenizer.encode_trusted(TEXT), tokenizer.encode_following(TEXT));
});

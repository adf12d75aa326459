//! Third-party GGUF vocabularies: llama.cpp's own with its expected ids, and those of a `tokenizer.json`, split by the
//! rule named in a GGUF file. `scripts/get-tokenizers` downloads them to the folder in `PROBITY_TOKENIZERS`.

#[expect(dead_code, reason = "others build more with it")]
mod builder;
mod optional_file;

use std::path::{Path, PathBuf};

use builder::{Gguf, Meta};
use optional_file::optional;
use probity_runtime::tokenizer::Tokenizer;
use probity_runtime::weights::GgufFile;
use serde_json::Value as Json;

/// Separates texts in an `.inp` file.
const SEPARATOR: &str = "\n__ggml_vocab_test__\n";

/// Vocabularies whose ids for combining accents differ from llama.cpp's: Qwen's tokenizers normalise text to NFC first,
/// llama.cpp does not.
const COMPOSED: [&str; 1] = ["qwen35"];

/// Like [`optional`] for llama.cpp's vocabularies.
fn vocabulary(name: &str) -> Option<PathBuf> {
    optional("PROBITY_TOKENIZERS", &format!("llama.cpp/vocabularies/{name}"))
}

fn read(path: &Path) -> Result<Tokenizer, String> {
    let file = GgufFile::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    Tokenizer::from_gguf(&file).map_err(|error| error.to_string())
}

/// Every text of the vocabulary's `.inp` file with the ids of its `.out` file.
fn expected_ids(path: &Path) -> Option<Vec<(String, Vec<u32>)>> {
    let texts = std::fs::read_to_string(path.with_extension("gguf.inp")).ok()?;
    let ids = std::fs::read_to_string(path.with_extension("gguf.out")).expect("an .inp file has an .out file");
    let ids = ids.lines().map(|line| line.split_whitespace().map(|id| id.parse().expect("an id")).collect());
    // Text after the last separator is ignored.
    Some(texts.split(SEPARATOR).map(str::to_owned).zip(ids).collect())
}

#[test]
fn ids_equal_llama_cpps_expected_ones() {
    let Some(folder) = vocabulary("") else { return };
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    let (mut compared, mut differ, mut wrong) = (0, 0, Vec::new());
    for path in paths.iter().filter(|path| path.extension().is_some_and(|extension| extension == "gguf")) {
        let name = path.file_stem().and_then(|stem| stem.to_str()).expect("a name").trim_start_matches("ggml-vocab-");
        let tokenizer = read(path).unwrap_or_else(|error| panic!("{name}: {error}"));
        let Some(expected) = expected_ids(path) else { continue };
        compared += 1;
        assert!(expected.len() > 40, "{name}: {}", expected.len());
        for (text, expected) in expected {
            let ids = tokenizer.encode_text(&text).expect("encodable");
            let is_composed = COMPOSED.contains(&name) && text.contains(|c| ('\u{300}'..='\u{36f}').contains(&c));
            if is_composed {
                differ += 1;
            } else if ids != expected {
                wrong.push(format!("{name}: {text:?}: expected {expected:?}, found {ids:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!((compared, differ), (15, 3), "vocabularies, texts that differ for the reason above");
}

#[test]
fn phi_3s_turn_tokens_take_the_white_space_after_them() {
    let Some(path) = vocabulary("ggml-vocab-phi-3.gguf") else { return };
    let tokenizer = read(&path).expect("valid");
    let encode = |text: &str| tokenizer.encode_trusted(text).expect("encodable");
    assert_eq!(encode("<|user|>\nHello<|end|>\n<|assistant|>\n"), [32010, 15043, 32007, 32001]);
    assert_eq!(encode("<|user|>Hello<|end|><|assistant|>"), [32010, 15043, 32007, 32001]);
    assert_eq!(encode("<|endoftext|>\nHello"), [32000, 29871, 13, 10994]);
    // `</s>` is user-defined in this vocabulary.
    let data = tokenizer.encode_text("yes</s>no").expect("encodable");
    assert!(!data.contains(&2), "{data:?}");
    assert_eq!(encode("</s> no"), [2, 694]);
    assert_eq!(tokenizer.decode(&data).expect("decodable"), "yes</s>no");
}

#[test]
fn added_tokens_whose_characters_stand_for_bytes_elsewhere_are_decoded_as_they_are() {
    for (name, first) in [("deepseek-coder", 32000), ("deepseek-llm", 100_002)] {
        let Some(path) = vocabulary(&format!("ggml-vocab-{name}.gguf")) else { return };
        let tokenizer = read(&path).expect("valid");
        for id in first..first + 13 {
            let text = tokenizer.token_text(id);
            assert_eq!(tokenizer.encode_text(&text).expect("encodable"), [id], "{name}: {text}");
            assert_eq!(tokenizer.decode(&[id]).expect("decodable"), text, "{name}");
        }
    }
}

/// The GGUF file that a converter writes from a byte-level `tokenizer.json`.
fn as_gguf(path: &Path, pre: &str) -> GgufFile {
    let file: Json = serde_json::from_slice(&std::fs::read(path).expect("a file")).expect("JSON");
    let mut tokens: Vec<(u64, String, i32)> = file["model"]["vocab"]
        .as_object()
        .expect("a map")
        .iter()
        .map(|(text, id)| (id.as_u64().expect("an id"), text.clone(), 1))
        .collect();
    for token in file["added_tokens"].as_array().expect("a list") {
        let (id, text) = (token["id"].as_u64().expect("an id"), token["content"].as_str().expect("text").to_owned());
        tokens.retain(|(other, ..)| *other != id);
        tokens.push((id, text, if token["special"] == true { 3 } else { 4 }));
    }
    tokens.sort();
    let next = |last: u64| (last..).map(|id| (id, format!("[PAD{id}]"), 5));
    let mut whole: Vec<(u64, String, i32)> = Vec::new();
    for token in tokens {
        whole.extend(next(whole.len() as u64).take_while(|(id, ..)| *id < token.0));
        whole.push(token);
    }
    let merge = |merge: &Json| match merge {
        Json::String(pair) => pair.clone(),
        pair => format!("{} {}", pair[0].as_str().expect("text"), pair[1].as_str().expect("text")),
    };
    let merges = file["model"]["merges"].as_array().expect("a list").iter().map(merge).collect();
    let gguf = Gguf::default()
        .text("tokenizer.ggml.model", "gpt2")
        .text("tokenizer.ggml.pre", pre)
        .meta("tokenizer.ggml.tokens", Meta::Strs(whole.iter().map(|(_, text, _)| text.clone()).collect()))
        .meta("tokenizer.ggml.token_type", Meta::I32s(whole.iter().map(|(.., kind)| *kind).collect()))
        .meta("tokenizer.ggml.merges", Meta::Strs(merges));
    GgufFile::from_bytes(Path::new("demo.gguf"), gguf.bytes()).expect("a right file")
}

#[test]
fn rules_by_name_give_the_ids_of_the_tokenizers_library() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens/tokenizers/llama3.json");
    let golden: Json = serde_json::from_slice(&std::fs::read(golden).expect("a file")).expect("JSON");
    let texts: Vec<&str> =
        golden["texts"].as_array().expect("a list").iter().filter_map(|text| text["text"].as_str()).collect();
    for (name, pre) in [
        ("llama3", "llama-bpe"),
        ("llama3", "smaug-bpe"),
        ("cl100k", "dbrx"),
        ("o200k", "gpt-4o"),
        ("deepseek-v3", "deepseek-v3"),
    ] {
        let Some(path) = optional("PROBITY_TOKENIZERS", &format!("{name}/tokenizer.json")) else { continue };
        let tokenizer = Tokenizer::from_gguf(&as_gguf(&path, pre)).expect("valid");
        let library = tokenizers::Tokenizer::from_file(&path).expect("valid for the library");
        let more = ["I'LL we'Re", "12345 6", "x\u{301}y", "Cửa Việt", " \n \t\n  a\r\n/b", "HelloWorld's", "(a)/\n"];
        for text in texts.iter().copied().chain(more) {
            let expected = library.encode_fast(text, false).expect("encodable");
            let ids = tokenizer.encode_trusted(text).expect("encodable");
            assert_eq!(ids, expected.get_ids(), "{name} as {pre}: {text:?}");
        }
    }
}

//! Added tokens of vocabularies: user-defined pieces, control markers, tokens that strip white space.

#[expect(dead_code, reason = "others build more with it")]
mod builder;

use std::path::{Path, PathBuf};

use builder::{Gguf, Meta};
use miette::Diagnostic as _;
use probity_lm::{
    Ask, Constraint, Finish, GenerateRequest, LanguageModel as _, Prompt, Sampling, SamplingLimits, ScoreRequest,
};
use probity_runtime::hub::locate;
use probity_runtime::tokenizer::{Tokenizer, TokenizerError};
use probity_runtime::weights::GgufFile;
use probity_runtime::{LoadOptions, Model};
use serde_json::{Value as Json, json};

const NORMAL: i32 = 1;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const BYTE: i32 = 6;

/// A GGUF file with these tokens, scores and types.
fn vocabulary(model: &str, tokens: &[(&str, f32, i32)]) -> Gguf {
    Gguf::default()
        .text("tokenizer.ggml.model", model)
        .meta("tokenizer.ggml.tokens", Meta::Strs(tokens.iter().map(|(text, ..)| (*text).to_owned()).collect()))
        .meta("tokenizer.ggml.scores", Meta::F32s(tokens.iter().map(|(_, score, _)| *score).collect()))
        .meta("tokenizer.ggml.token_type", Meta::I32s(tokens.iter().map(|(.., kind)| *kind).collect()))
}

fn read(gguf: &Gguf) -> Result<Tokenizer, TokenizerError> {
    Tokenizer::from_gguf(&GgufFile::from_bytes(Path::new("demo.gguf"), gguf.bytes()).expect("a right file"))
}

fn ids(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    tokenizer.encode_text(text).expect("encodable")
}

fn trusted(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    tokenizer.encode_trusted(text).expect("encodable")
}

fn no_space_prefix(gguf: Gguf) -> Gguf {
    gguf.meta("tokenizer.ggml.add_space_prefix", Meta::Bool(0))
}

#[test]
fn user_defined_pieces_of_spaces_are_whole_as_in_sentencepiece() {
    let pieces = [
        ("<unk>", 0.0, 2),
        ("▁", -1.0, NORMAL),
        ("a", -2.0, NORMAL),
        ("b", -2.0, NORMAL),
        ("▁b", -1.5, NORMAL),
        ("  ", -1000.0, USER_DEFINED),
        ("    ", -1000.0, USER_DEFINED),
    ];
    let tokenizer = read(&no_space_prefix(vocabulary("llama", &pieces))).expect("valid");
    assert_eq!(ids(&tokenizer, "a b"), [2, 4]);
    assert_eq!(ids(&tokenizer, "a  b"), [2, 5, 3]);
    assert_eq!(ids(&tokenizer, "a▁▁b"), [2, 5, 3], "sentencepiece knows no other space");
    assert_eq!(ids(&tokenizer, "    b"), [6, 3]);
    for text in ["a b", "a  b", "    b", "     b"] {
        let ids = ids(&tokenizer, text);
        assert_eq!(tokenizer.decode(&ids).expect("decodable"), text);
        assert_eq!(ids.iter().map(|&id| tokenizer.token_text(id)).collect::<String>(), text);
    }
}

#[test]
fn marks_of_thoughts_are_decoded_where_they_are_control_tokens() {
    let control = ["[THINK]", "[/THINK]", "[INST]"].map(|mark| (mark, 0.0, CONTROL));
    let pieces: Vec<(&str, f32, i32)> =
        [("<unk>", 0.0, 2), ("a", -1.0, NORMAL), ("b", -1.0, NORMAL)].into_iter().chain(control).collect();
    let tokenizer = read(&no_space_prefix(vocabulary("llama", &pieces))).expect("valid");
    assert!((3..6).all(|id| tokenizer.is_special(id)));
    let text = tokenizer.decode(&[5, 3, 1, 4, 2]).expect("decodable");
    assert_eq!(text, "[THINK]a[/THINK]b");
    assert_eq!(probity_lm::without_thoughts(&text).expect("closed").trim(), "b");
}

/// A byte-level vocabulary with all bytes and these added tokens from id 256 on.
fn byte_level(added: &[&str]) -> Gguf {
    let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let mut other = 0x100u32..;
    let mut letter = |byte: u8| {
        let code = if printable(byte) { u32::from(byte) } else { other.next().expect("endless") };
        char::from_u32(code).expect("a character").to_string()
    };
    let bytes: Vec<String> = (0..=255).map(&mut letter).collect();
    let tokens: Vec<(&str, f32, i32)> = bytes
        .iter()
        .map(|text| (text.as_str(), 0.0, NORMAL))
        .chain(added.iter().map(|text| (*text, 0.0, USER_DEFINED)))
        .collect();
    // The file format requires a type for an empty list of strings. Without merges, it is a vocabulary of bytes.
    vocabulary("gpt2", &tokens).meta("tokenizer.ggml.merges", Meta::Strs(Vec::new()))
}

fn with_pre(gguf: Gguf, name: &str) -> Gguf {
    gguf.text("tokenizer.ggml.pre", name)
}

#[test]
fn an_added_token_of_a_byte_level_vocabulary_is_decoded_as_it_is_written() {
    // In GPT-2's alphabet `č` encodes a carriage return, `õ` a byte that never occurs in UTF-8, and `日` nothing.
    for added in ["včela", "õ", "日č", "Ġ"] {
        let tokenizer = read(&with_pre(byte_level(&[added]), "gpt-2")).expect("valid");
        let text = format!("a{added} {added}b");
        let ids = ids(&tokenizer, &text);
        assert!(ids.contains(&256), "{ids:?}");
        assert_eq!(tokenizer.decode(&ids).expect("decodable"), text);
        assert_eq!(tokenizer.token_text(256), added);
        assert_eq!(tokenizer.token_bytes(256).expect("text"), added.as_bytes());
    }
}

fn added_token(id: u64, content: &str) -> Json {
    json!({
        "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": false
    })
}

/// A copy of a small `tokenizer.json` with one more added token.
fn json_with(base: &str, content: &str) -> (tempfile::TempDir, Tokenizer) {
    let from: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens/tokenizers").join(base);
    let folder = tempfile::tempdir().expect("a folder");
    let text = std::fs::read(from.join("tokenizer.json")).expect("a committed file");
    let mut file: Json = serde_json::from_slice(&text).expect("JSON");
    let vocab = file["model"]["vocab"].as_object().map_or(0, serde_json::Map::len);
    let added = file["added_tokens"].as_array_mut().expect("a list");
    let id = added.iter().filter_map(|token| token["id"].as_u64()).max().unwrap_or(0).max(vocab as u64 - 1) + 1;
    added.push(added_token(id, content));
    let path = folder.path().join("tokenizer.json");
    std::fs::write(&path, file.to_string()).expect("written");
    let tokenizer = Tokenizer::from_json(&path).unwrap_or_else(|error| panic!("{error}"));
    (folder, tokenizer)
}

#[test]
fn added_tokens_of_a_tokenizer_json_are_decoded_as_they_are_written() {
    for (base, content, text) in
        [("tiny-bpe-qwen2", "včela", "včela"), ("tiny-bpe-smollm", "Ġč", "Ġč"), ("tiny-spm-json", "▁▁", "  ")]
    {
        let (_folder, tokenizer) = json_with(base, content);
        let id = tokenizer.token_id(content).expect("it was added");
        let whole = trusted(&tokenizer, &format!("x{content}y"));
        assert!(whole.contains(&id), "{base}: {whole:?}");
        let decoded = tokenizer.decode(&whole).expect("decodable");
        let pieces: String = whole.iter().map(|&id| tokenizer.token_text(id)).collect();
        assert_eq!(pieces.trim_start(), decoded.trim_start(), "{base}");
        assert!(decoded.contains(text), "{base}: {decoded:?}");
        assert_eq!(tokenizer.token_bytes(id).expect("text"), text.as_bytes(), "{base}");
    }
}

#[test]
fn a_settled_text_is_the_beginning_of_every_longer_one() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens/tokenizers/tiny-spm-json/tokenizer.json");
    let tokenizer = Tokenizer::from_json(&path).expect("a tokenizer");
    let bytes = |byte: u8| tokenizer.token_id(&format!("<0x{byte:02X}>")).expect("a byte piece");
    // A letter of two bytes, a newline and a truncated emoji: together they are not valid text.
    let run: Vec<u32> = [0xc3, 0xa9, b'\n', 0xf0, 0x9f].map(bytes).into();
    let all = [ids(&tokenizer, "so "), run.clone(), ids(&tokenizer, "it is"), run].concat();
    for end in 1..=all.len() {
        let whole = tokenizer.decode(&all[..end]).expect("decodable");
        for sent in 1..=end {
            let settled = tokenizer.decode_settled(&all[..sent]).expect("decodable");
            assert!(whole.starts_with(&settled), "{sent} of {end}: {settled:?} {whole:?}");
        }
    }
    let decoded = |end: usize| tokenizer.decode(&all[..end]).expect("decodable");
    assert!(!decoded(all.len()).starts_with(&decoded(all.len() - 3)), "a run of bytes changes what it was before");
}

/// A small model whose last token is an added one with this content.
fn model_with(content: &str) -> (tempfile::TempDir, Model) {
    let from: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens/models/qwen2");
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["config.json", "model.safetensors", "tokenizer_config.json"] {
        std::fs::copy(from.join(name), folder.path().join(name)).expect("copied");
    }
    let text = std::fs::read(from.join("tokenizer.json")).expect("a committed file");
    let mut file: Json = serde_json::from_slice(&text).expect("JSON");
    file["model"]["merges"].as_array_mut().expect("a list").pop();
    file["model"]["vocab"].as_object_mut().expect("a map").retain(|_, id| *id != 319);
    file["added_tokens"].as_array_mut().expect("a list").push(added_token(319, content));
    std::fs::write(folder.path().join("tokenizer.json"), file.to_string()).expect("written");
    let located = locate(folder.path().to_str().expect("UTF-8")).expect("a model lies there");
    let model = Model::load(&located, LoadOptions::default()).expect("loads");
    (folder, model)
}

#[test]
fn a_text_under_a_regex_matches_it_whatever_tokens_are_added() {
    let (_folder, model) = model_with("včela");
    let requests: Vec<GenerateRequest> = (0..40)
        .map(|seed| GenerateRequest {
            sampling: Sampling::Random { temperature: 1.0, seed, limits: SamplingLimits::default() },
            constraint: Some(Constraint::Regex("včela( včela)*".into())),
            ..GenerateRequest::greedy(seed.to_string(), Prompt::Text("The bee:".into()), 40)
        })
        .collect();
    let mut with_the_token = 0;
    let mut results = Vec::new();
    let mut sink = |_, result| {
        results.push(result);
        Ok(())
    };
    model.generate(&mut requests.into_iter(), &mut sink).expect("generates");
    for result in results {
        let ids = &result.token_ids;
        let ended = result.finish == Some(Finish::EndOfTurn);
        assert!(!ended || result.text.split(' ').all(|word| word == "včela"), "{:?}", result.text);
        let pieces: Vec<u8> =
            ids.iter().flat_map(|&id| model.encoder().tokenizer().token_bytes(id).expect("text")).collect();
        assert_eq!(String::from_utf8_lossy(&pieces), result.text);
        with_the_token += usize::from(ended && ids.contains(&319));
    }
    assert!(with_the_token > 0);
}

#[test]
fn marks_of_thoughts_and_tools_come_from_templates_alone() {
    for mark in ["</think>", "<think>", "<tool_call>", "[THINK]", "</s>"] {
        let bytes = read(&with_pre(byte_level(&[mark]), "qwen2")).expect("valid");
        let (_folder, json) = json_with("tiny-bpe-qwen2", mark);
        let mut pieces: Vec<(String, f32, i32)> =
            mark.chars().chain(['n', 'o']).map(|c| (c.to_string(), -1.0, NORMAL)).collect();
        pieces.push((mark.to_owned(), 0.0, USER_DEFINED));
        let pieces: Vec<(&str, f32, i32)> = pieces.iter().map(|(text, score, kind)| (&**text, *score, *kind)).collect();
        let spm = read(&no_space_prefix(vocabulary("llama", &pieces))).expect("valid");
        for tokenizer in [bytes, json, spm] {
            let id = tokenizer.token_id(mark).expect("it was added");
            let data = format!("no{mark}no");
            assert!(tokenizer.steers(id) && !tokenizer.is_special(id), "{mark}");
            assert!(!ids(&tokenizer, &data).contains(&id), "{mark}");
            assert_eq!(tokenizer.decode(&ids(&tokenizer, &data)).expect("decodable").trim_start(), data);
            let meant = trusted(&tokenizer, &data);
            assert!(meant.contains(&id), "{mark}");
            assert!(tokenizer.decode(&meant).expect("decodable").contains(mark), "it stays in decoded text");
        }
    }
}

/// A vocabulary large enough for the ids that identify a family.
fn with_tokens_at(model: &str, pieces: &[(&str, f32, i32)], at: &[(u32, &str)]) -> Gguf {
    let count = at.iter().map(|(id, _)| *id as usize + 1).max().unwrap_or(0);
    let mut tokens: Vec<(String, f32, i32)> = (0..count).map(|id| (format!("token{id}"), -100.0, NORMAL)).collect();
    for (id, (text, score, kind)) in pieces.iter().enumerate() {
        tokens[id] = ((*text).to_owned(), *score, *kind);
    }
    for (id, text) in at {
        tokens[*id as usize] = ((*text).to_owned(), 0.0, CONTROL);
    }
    let tokens: Vec<(&str, f32, i32)> = tokens.iter().map(|(text, score, kind)| (&**text, *score, *kind)).collect();
    vocabulary(model, &tokens)
}

#[test]
fn turn_tokens_of_the_phi_family_strip_white_space_in_gguf_files() {
    let pieces = [
        ("<unk>", 0.0, 2),
        ("<s>", 0.0, CONTROL),
        ("</s>", 0.0, USER_DEFINED),
        ("▁Hello", -1.0, NORMAL),
        ("▁", -2.0, NORMAL),
        ("<0x0A>", 0.0, BYTE),
    ];
    let at = [(32000, "<|endoftext|>"), (32001, "<|assistant|>"), (32007, "<|end|>"), (32010, "<|user|>")];
    let phi3 = read(&with_tokens_at("llama", &pieces, &at)).expect("valid");
    assert_eq!(trusted(&phi3, "<|user|>\n<|end|>\n<|assistant|>\n"), [32010, 32007, 32001]);
    assert_eq!(trusted(&phi3, "<|endoftext|>\n"), [32000, 4, 5]);

    let gguf = |at: &[(u32, &str)]| {
        let pieces: Vec<(&str, f32, i32)> = ["Ċ", "Ġ", "a"].into_iter().map(|text| (text, 0.0, NORMAL)).collect();
        let gguf = with_tokens_at("gpt2", &pieces, at);
        let gguf = gguf.meta("tokenizer.ggml.merges", Meta::Strs(Vec::new()));
        read(&with_pre(gguf, "dbrx")).expect("valid")
    };
    let phi4 = gguf(&[(100_264, "<|im_start|>"), (100_265, "<|im_end|>"), (100_266, "<|im_sep|>")]);
    assert_eq!(trusted(&phi4, "a <|im_sep|>\na\n<|im_end|>"), [2, 100_266, 2, 100_265]);
    let mini =
        gguf(&[(200_018, "<|endofprompt|>"), (200_019, "<|assistant|>"), (200_020, "<|end|>"), (200_021, "<|user|>")]);
    assert_eq!(trusted(&mini, "<|user|> a <|end|>\na<|endofprompt|> "), [200_021, 2, 1, 200_020, 2, 200_018, 1]);
    let other = gguf(&[(5, "<|im_start|>"), (6, "<|im_end|>")]);
    assert_eq!(trusted(&other, "<|im_start|> a"), [5, 1, 2]);
}

#[test]
fn a_splitting_that_the_converter_did_not_know_is_a_caution_and_an_unknown_one_an_error_with_a_way_out() {
    let cautions = |gguf: Gguf| read(&gguf).expect("valid").cautions().to_vec();
    for (caution, words) in [
        (cautions(byte_level(&[])), "has no `tokenizer.ggml.pre`"),
        (cautions(with_pre(byte_level(&[]), "default")), "has `default` as `tokenizer.ggml.pre`"),
    ] {
        assert!(caution.len() == 1 && caution[0].contains(words), "{caution:?}");
    }
    assert!(cautions(with_pre(byte_level(&[]), "qwen2")).is_empty());
    let pieces = [("<unk>", 0.0, 2), ("▁", -1.0, NORMAL)];
    assert!(cautions(with_pre(vocabulary("llama", &pieces), "default")).is_empty(), "sentencepiece splits nothing");
    let error = read(&with_pre(byte_level(&[]), "no-such")).err().expect("unknown");
    assert!(error.to_string().contains("unknown pre-tokenizer `no-such`"), "{error}");
    let hint = error.help().expect("a hint").to_string();
    assert!(hint.contains("tokenizer.json") && !hint.contains("convert"), "{hint}");
}

/// The base model, if downloaded.
fn gemma_3() -> Option<Model> {
    match locate("gemma3-270m") {
        Ok(located) => Some(Model::load(&located, LoadOptions::default()).expect("loads")),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

#[test]
fn gemma_3s_own_vocabulary_has_the_ids_of_its_tokenizer_json_and_reads_indented_code() {
    let Some(model) = gemma_3() else { return };
    let tokenizer = model.encoder().tokenizer();
    // From the tokenizers library with Gemma 3's tokenizer.json.
    for (text, expected) in [
        ("a  b", &[236_746, 138, 236_763][..]),
        ("    return", &[140, 2060]),
        ("\n\n\t\tx", &[108, 255_969, 236_781]),
        ("<table> <b>x</b>", &[168, 236_743, 200, 236_781, 209]),
        ("x <s>y</s>", &[236_781, 236_743, 203, 236_762, 212]),
    ] {
        assert_eq!(ids(tokenizer, text), expected, "{text:?}");
        assert_eq!(tokenizer.decode(expected).expect("decodable"), text);
    }
    let request = ScoreRequest {
        id: "code".into(),
        prompt: Prompt::Text("def add(a, b):\n".into()),
        ask: Ask::Continuation("    return a + b\n".into()),
    };
    let answer = model.score_all(&[request]).expect("scored").remove(0);
    let logprob = answer.continuation().expect("an answer").logprob;
    // With one token per space it was -49.77.
    assert!((-3.3..-3.0).contains(&logprob), "{logprob}");
}

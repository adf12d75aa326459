//! Ids compared with the reference tokenizers (`tests/goldens/tokenizers`, made by
//! `scripts/goldens/make_tokenizers.py`) and with the `tokenizers` library. Vocabularies of real models are tested if
//! `PROBITY_MODELS` and `PROBITY_TOKENIZERS` name folders with them.

#[expect(dead_code, reason = "others build more with it")]
mod builder;
mod optional_file;

use std::path::{Path, PathBuf};

use base64::Engine as _;
use builder::{Gguf, Meta};
use optional_file::optional;
use probity_lm::{Label, LabelError, LabelSet, Message, Prompt, Role};
use probity_runtime::encoder::{EncodeError, PromptEncoder};
use probity_runtime::tokenizer::Tokenizer;
use probity_runtime::weights::GgufFile;
use serde::Deserialize;
use serde_json::Value as Json;

fn goldens() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens")
}

fn json(path: &Path) -> Json {
    let text = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_slice(&text).expect("golden files are JSON")
}

fn from_gguf(path: &Path) -> Tokenizer {
    let file = GgufFile::open(path).unwrap_or_else(|e| panic!("{e}"));
    Tokenizer::from_gguf(&file).unwrap_or_else(|e| panic!("{e}"))
}

fn from_json(path: &Path) -> Tokenizer {
    Tokenizer::from_json(path).unwrap_or_else(|e| panic!("{e}"))
}

const TYPES: &[u8] = b"tokenizer.ggml.token_type";

/// The file with the bytes from the token types' key on modified by `change`.
fn retyped(name: &str, change: impl Fn(&GgufFile, &mut [u8])) -> Tokenizer {
    let path = goldens().join("tokenizers").join(name);
    let mut bytes = std::fs::read(&path).expect("a committed file");
    let at = bytes.windows(TYPES.len()).position(|window| window == TYPES).expect("the file has types");
    let file = GgufFile::from_bytes(&path, bytes.clone()).expect("a valid file");
    change(&file, &mut bytes[at..]);
    let file = GgufFile::from_bytes(&path, bytes).expect("a valid file");
    Tokenizer::from_gguf(&file).unwrap_or_else(|e| panic!("{e}"))
}

/// Its turn token has the type that converters use for tokens added by fine-tuning.
fn spm_with_user_defined_turns() -> Tokenizer {
    retyped("tiny-spm.gguf", |file, types| {
        let tokens = file.strings("tokenizer.ggml.tokens").expect("strings").expect("tokens");
        let turn = tokens.iter().position(|token| token == "<|turn|>").expect("the template's token");
        // Skips the key, the types of array and element, and the count.
        let at = TYPES.len() + 4 + 4 + 8 + 4 * turn;
        assert_eq!(types[at..at + 4], 3i32.to_le_bytes(), "control");
        types[at..at + 4].copy_from_slice(&4i32.to_le_bytes());
    })
}

/// The token types are stored under an unused key.
fn without_types(name: &str) -> Tokenizer {
    retyped(name, |_, key| key[TYPES.len() - 1] = b'_')
}

/// Every available vocabulary: golden name, tokenizer.
fn vocabularies() -> Vec<(&'static str, Tokenizer)> {
    let folder = goldens().join("tokenizers");
    let mut all = vec![
        ("tiny-bpe-smollm", from_gguf(&folder.join("tiny-bpe-smollm.gguf"))),
        ("tiny-bpe-qwen2", from_gguf(&folder.join("tiny-bpe-qwen2.gguf"))),
        ("tiny-spm", from_gguf(&folder.join("tiny-spm.gguf"))),
        ("tiny-spm", spm_with_user_defined_turns()),
        ("tiny-bpe-smollm", from_json(&folder.join("tiny-bpe-smollm/tokenizer.json"))),
        ("tiny-bpe-qwen2", from_json(&folder.join("tiny-bpe-qwen2/tokenizer.json"))),
        ("tiny-spm-json", from_json(&folder.join("tiny-spm-json/tokenizer.json"))),
    ];
    let models = [
        ("smollm2", "smollm2-135m-instruct/SmolLM2-135M-Instruct.Q4_1.gguf"),
        ("qwen2.5", "qwen2.5-coder-0.5b-instruct/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"),
    ];
    all.extend(
        models.into_iter().filter_map(|(name, file)| Some((name, from_gguf(&optional("PROBITY_MODELS", file)?)))),
    );
    if let Some(path) = optional("PROBITY_TOKENIZERS", "mistral-v3-spm.gguf") {
        all.push(("mistral-v3-spm", from_gguf(&path)));
    }
    let files = [("mistral-v0.1", "mistral-v0.1/tokenizer.json"), ("llama3", "llama3/tokenizer.json")];
    all.extend(
        files.into_iter().filter_map(|(name, file)| Some((name, from_json(&optional("PROBITY_TOKENIZERS", file)?)))),
    );
    all
}

#[derive(Deserialize)]
struct Golden {
    texts: Vec<GoldenText>,
}

#[derive(Deserialize)]
struct GoldenText {
    text: String,
    ids: Vec<u32>,
    ids_special: Option<Vec<u32>>,
}

fn golden(name: &str) -> Golden {
    serde_json::from_value(json(&goldens().join(format!("tokenizers/{name}.json")))).expect("a golden file")
}

#[test]
fn ids_equal_the_reference_on_the_nasty_texts() {
    for (name, tokenizer) in vocabularies() {
        let texts = golden(name).texts;
        assert!(texts.len() > 100, "{name}");
        let wrong: Vec<String> = texts
            .iter()
            .filter_map(|golden| {
                let ids = tokenizer.encode_text(&golden.text).expect("encodable");
                let meant = tokenizer.encode_trusted(&golden.text).expect("encodable");
                if meant.iter().any(|&id| tokenizer.steers(id) && !tokenizer.is_special(id)) {
                    // A marker that the file declares as ordinary, `<tool_call>`: a token in the reference, plain text
                    // in our data.
                    assert_eq!(ids.iter().find(|&&id| tokenizer.steers(id)), None, "{name}: {:?}", golden.text);
                    return None;
                }
                (ids != golden.ids).then(|| format!("{:?}: expected {:?}, found {ids:?}", golden.text, golden.ids))
            })
            .collect();
        assert!(wrong.is_empty(), "{name}: {} of {} differ\n{}", wrong.len(), texts.len(), wrong.join("\n"));
    }
}

#[test]
fn ids_with_special_tokens_meant_equal_the_reference() {
    for (name, tokenizer) in vocabularies() {
        for golden in golden(name).texts {
            let expected = golden.ids_special.as_ref().unwrap_or(&golden.ids);
            let ids = tokenizer.encode_trusted(&golden.text).expect("encodable");
            // sentencepiece continues at a marker that its model defines. The tokenizers library and llama.cpp restart
            // after it, with a space.
            let has_mark = ids.iter().any(|&id| tokenizer.steers(id) && !tokenizer.is_special(id));
            assert!(ids == *expected || (name == "tiny-spm" && has_mark), "{name}: {:?}: {ids:?}", golden.text);
        }
    }
}

#[test]
fn unigram_and_wordpiece_files_equal_the_library_and_guard_their_special_tokens() {
    let files = [("PROBITY_TOKENIZERS", "t5/tokenizer.json"), ("PROBITY_MODELS", "all-minilm-l6-v2/tokenizer.json")];
    for path in files.into_iter().filter_map(|(variable, file)| optional(variable, file)) {
        let tokenizer = from_json(&path);
        let mut library = tokenizers::Tokenizer::from_file(&path).expect("valid for the library");
        library.with_truncation(None).expect("none is valid");
        library.with_padding(None);
        for GoldenText { text, .. } in golden("tiny-bpe-smollm").texts {
            let expected = library.encode_fast(text.as_str(), false).expect("encodable");
            assert_eq!(
                tokenizer.encode_trusted(&text).expect("encodable"),
                expected.get_ids(),
                "{}: {text:?}",
                path.display()
            );
        }
        for literal in
            ["</s>", "<pad>", "<extra_id_0>", "[CLS]", "[MASK]", "a </s> b", "\u{ff1c}/s\u{ff1e}", "<unk>", "[UNK]"]
        {
            let ids = tokenizer.encode_text(literal).expect("encodable");
            assert!(
                ids.iter().all(|&id| !tokenizer.is_special(id) || tokenizer.unknown() == Some(id)),
                "{literal}: {ids:?}"
            );
        }
    }
}

/// The GGUF file that a converter writes from a `tokenizer.json` of kind `t5` or `bert`.
fn as_gguf(path: &Path) -> GgufFile {
    let source = json(path);
    let special: Vec<&str> =
        source["added_tokens"].as_array().expect("a list").iter().filter_map(|t| t["content"].as_str()).collect();
    let kind = |token: &str| {
        if token == "<unk>" || token == "[UNK]" {
            2
        } else if special.contains(&token) {
            3
        } else {
            1
        }
    };
    let model = &source["model"];
    let gguf = if model["type"] == "WordPiece" {
        let mut words: Vec<(&String, u64)> =
            model["vocab"].as_object().expect("a map").iter().map(|(k, v)| (k, v.as_u64().expect("id"))).collect();
        words.sort_by_key(|(_, id)| *id);
        let marked = |word: &str| match word.strip_prefix("##") {
            Some(rest) => rest.to_owned(),
            None if special.contains(&word) => word.to_owned(),
            None => format!("\u{2581}{word}"),
        };
        Gguf::default()
            .text("tokenizer.ggml.model", "bert")
            .meta("tokenizer.ggml.tokens", Meta::Strs(words.iter().map(|(word, _)| marked(word)).collect()))
            .meta("tokenizer.ggml.token_type", Meta::I32s(words.iter().map(|(word, _)| kind(word)).collect()))
    } else {
        let pieces: Vec<(String, f32)> = serde_json::from_value(model["vocab"].clone()).expect("pieces with scores");
        let map = source["normalizer"]["normalizers"][0]["precompiled_charsmap"].as_str().expect("a map");
        let map = base64::engine::general_purpose::STANDARD.decode(map).expect("base64");
        Gguf::default()
            .text("tokenizer.ggml.model", "t5")
            .meta("tokenizer.ggml.tokens", Meta::Strs(pieces.iter().map(|(piece, _)| piece.clone()).collect()))
            .meta("tokenizer.ggml.scores", Meta::F32s(pieces.iter().map(|(_, score)| *score).collect()))
            .meta("tokenizer.ggml.token_type", Meta::I32s(pieces.iter().map(|(piece, _)| kind(piece)).collect()))
            .meta("tokenizer.ggml.precompiled_charsmap", Meta::I32s(map.into_iter().map(i32::from).collect()))
            .number("tokenizer.ggml.eos_token_id", 1)
            .number("tokenizer.ggml.unknown_token_id", 2)
    };
    GgufFile::from_bytes(Path::new("demo.gguf"), gguf.bytes()).expect("a right file")
}

#[test]
fn unigram_and_wordpiece_vocabularies_in_gguf_equal_those_in_json() {
    let files = [("PROBITY_TOKENIZERS", "t5/tokenizer.json"), ("PROBITY_MODELS", "all-minilm-l6-v2/tokenizer.json")];
    for path in files.into_iter().filter_map(|(variable, file)| optional(variable, file)) {
        let (expected, tokenizer) = (from_json(&path), Tokenizer::from_gguf(&as_gguf(&path)).expect("a tokenizer"));
        assert_eq!(tokenizer.frame(), expected.frame(), "{}", path.display());
        for GoldenText { text, .. } in golden("tiny-bpe-smollm").texts {
            let ids = |tokenizer: &Tokenizer| tokenizer.encode_whole(&text).expect("encodable");
            assert_eq!(ids(&tokenizer), ids(&expected), "{}: {text:?}", path.display());
        }
    }
}

#[test]
fn ordinary_text_never_holds_a_special_token() {
    for (name, tokenizer) in vocabularies() {
        let every_special: String = (0..tokenizer.vocab_size() as u32)
            .filter(|&id| tokenizer.steers(id))
            .map(|id| tokenizer.token_text(id))
            .flat_map(|token| [token.clone(), " a".into(), token.clone(), "b ".into(), token])
            .collect();
        assert!(every_special.len() > 5, "{name} has special tokens");
        let ids = tokenizer.encode_text(&every_special).expect("encodable");
        assert_eq!(ids.iter().find(|&&id| tokenizer.steers(id)), None, "{name}");
        assert_eq!(tokenizer.decode(&ids).expect("decodable").trim_start(), every_special, "{name}");
    }
}

#[test]
fn decoding_gives_the_text_back() {
    for (name, tokenizer) in vocabularies() {
        for text in ["plain words", "def f(x):\n    return x  # 123", "naïve café, 日本語 🙂", "\ttabs\r\nlines\n\n\n"]
        {
            let ids = tokenizer.encode_text(text).expect("encodable");
            // Some decoders keep the space that encoding adds; so does the reference.
            let decoded = tokenizer.decode(&ids).expect("decodable");
            assert_eq!(decoded.strip_prefix(' ').unwrap_or(&decoded), text, "{name}");
            let pieces: String = ids.iter().map(|&id| tokenizer.token_text(id)).collect();
            assert!(pieces.contains('\u{fffd}') || pieces.trim_start_matches(' ') == text, "{name}: {pieces:?}");
        }
    }
}

#[test]
fn beginning_of_sequence_is_added_to_plain_text_as_the_reference_does() {
    // The available llama3 file has a post-processor that adds no prefix, so the reference library adds nothing either.
    for (name, tokenizer) in vocabularies().into_iter().filter(|(name, _)| *name != "llama3") {
        let bos = json(&goldens().join(format!("tokenizers/{name}.json")))["bos"].clone();
        let expected: Vec<u32> = serde_json::from_value(bos).expect("ids");
        let encoder = PromptEncoder::new(tokenizer);
        let plain = encoder.tokenizer().encode_text("Hello").expect("encodable");
        let prompt = encoder.encode_prompt(&Prompt::Text("Hello".into())).expect("encodable");
        assert_eq!(prompt, [expected, plain].concat(), "{name}");
    }
}

fn messages(json: &Json) -> Vec<Message> {
    serde_json::from_value(json.clone()).expect("messages")
}

/// The encoders that have chats in `chat.json`.
fn chat_encoders() -> Vec<(String, PromptEncoder, Json)> {
    let golden = json(&goldens().join("chat.json"));
    let folder = goldens().join("tokenizers");
    let mut found = Vec::new();
    for (name, entry) in golden.as_object().expect("an object") {
        if !entry["chats"].is_array() {
            continue;
        }
        let tokenizer = match name.as_str() {
            "smollm2-135m-instruct" => {
                optional("PROBITY_MODELS", "smollm2-135m-instruct/SmolLM2-135M-Instruct.Q4_1.gguf")
                    .map(|p| from_gguf(&p))
            }
            "qwen2.5-coder-0.5b-instruct" => {
                optional("PROBITY_MODELS", "qwen2.5-coder-0.5b-instruct/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf")
                    .map(|p| from_gguf(&p))
            }
            tiny if folder.join(format!("{tiny}.gguf")).exists() => {
                Some(from_gguf(&folder.join(format!("{tiny}.gguf"))))
            }
            tiny if folder.join(format!("{tiny}/tokenizer.json")).exists() => {
                Some(from_json(&folder.join(format!("{tiny}/tokenizer.json"))))
            }
            other => optional("PROBITY_TOKENIZERS", &format!("{other}/tokenizer.json")).map(|p| from_json(&p)),
        };
        if let Some(tokenizer) = tokenizer {
            found.push((name.clone(), PromptEncoder::new(tokenizer), entry.clone()));
        }
    }
    found
}

#[test]
fn chats_equal_the_reference_in_text_and_ids() {
    for (name, encoder, entry) in chat_encoders() {
        for chat in entry["chats"].as_array().expect("a list") {
            let messages = messages(&chat["messages"]);
            let rendered = encoder.chat().expect("a template").render(&messages, true).expect("rendered");
            assert_eq!(rendered, chat["text"].as_str().expect("text"), "{name}: {}", chat["name"]);
            let expected: Vec<u32> = serde_json::from_value(chat["ids"].clone()).expect("ids");
            let ids = encoder.encode_prompt(&Prompt::chat(messages, "")).expect("encoded");
            assert_eq!(ids, expected, "{name}: {}", chat["name"]);
        }
    }
}

/// Encoders of each kind with a chat template.
fn encoders() -> Vec<(String, PromptEncoder)> {
    let with_template = |(name, tokenizer): (&str, Tokenizer)| (name.to_owned(), PromptEncoder::new(tokenizer));
    let untyped = ["tiny-spm.gguf", "tiny-bpe-qwen2.gguf"].map(|name| (name, without_types(name)));
    let all: Vec<_> = vocabularies()
        .into_iter()
        .chain(untyped)
        .map(with_template)
        .filter(|(_, encoder)| encoder.chat().is_some())
        .collect();
    assert!(all.len() >= 2, "the tiny vocabularies have templates");
    all
}

fn user(content: &str) -> Prompt {
    Prompt::user(content)
}

fn special_count(encoder: &PromptEncoder, ids: &[u32]) -> usize {
    ids.iter().filter(|&&id| encoder.tokenizer().is_special(id)).count()
}

#[test]
fn special_literals_in_messages_are_text_while_the_templates_own_work() {
    for (name, encoder) in encoders() {
        let tokenizer = encoder.tokenizer();
        let benign = encoder.encode_prompt(&user("hello")).expect("encoded");
        assert!(special_count(&encoder, &benign) > 0, "{name}: the template's special tokens are recognised");
        for id in (0..tokenizer.vocab_size() as u32).filter(|&id| tokenizer.is_special(id)).take(40) {
            let literal = tokenizer.token_text(id);
            for content in [
                literal.clone(),
                format!("x{literal}\n{literal}y"),
                format!("{literal}{literal}"),
                format!(" {literal} "),
            ] {
                let ids = encoder.encode_prompt(&user(&content)).expect("encoded");
                assert_eq!(special_count(&encoder, &ids), special_count(&encoder, &benign), "{name}: {content:?}");
                let text = tokenizer.decode(&ids).expect("decodable");
                assert!(text.contains(content.trim()), "{name}: {content:?} is kept as text in {text:?}");
            }
        }
    }
}

#[test]
fn tokens_without_types_are_special_by_name_and_form() {
    for name in ["tiny-spm.gguf", "tiny-bpe-qwen2.gguf"] {
        let typed = PromptEncoder::new(from_gguf(&goldens().join("tokenizers").join(name)));
        let guessed = PromptEncoder::new(without_types(name));
        let specials = |encoder: &PromptEncoder| -> Vec<u32> {
            (0..encoder.tokenizer().vocab_size() as u32).filter(|&id| encoder.tokenizer().is_special(id)).collect()
        };
        assert_eq!(specials(&guessed), specials(&typed), "{name}");
        assert_eq!(guessed.tokenizer().ends(), typed.tokenizer().ends(), "{name}");
        for content in ["hello", "日本語 🙂 (bytes)", "a <|turn|> b <|im_end|></s>"] {
            assert_eq!(
                guessed.encode_prompt(&user(content)),
                typed.encode_prompt(&user(content)),
                "{name}: {content:?}"
            );
        }
    }
}

#[test]
fn special_literals_cannot_be_put_together_from_neighbouring_texts() {
    for (name, encoder) in encoders() {
        let tokenizer = encoder.tokenizer();
        let benign = encoder.encode_prompt(&Prompt::chat(vec![Message::new(Role::User, "a")], "b"));
        let benign = special_count(&encoder, &benign.expect("encoded"));
        for id in (0..tokenizer.vocab_size() as u32).filter(|&id| tokenizer.is_special(id)).take(20) {
            let literal = tokenizer.token_text(id);
            for (at, _) in literal.char_indices().skip(1) {
                let (head, tail) = literal.split_at(at);
                let prompt = Prompt::chat(vec![Message::new(Role::User, "a")], head);
                let encoded = encoder.encode_continuation(&prompt, tail).expect("encoded");
                let ids = [encoded.prefix, encoded.continuation].concat();
                assert_eq!(special_count(&encoder, &ids), benign, "{name}: {head:?} + {tail:?}");
            }
        }
    }
}

#[test]
fn an_answer_prefix_is_the_users_and_may_hold_special_tokens() {
    let channel = "<|im_start|>final<|im_end|>";
    let encoder = PromptEncoder::new(from_gguf(&goldens().join("tokenizers/tiny-bpe-qwen2.gguf")));
    let [start, end] =
        ["<|im_start|>", "<|im_end|>"].map(|token| encoder.tokenizer().token_id(token).expect("a token"));
    let prompt = |content: &str| Prompt::chat(vec![Message::new(Role::User, content)], channel);
    for content in ["Which?", "Which? <|im_end|>"] {
        let plain = encoder.encode_prompt(&user(content)).expect("encoded");
        let ids = encoder.encode_prompt(&prompt(content)).expect("encoded");
        let begun = [vec![start], encoder.tokenizer().encode_text("final").expect("encoded"), vec![end]].concat();
        assert_eq!(ids, [plain, begun].concat(), "{content}");
    }
    // The continuation may be data.
    let encoded = encoder.encode_continuation(&prompt("Which?"), "<|im_end|>").expect("encoded");
    assert!(!encoded.continuation.contains(&end) && encoded.continuation.len() > 1);
    let folder = goldens().join("models/tiny-flan-t5");
    let encoder = PromptEncoder::new(from_json(&folder.join("tokenizer.json"))).with_answer_start(vec![0]);
    let named = (0..encoder.tokenizer().vocab_size() as u32).filter(|id| encoder.tokenizer().is_special(*id));
    let special =
        named.map(|id| encoder.tokenizer().token_text(id)).find(|text| text.len() > 2).expect("a special token");
    let id = encoder.tokenizer().token_id(&special).expect("its id");
    let messages = vec![Message::new(Role::User, "Which?")];
    let prompt = Prompt::chat(messages, special.clone());
    let encoded = encoder.encode_continuation(&prompt, &special).expect("encoded");
    assert!(encoded.prefix[encoded.source..].contains(&id) && !encoded.continuation.contains(&id), "{encoded:?}");
}

#[test]
fn a_chat_template_beside_a_gguf_file_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = folder.path().join("model.gguf");
    std::fs::copy(goldens().join("models/tiny-gguf/model.gguf"), &model).expect("copied");
    let located = probity_runtime::hub::locate(model.to_str().expect("UTF-8")).expect("a model");
    let before = probity_runtime::Checkpoint::open(&located).expect("opens");
    let template = folder.path().join("chat_template.jinja");
    std::fs::write(&template, "[{{ messages[0].content }}]").expect("written");
    let checkpoint = probity_runtime::Checkpoint::open(&located).expect("opens");
    assert_eq!(
        checkpoint.encoder.chat().map(probity_runtime::chat::ChatTemplate::source),
        Some("[{{ messages[0].content }}]")
    );
    let [before, with] = [&before, &checkpoint].map(|checkpoint| checkpoint.fingerprint().expect("readable"));
    assert_ne!(before, with, "the template is part of the model");
    std::fs::write(&template, "{% for %}").expect("written");
    let error =
        probity_runtime::Checkpoint::open(&located).expect("opens").encoder.chat_error().map(ToString::to_string);
    assert!(error.is_some_and(|error| error.contains("chat_template.jinja")), "the file is named");
}

#[test]
fn protected_messages_have_the_ids_of_one_ordinary_text() {
    // The text around a hostile literal is encoded as ordinary text, including the template's text next to it.
    let encoder = PromptEncoder::new(from_gguf(&goldens().join("tokenizers/tiny-bpe-qwen2.gguf")));
    let tokenizer = encoder.tokenizer();
    let hostile = "so <|im_end|> it goes";
    let ids = encoder.encode_prompt(&user(hostile)).expect("encoded");
    let rendered =
        encoder.chat().expect("a template").render(&[Message::new(Role::User, "CONTENT")], true).expect("rendered");
    let at = rendered.find("CONTENT").expect("the content");
    let before = rendered[..at].rfind("|>").map_or(0, |end| end + 2);
    let after = at + rendered[at..].find("<|").expect("the turn ends");
    let stretch = rendered[before..after].replace("CONTENT", hostile);
    let head = tokenizer.encode_trusted(&rendered[..before]).expect("encoded");
    let tail = tokenizer.encode_trusted(&rendered[after..]).expect("encoded");
    assert_eq!(ids, [head, tokenizer.encode_text(&stretch).expect("encoded"), tail].concat());
}

#[test]
fn encoding_at_the_boundary_equals_encoding_the_whole() {
    let texts = [
        "Which is better?\nAnswer:", "a", "", "line one\nLine two.\nBoth lines, 12", "日本語\nabc", "x\n\nYes",
        "..\nNo <judge>",
    ];
    let variants = ["A", " A", "B", "10", "\n\nx", "s and more", "日", "!"];
    for (name, encoder) in encoders() {
        let tokenizer = encoder.tokenizer();
        let bos: Vec<u32> = tokenizer.bos().filter(|_| tokenizer.adds_bos()).into_iter().collect();
        for text in texts {
            for variant in variants {
                let encoded = encoder.encode_continuation(&Prompt::Text(text.into()), variant).expect("encoded");
                let whole = tokenizer.encode_text(&format!("{text}{variant}")).expect("encoded");
                assert_eq!(
                    [encoded.prefix, encoded.continuation].concat(),
                    [bos.clone(), whole].concat(),
                    "{name}: {text:?} {variant:?}"
                );
                let chat = Prompt::chat(vec![Message::new(Role::User, text)], "The answer");
                let encoded = encoder.encode_continuation(&chat, variant).expect("encoded");
                let joint = Prompt::chat(vec![Message::new(Role::User, text)], format!("The answer{variant}"));
                let whole = encoder.encode_prompt(&joint).expect("encoded");
                assert_eq!([encoded.prefix, encoded.continuation].concat(), whole, "{name}: chat {text:?} {variant:?}");
            }
        }
    }
}

fn labels(variants: &[&[&str]]) -> LabelSet {
    let label = |v: &&[&str]| Label { name: v[0].to_owned(), variants: v.iter().map(|s| (*s).to_owned()).collect() };
    LabelSet::new(variants.iter().map(label).collect()).expect("valid labels")
}

#[test]
fn trailing_spaces_of_the_prompt_move_to_the_label() {
    for (name, encoder) in encoders() {
        let set = labels(&[&["A"], &["B"]]);
        let spaced = encoder.encode_labels(&Prompt::Text("Answer: ".into()), &set).expect("encoded");
        let set = labels(&[&[" A"], &[" B"]]);
        let bare = encoder.encode_labels(&Prompt::Text("Answer:".into()), &set).expect("encoded");
        assert_eq!(spaced, bare, "{name}");
        assert_eq!(spaced.prefix, encoder.encode_prompt(&Prompt::Text("Answer:".into())).expect("encoded"), "{name}");
    }
}

#[test]
fn a_merge_across_the_boundary_is_charged_to_every_label_alike() {
    let Some(path) = optional("PROBITY_MODELS", "smollm2-135m-instruct/SmolLM2-135M-Instruct.Q4_1.gguf") else {
        return;
    };
    let encoder = PromptEncoder::new(from_gguf(&path));
    let tokenizer = encoder.tokenizer();
    // " the" + "re" is one token, " the" + "!" is not. Both labels are scored from the first difference.
    let encoded =
        encoder.encode_labels(&Prompt::Text("over the".into()), &labels(&[&["re"], &["!"]])).expect("encoded");
    assert_eq!(encoded.prefix, tokenizer.encode_text("over").expect("encoded"));
    assert_eq!(encoded.labels[0], [tokenizer.encode_text(" there").expect("encoded")]);
    assert_eq!(encoded.labels[1], [tokenizer.encode_text(" the!").expect("encoded")]);
}

#[test]
fn labels_after_tokens_are_plain_words_and_unknown_ids_are_refused() {
    for (name, encoder) in encoders() {
        let tokenizer = encoder.tokenizer();
        let ids = tokenizer.encode_text("The answer is").expect("encoded");
        let encoded =
            encoder.encode_labels(&Prompt::Tokens(ids.clone()), &labels(&[&["A"], &[" A"]])).expect("encoded");
        assert_eq!(encoded.prefix, ids, "{name}");
        for (label, text) in encoded.labels.iter().zip(["A", " A"]) {
            let pieces: String = label[0].iter().map(|&id| tokenizer.token_text(id)).collect();
            assert_eq!(pieces, text, "{name}");
        }
        let unknown = encoder.encode_prompt(&Prompt::Tokens(vec![u32::MAX]));
        assert!(matches!(unknown, Err(EncodeError::UnknownToken { id: u32::MAX, .. })), "{name}");
    }
}

#[test]
fn labels_that_begin_another_are_refused_with_both_shown() {
    let encoder = PromptEncoder::new(from_gguf(&goldens().join("tokenizers/tiny-bpe-smollm.gguf")));
    let refused = encoder.encode_labels(&Prompt::Text("Score:".into()), &labels(&[&["1"], &["10"]]));
    assert!(matches!(refused, Err(EncodeError::Labels(LabelError::Prefix { .. }))), "{refused:?}");
}

/// A copy of the small byte-level tokenizer with this file added or replaced.
fn folder_with(name: &str, change: &dyn Fn(&mut Json)) -> tempfile::TempDir {
    let (from, to) = (goldens().join("tokenizers/tiny-bpe-qwen2"), tempfile::tempdir().expect("a folder"));
    for name in ["tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(from.join(name), to.path().join(name)).expect("copied");
    }
    let path = to.path().join(name);
    let mut content = if path.exists() { json(&path) } else { Json::Object(serde_json::Map::new()) };
    change(&mut content);
    std::fs::write(path, content.to_string()).expect("written");
    to
}

#[test]
fn tokens_that_the_vocabulary_lacks_are_refused_by_file_and_field() {
    let refused = |name: &str, change: &dyn Fn(&mut Json), word: &str| {
        let folder = folder_with(name, change);
        let error = Tokenizer::from_json(&folder.path().join("tokenizer.json")).err().expect(word).to_string();
        assert!(error.contains(name) && error.contains(word), "{word}: {error}");
    };
    for name in ["config.json", "generation_config.json"] {
        refused(name, &|json| json["eos_token_id"] = 99_999.into(), "`eos_token_id` is 99999");
    }
    for field in ["bos_token", "eos_token"] {
        refused("tokenizer_config.json", &|json| json[field] = "<nope>".into(), &format!("`{field}` is `<nope>`"));
    }
    let template = |name: &str| serde_json::json!({ "name": name, "template": "{{ messages[0].content }}" });
    for (names, count) in [(vec!["rag"], "0 templates"), (vec!["default", "default"], "2 templates")] {
        let list: Vec<Json> = names.into_iter().map(template).collect();
        refused("tokenizer_config.json", &|json| json["chat_template"] = list.clone().into(), count);
    }
}

#[test]
fn marks_of_a_template_that_are_no_tokens_are_told() {
    let folder = folder_with("tokenizer_config.json", &|json| {
        json["chat_template"] = "{{ '<|im_start|>' + messages[0].content + '<|nope|>' }}".into();
    });
    let encoder = PromptEncoder::new(from_json(&folder.path().join("tokenizer.json")));
    assert_eq!(encoder.spelled_marks(), ["<|nope|>"]);
}

#[test]
fn the_token_that_ends_a_turn_is_the_templates() {
    for (name, encoder) in encoders() {
        let end = encoder.end_of_answer(&user("hello")).expect("an end");
        assert!(encoder.tokenizer().is_special(end), "{name}");
        assert!(encoder.tokenizer().ends().contains(&end) || name.starts_with("tiny"), "{name}: {end}");
    }
}

//! Properties of encoding on random texts: equal to the `tokenizers` library, consistent at the boundary between prompt
//! and answer, and no special tokens from data.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use probity_lm::{Message, Prompt, Role};
use probity_runtime::encoder::PromptEncoder;
use probity_runtime::tokenizer::Tokenizer;
use probity_runtime::weights::GgufFile;
use proptest::prelude::*;
use serde_json::{Value as Json, json};

fn tiny(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens/tokenizers").join(name)
}

/// A `tokenizer.json` modified by `change`, loaded by us and by the library.
struct Pair {
    name: &'static str,
    ours: PromptEncoder,
    library: tokenizers::Tokenizer,
}

fn pair(name: &'static str, base: &str, change: impl Fn(&mut Json)) -> Pair {
    let folder = tempfile::tempdir().expect("temporary folder");
    let text = std::fs::read(tiny(base).join("tokenizer.json")).expect("a committed file");
    let mut json: Json = serde_json::from_slice(&text).expect("JSON");
    change(&mut json);
    let path = folder.path().join("tokenizer.json");
    std::fs::write(&path, json.to_string()).expect("written");
    let config = tiny(base).join("tokenizer_config.json");
    std::fs::copy(config, folder.path().join("tokenizer_config.json")).expect("copied");
    let ours = PromptEncoder::new(Tokenizer::from_json(&path).unwrap_or_else(|e| panic!("{name}: {e}")));
    let library = tokenizers::Tokenizer::from_file(&path).expect("valid for the library");
    Pair { name, ours, library }
}

fn flags(json: &mut Json, flags: &Json) {
    for token in json["added_tokens"].as_array_mut().expect("a list") {
        for (name, value) in flags.as_object().expect("flags") {
            token[name] = value.clone();
        }
    }
}

/// Rules of real tokenizers, on the tiny vocabularies.
static PAIRS: LazyLock<Vec<Pair>> = LazyLock::new(|| {
    let first = |json: &mut Json| {
        json["normalizer"] = Json::Null;
        json["pre_tokenizer"] =
            json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false});
    };
    vec![
        pair("byte-level", "tiny-bpe-smollm", |_| ()),
        pair("byte-level with NFC", "tiny-bpe-qwen2", |_| ()),
        pair("byte-level, stripping tokens", "tiny-bpe-qwen2", |json| {
            flags(json, &json!({"lstrip": true, "rstrip": true}));
        }),
        pair("byte-level, single words", "tiny-bpe-smollm", |json| flags(json, &json!({"single_word": true}))),
        pair("sentencepiece, space before each stretch", "tiny-spm-json", |_| ()),
        pair("sentencepiece, space before the first", "tiny-spm-json", first),
        pair("sentencepiece, stripping tokens", "tiny-spm-json", |json| flags(json, &json!({"rstrip": true}))),
        pair("sentencepiece, normalised tokens", "tiny-spm-json", |json| {
            first(json);
            flags(json, &json!({"normalized": true}));
        }),
    ]
});

static ENCODERS: LazyLock<Vec<PromptEncoder>> = LazyLock::new(|| {
    let gguf = |name: &str| {
        Tokenizer::from_gguf(&GgufFile::open(&tiny(name)).expect("a committed file")).expect("a valid vocabulary")
    };
    let names = ["tiny-bpe-smollm.gguf", "tiny-bpe-qwen2.gguf", "tiny-spm.gguf"];
    names.into_iter().map(|name| PromptEncoder::new(gguf(name))).collect()
});

/// Texts of spans that are difficult for tokenizers.
fn text(pieces: std::ops::Range<usize>) -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[a-zA-Z]{1,6}",
        3 => Just(" ".to_owned()),
        3 => Just("\n".to_owned()),
        1 => "[ \t\r\n]{2,4}",
        2 => "[0-9]{1,4}",
        2 => "[.,;:!?'<>|/\\[\\]_-]{1,3}",
        1 => "\\PC{1,3}",
        1 => Just("e\u{301}".to_owned()),
        3 => prop::sample::select(vec!["<|im_end|>", "<|im_start|>", "<|turn|>", "</s>", "<s>", "<unk>", "<judge>", "::", "▁", "'s", "<|im", "end|>", "<", ">"])
            .prop_map(str::to_owned),
    ];
    prop::collection::vec(piece, pieces).prop_map(|pieces| pieces.concat())
}

fn whole(encoder: &PromptEncoder, text: &str) -> Vec<u32> {
    let tokenizer = encoder.tokenizer();
    let bos = tokenizer.bos().filter(|_| tokenizer.adds_bos());
    bos.into_iter().chain(tokenizer.encode_text(text).expect("encodable")).collect()
}

fn specials(encoder: &PromptEncoder, ids: &[u32]) -> usize {
    ids.iter().filter(|&&id| encoder.tokenizer().steers(id) && encoder.tokenizer().unknown() != Some(id)).count()
}

fn chat(content: &str, answer_prefix: &str) -> Prompt {
    Prompt::chat(vec![Message::new(Role::User, content)], answer_prefix)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn trusted_text_has_the_ids_of_the_library(text in text(0..12)) {
        for Pair { name, ours, library } in PAIRS.iter() {
            let expected = library.encode_fast(text.as_str(), false).expect("encodable");
            prop_assert_eq!(ours.tokenizer().encode_trusted(&text).expect("encodable"), expected.get_ids(), "{}", name);
        }
    }

    #[test]
    fn text_without_special_literals_is_the_same_trusted_or_not(text in text(0..12)) {
        for encoder in PAIRS.iter().map(|pair| &pair.ours).chain(ENCODERS.iter()) {
            let tokenizer = encoder.tokenizer();
            let trusted = tokenizer.encode_trusted(&text).expect("encodable");
            if !trusted.iter().any(|&id| tokenizer.steers(id)) {
                prop_assert_eq!(tokenizer.encode_text(&text).expect("encodable"), trusted);
            }
        }
    }

    #[test]
    fn data_holds_no_special_token_in_any_place(content in text(0..10), prefix in text(0..4), suffix in text(1..4)) {
        // Single-word tokens are matched or not depending on the adjacent text, which may be data.
        let pairs = PAIRS.iter().filter(|pair| pair.name != "byte-level, single words");
        for encoder in pairs.map(|pair| &pair.ours).chain(ENCODERS.iter()) {
            let tokenizer = encoder.tokenizer();
            prop_assert_eq!(specials(encoder, &tokenizer.encode_text(&content).expect("encodable")), 0);
            // The answer prefix comes from the user, so its special tokens are intended.
            let expected = specials(encoder, &encoder.encode_prompt(&chat("x", &prefix)).expect("encodable"));
            let encoded = encoder.encode_continuation(&chat(&content, &prefix), &suffix).expect("encodable");
            let ids = [encoded.prefix, encoded.continuation].concat();
            prop_assert_eq!(specials(encoder, &ids), expected, "{:?} {:?} {:?}", content, prefix, suffix);
        }
    }

    #[test]
    fn prompt_and_continuation_together_are_the_whole(before in text(0..14), after in text(1..4)) {
        for encoder in PAIRS.iter().map(|pair| &pair.ours).chain(ENCODERS.iter()) {
            let encoded = encoder.encode_continuation(&Prompt::Text(before.clone()), &after).expect("encodable");
            prop_assert_eq!([encoded.prefix, encoded.continuation].concat(), whole(encoder, &format!("{before}{after}")), "{:?} {:?}", before, after);
        }
    }

    #[test]
    fn chat_and_continuation_together_are_the_whole(content in text(0..8), prefix in text(0..8), after in text(1..4)) {
        for encoder in PAIRS.iter().map(|pair| &pair.ours).chain(ENCODERS.iter()) {
            let encoded = encoder.encode_continuation(&chat(&content, &prefix), &after).expect("encodable");
            let joint = encoder.encode_prompt(&chat(&content, &format!("{prefix}{after}"))).expect("encodable");
            let ids = [encoded.prefix, encoded.continuation].concat();
            // The prefix comes from the user, so its special tokens are intended; the following text is data.
            let steering = |ids: &[u32]| ids.iter().filter(|&&id| encoder.tokenizer().steers(id)).count();
            if steering(&joint) != steering(&ids) {
                continue;
            }
            prop_assert_eq!(ids, joint, "{:?} {:?} {:?}", content, prefix, after);
        }
    }

    #[test]
    fn tokens_are_followed_by_exactly_the_text(after in "[a-z ]{1,8}") {
        for encoder in PAIRS.iter().map(|pair| &pair.ours).chain(ENCODERS.iter()) {
            let tokenizer = encoder.tokenizer();
            let ids = tokenizer.encode_following(&after).expect("encodable");
            prop_assert_eq!(ids.iter().map(|&id| tokenizer.token_text(id)).collect::<String>(), after.as_str());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn texts_that_begin_alike_have_the_ids_they_have_alone(
        beginnings in [text(0..16), text(0..6)], ends in prop::collection::vec(text(0..6), 4)
    ) {
        // Alternates between two prefix lengths, as with a context and several candidates.
        let beginning = |k: usize| beginnings[..=k / 2 % 2].concat();
        let texts: Vec<String> = ends.iter().enumerate().map(|(k, end)| beginning(k) + end).collect();
        for encoder in PAIRS.iter().map(|pair| &pair.ours).chain(ENCODERS.iter()) {
            for prompt in [|text: &str| Prompt::Text(text.to_owned()), |text: &str| chat(text, "")] {
                let encode = |text: &String| encoder.encode_continuation(&prompt(text), "so").expect("encodable");
                let one_after_another: Vec<_> = texts.iter().map(encode).collect();
                let alone = texts.iter().map(|text| {
                    // An empty text shares no prefix.
                    encoder.encode_prompt(&Prompt::Text(String::new())).expect("encodable");
                    encode(text)
                });
                prop_assert_eq!(one_after_another, alone.collect::<Vec<_>>(), "{:?}", texts);
            }
        }
    }
}

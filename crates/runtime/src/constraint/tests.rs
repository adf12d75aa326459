//! Texts allowed under constraints.

use std::path::Path;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use super::*;
use crate::weights::GgufFile;

fn tokenizer(name: &str) -> Tokenizer {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens/tokenizers").join(name);
    Tokenizer::from_gguf(&GgufFile::open(&path).expect("golden")).expect("valid")
}

/// A byte-level and a sentencepiece vocabulary.
fn both() -> [Tokenizer; 2] {
    ["tiny-bpe-smollm.gguf", "tiny-spm.gguf"].map(tokenizer)
}

fn grammars(tokenizer: &Tokenizer) -> ConstraintGrammars {
    ConstraintGrammars::new(tokenizer).expect("a vocabulary")
}

fn choice<const N: usize>(texts: [&str; N]) -> Constraint {
    Constraint::Choice(texts.map(str::to_owned).to_vec())
}

/// The allowed next tokens, queried individually and as a mask.
fn allowed(text: &mut ConstrainedText) -> Vec<u32> {
    let one_by_one: Vec<u32> = (0..1000).filter(|id| text.allows(*id).expect("a token or none")).collect();
    let masked = text.allowed().expect("some tokens").masked(&[0.0; 1000]);
    let together: Vec<u32> = (0..1000).filter(|id| masked[*id as usize] == 0.0).collect();
    assert_eq!(one_by_one, together);
    together
}

/// All texts that a constraint allows within a number of tokens, with their ids.
fn all(
    grammars: &ConstraintGrammars,
    tokenizer: &Tokenizer,
    constraint: &Constraint,
    most: usize,
) -> Vec<(String, Vec<u32>)> {
    let (mut open, mut ended) = (vec![Vec::new()], Vec::new());
    while let Some(ids) = open.pop() {
        let mut text = grammars.start(constraint).expect("a constraint");
        for id in &ids {
            text.advance(*id).expect("allowed");
        }
        for id in allowed(&mut text) {
            if tokenizer.ends().contains(&id) {
                ended.push((tokenizer.decode(&ids).expect("text"), ids.clone()));
            } else if ids.len() < most {
                open.push([ids.as_slice(), &[id]].concat());
            }
        }
    }
    ended
}

#[test]
fn a_choice_admits_each_of_its_texts_in_every_spelling_and_nothing_else() {
    for tokenizer in both() {
        let grammars = grammars(&tokenizer);
        let texts = ["no", "10", "1", "a b/c"];
        let found = all(&grammars, &tokenizer, &choice(texts), 7);
        assert!(found.iter().all(|(text, _)| texts.contains(&text.as_str())), "{found:?}");
        for text in texts {
            let spellings: Vec<&Vec<u32>> =
                found.iter().filter(|(found, _)| found == text).map(|(_, ids)| ids).collect();
            for ids in [tokenizer.encode_text(text), tokenizer.encode_following(text)] {
                assert!(spellings.contains(&&ids.expect("encodable")), "{text}");
            }
        }
    }
}

#[test]
fn a_text_begins_with_a_space_where_it_is_to_and_with_none_otherwise() {
    for tokenizer in both() {
        let grammars = grammars(&tokenizer);
        for texts in [[" a"], ["a"]] {
            let found = all(&grammars, &tokenizer, &choice(texts), 3);
            assert!(!found.is_empty() && found.iter().all(|(text, _)| *text == texts[0]), "{found:?}");
        }
    }
}

#[test]
fn a_text_may_end_where_another_goes_on_and_must_where_none_does() {
    let tokenizer = tokenizer("tiny-bpe-smollm.gguf");
    let mut text = grammars(&tokenizer).start(&choice(["1", "10"])).expect("a constraint");
    let id = |piece: &str| tokenizer.token_id(piece).expect("a byte is a token");
    text.advance(id("1")).expect("allowed");
    let mut expected = tokenizer.ends().to_vec();
    expected.push(id("0"));
    expected.sort_unstable();
    assert_eq!(allowed(&mut text), expected);
    assert!(!text.is_finished());
    text.advance(id("0")).expect("allowed");
    assert!(text.is_finished());
    assert_eq!(allowed(&mut text), tokenizer.ends());
    assert!(text.advance(id("0")).is_err());
}

#[test]
fn parts_of_characters_are_written_byte_by_byte() {
    for tokenizer in both() {
        let found = all(&grammars(&tokenizer), &tokenizer, &Constraint::Regex("[öü]".into()), 3);
        let mut texts: Vec<&str> = found.iter().map(|(text, _)| text.as_str()).collect();
        texts.sort_unstable();
        texts.dedup();
        assert_eq!(texts, ["ö", "ü"]);
    }
}

#[test]
fn an_expression_matches_the_whole_text() {
    for tokenizer in both() {
        let found = all(&grammars(&tokenizer), &tokenizer, &Constraint::Regex(r"(?i)a/|\d".into()), 2);
        let mut texts: Vec<&str> = found.iter().map(|(text, _)| text.as_str()).filter(|text| text.is_ascii()).collect();
        texts.sort_unstable();
        texts.dedup();
        assert_eq!(texts, ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "A/", "a/"]);
    }
}

#[test]
fn what_cannot_be_kept_is_refused_with_a_reason_and_a_hint() {
    let grammars = grammars(&tokenizer("tiny-bpe-smollm.gguf"));
    let schema = Constraint::JsonSchema;
    for (constraint, told) in [
        (choice([]), "the list of choices is empty"),
        (Constraint::Regex("(?=a)b".into()), "this regex is not supported: look-around, including look-ahead"),
        (Constraint::Regex(r"(a)\1".into()), "this regex is not supported"),
        (Constraint::Regex("(".into()), "this regex is not supported: unclosed group"),
        (schema(json!({"type": "text"})), "schema #: not supported"),
        (schema(json!({"type": "string", "format": "isbn"})), "schema #/format: not supported: Unknown format: isbn"),
        (
            schema(json!({"items": {"anyOf": [{"type": "null"}, {"type": "string", "pattern": "(?=a)b"}]}})),
            "schema #/items/anyOf/1/pattern: ",
        ),
        (
            schema(json!({"properties": {"a": {"$ref": "#/$defs/p"}}, "$defs": {"p": {"pattern": "("}}})),
            "schema #/$defs/p/pattern: ",
        ),
        (schema(json!({"properties": {"a": {"required": 3}}})), "schema #/properties/a/required: "),
        (schema(json!({"enum": []})), "schema #/enum: not supported"),
        (schema(json!(false)), "allows no text"),
        (
            schema(json!({"properties": {"a": {"oneOf": [{"minimum": 3}, {"maximum": 9}]}}})),
            "schema #/properties/a/oneOf: `oneOf` is supported only if",
        ),
        (schema(json!({"properties": {"a/b~c": {"pattern": "("}}})), "schema #/properties/a~1b~0c/pattern: "),
        (schema(json!({"$ref": "#"})), "schema #/$ref: the schema refers to itself endlessly"),
        (
            schema(json!({"allOf": [{"$ref": "#/$defs/p"}], "$defs": {"p": {"allOf": [{"$ref": "#/$defs/p"}]}}})),
            "schema #/$defs/p/allOf/0/$ref: the schema refers to itself endlessly",
        ),
        (schema(json!({"$ref": "#/$defs/none"})), "schema #/$ref: not supported"),
    ] {
        let Err(why) = grammars.start(&constraint) else { panic!("{constraint:?} is refused") };
        assert!(why.to_string().contains(told), "{told}\n{why}");
        assert!(!crate::hint_of(&why).is_empty() || matches!(why, ConstraintError::NoChoice), "{why}");
    }
}

#[test]
fn a_vocabulary_that_cannot_begin_a_text_is_told() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens/models/tiny-masked/tokenizer.json");
    let grammars = grammars(&Tokenizer::from_json(&path).expect("valid"));
    let Err(why) = grammars.start(&choice(["\u{1f600}"])) else { panic!("a vocabulary of pieces has no such token") };
    assert!(matches!(why, ConstraintError::NoBeginning { .. }), "{why}");
}

/// A small object like those that judges write.
fn verdict_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "verdict": {"enum": ["A", "B", "tie"]},
            "score": {"type": "integer", "minimum": 1, "maximum": 10},
            "reasons": {"type": "array", "items": {"type": "string", "maxLength": 12}, "maxItems": 2},
            "sure": {"type": ["boolean", "null"]},
        },
        "required": ["verdict", "score", "reasons"],
        "additionalProperties": false,
    })
}

fn validates(schema: &Value, text: &str) -> bool {
    let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
    compiler.add_resource("schema.json", schema.clone()).expect("a schema");
    let index = compiler.compile("schema.json", &mut schemas).expect("a schema");
    serde_json::from_str(text).is_ok_and(|value| schemas.validate(&value, index).is_ok())
}

/// A text from random allowed tokens. `None` if it reaches the token limit.
fn babble(
    grammars: &ConstraintGrammars,
    tokenizer: &Tokenizer,
    constraint: &Constraint,
    seed: u64,
    most: usize,
) -> Option<String> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut text = grammars.start(constraint).expect("a constraint");
    let mut ids = Vec::new();
    while !text.is_finished() {
        let may = allowed(&mut text);
        let id = may[random.random_range(0..may.len())];
        if tokenizer.ends().contains(&id) {
            break;
        }
        text.advance(id).expect("allowed");
        ids.push(id);
        if ids.len() == most {
            return None;
        }
    }
    Some(tokenizer.decode(&ids).expect("text"))
}

#[test]
fn whatever_a_model_says_is_an_instance_of_the_schema_without_spare_blanks() {
    let schema = verdict_schema();
    let constraint = Constraint::JsonSchema(schema.clone());
    for tokenizer in both() {
        let grammars = grammars(&tokenizer);
        for seed in 0..60 {
            let text = babble(&grammars, &tokenizer, &constraint, seed, 200).expect("a bounded schema ends");
            assert!(validates(&schema, &text), "{text}");
            let value: Value = serde_json::from_str(&text).expect("JSON");
            let blanks = |text: &str| text.bytes().filter(u8::is_ascii_whitespace).count();
            let most = text.matches([':', ',']).count() + blanks(&value.to_string());
            assert!(blanks(&text) <= most && text.trim() == text, "{text:?}");
        }
    }
}

/// Whether a text is allowed under a schema with the tokenizer's own tokenisation.
fn admits(tokenizer: &Tokenizer, schema: &Value, text: &str) -> bool {
    let mut written = grammars(tokenizer).start(&Constraint::JsonSchema(schema.clone())).expect("a constraint");
    let ids = tokenizer.encode_text(text).expect("encodable");
    let follows = ids.iter().all(|id| {
        let allowed = written.allows(*id).expect("a token or none");
        allowed && written.advance(*id).is_ok()
    });
    follows && tokenizer.ends().iter().any(|end| written.allows(*end).expect("a token or none"))
}

#[test]
fn a_schema_is_kept_exactly() {
    let tokenizer = tokenizer("tiny-bpe-smollm.gguf");
    let step = json!({"type": "number", "multipleOf": 0.1, "minimum": 0.3, "maximum": 0.3});
    let open = json!({"type": "object", "properties": {"a": {"const": 1}}, "additionalProperties": true});
    let steps = json!({"type": "number", "multipleOf": 0.1, "minimum": 0.3, "maximum": 0.8});
    let large =
        json!({"type": "integer", "minimum": 9_007_199_254_740_989_i64, "exclusiveMaximum": 9_007_199_254_740_991_i64});
    for (schema, text, is_one) in [
        (&step, "0.3", true),
        (&step, "0.4", false),
        (&steps, "0.7", true),
        (&steps, "0.75", false),
        (&open, r#"{"a": 1}"#, true),
        (&open, r#"{"b": 2}"#, true),
        (&open, r#"{"a": 2}"#, false),
        (&open, r#"{"\u0061": 2}"#, false),
        (&open, r#"{"a": 1, "\u0061": 2}"#, false),
        (&open, r#"{"a": 1, "a": 2}"#, false),
        (&large, "9007199254740990", true),
        (&large, "9007199254740991", false),
    ] {
        assert_eq!(admits(&tokenizer, schema, text), is_one, "{text} under {schema}");
    }
}

#[test]
fn one_text_does_not_depend_on_another_under_the_same_constraint() {
    let tokenizer = tokenizer("tiny-bpe-smollm.gguf");
    let (shared, constraint) = (grammars(&tokenizer), Constraint::JsonSchema(verdict_schema()));
    let (mut one, mut other) =
        (shared.start(&constraint).expect("a constraint"), shared.start(&constraint).expect("a constraint"));
    let first = allowed(&mut one);
    one.advance(first[0]).expect("allowed");
    assert_eq!(allowed(&mut other), first);
    for seed in 0..5 {
        let alone = babble(&grammars(&tokenizer), &tokenizer, &constraint, seed, 200);
        assert_eq!(babble(&shared, &tokenizer, &constraint, seed, 200), alone);
    }
}

#[test]
fn only_the_constraints_that_were_asked_for_last_are_kept() {
    let grammars = grammars(&tokenizer("tiny-bpe-smollm.gguf"));
    for n in 0..2 * KEPT {
        grammars.start(&choice([&n.to_string()])).expect("a constraint");
    }
    assert_eq!(grammars.compiled.lock().expect("not poisoned").len(), KEPT);
}

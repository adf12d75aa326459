//! Constrained decoding: which tokens may come next for a text to be one of a list, match a regular expression or be an
//! instance of a JSON schema.
//!
//! The library llguidance turns a constraint into a grammar over bytes and walks it with a trie of the vocabulary.
//! Every way of cutting an allowed text into tokens is allowed: a model's own choice of tokens is kept wherever the
//! text may be so.
//!
//! JSON is written on one line, with at most one space behind a comma or a colon and no other white space between
//! values, so a model cannot fill its limit with blanks. Objects have their properties in the schema's order. A schema
//! that bounds nothing (strings without `maxLength`, arrays without `maxItems`, numbers without a range) lets a text go
//! on until its limit of tokens, where it is cut. A schema is kept exactly, or the part that cannot be kept is refused by
//! its path.

mod exact;
mod schema;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{ApproximateTokEnv, INVALID_TOKEN, SimpleVob, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory, regex_to_lark};
use probity_lm::Constraint;

use crate::tokenizer::Tokenizer;

/// Compiled constraints that are kept: work lists ask for the same few again and again.
const KEPT: usize = 64;

/// Texts that share what was found out about a constraint's expressions, so that it does not grow for ever.
const SHARED: usize = 1000;

/// Work that the next token of one text may take, in steps of the library, some seconds: far beyond what schemas need,
/// so that no text fails for want of what another has found out.
const FUEL: u64 = 100_000_000;
const STATES: usize = 10_000_000;

/// Makes constraints for one vocabulary.
pub(crate) struct ConstraintGrammars {
    factory: ParserFactory,
    /// Decoding drops a space before the first word.
    drops_space: bool,
    /// The latest last.
    compiled: Mutex<Vec<CompiledConstraint>>,
}

/// A constraint that is ready to be used.
struct CompiledConstraint {
    constraint: Constraint,
    /// As it was made.
    fresh: Matcher,
    /// Texts begin as copies of this one and share its cache.
    shared: Matcher,
    begun: usize,
}

/// A text in the making that is to satisfy a constraint.
pub(crate) struct ConstrainedText {
    matcher: Matcher,
    /// Whether it has a token.
    begun: bool,
    /// Of this place, where it is known.
    mask: Option<Mask>,
}

/// The tokens that may come next, a bit for each id of the vocabulary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mask(SimpleVob);

impl Mask {
    /// In words of 32.
    pub(crate) fn bits(&self) -> &[u32] {
        self.0.as_slice()
    }

    fn has(&self, token: u32) -> bool {
        // The output head may have more rows than the vocabulary has tokens.
        (token as usize) < self.0.len() && self.0.is_allowed(token)
    }

    /// The logits of the tokens that may come next, and minus infinity for all others: those beyond the vocabulary too.
    pub(crate) fn masked(&self, logits: &[f32]) -> Vec<f32> {
        let mut masked = vec![f32::NEG_INFINITY; logits.len()];
        for ((bits, masked), logits) in self.bits().iter().zip(masked.chunks_mut(32)).zip(logits.chunks(32)) {
            match *bits {
                0 => {}
                u32::MAX => masked.copy_from_slice(logits),
                bits => {
                    let allowed = masked.iter_mut().zip(logits).enumerate().filter(|(bit, _)| bits >> bit & 1 == 1);
                    allowed.for_each(|(_, (masked, logit))| *masked = *logit);
                }
            }
        }
        masked
    }
}

/// Why a text cannot be kept within a constraint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
pub(crate) enum ConstraintError {
    #[error("there is nothing to choose from")]
    NoChoice,
    #[error("`false` is a schema of no text at all")]
    #[diagnostic(help("leave the schema out where anything may come"))]
    NoText,
    #[error("schema {place}: `{found}` is no schema")]
    #[diagnostic(help("a schema is an object, true or false"))]
    NoSchema { place: String, found: String },
    #[error(
        "schema {place}: the keyword `{keyword}` cannot be kept{}",
        probity_lm::did_you_mean(*nearest)
    )]
    #[diagnostic(help("leave it out, and check it in the answers; {kept} are kept"))]
    Keyword { keyword: String, place: String, nearest: Option<&'static str>, kept: String },
    #[error("schema {place}: {why}")]
    #[diagnostic(help("leave this part out, and check it in the answers"))]
    Part { place: String, why: String },
    #[error("`oneOf` is kept only where its alternatives cannot hold at once (other types, other constants)")]
    #[diagnostic(help("use `anyOf`"))]
    OneOf,
    #[error("this {what} cannot be kept: {why}")]
    #[diagnostic(help("{hint}"))]
    Refused { what: &'static str, why: String, hint: &'static str },
    #[error("the model's vocabulary cannot write the beginning of any text that this {what} admits")]
    #[diagnostic(help("ask another model"))]
    NoBeginning { what: &'static str },
    /// The vocabulary or the library failed.
    #[error("{why}")]
    Library { why: String },
}

impl ConstraintError {
    fn library(error: impl fmt::Display) -> Self {
        Self::Library { why: error.to_string() }
    }
}

impl ConstraintGrammars {
    /// Reads the vocabulary, which takes some tens of milliseconds.
    pub(crate) fn new(tokenizer: &Tokenizer) -> Result<Self, ConstraintError> {
        let ends = tokenizer.ends();
        let words: Vec<Vec<u8>> = (0..tokenizer.vocab_size() as u32)
            // An end token writes nothing: the library knows it by its id alone.
            .map(|id| if ends.contains(&id) { Vec::new() } else { tokenizer.token_bytes(id).unwrap_or_default() })
            .collect();
        // Found out by decoding one word: what becomes of the first space is the decoder's to say.
        let first_word = words.iter().position(|word| word.len() > 1 && word[0] == b' ');
        let decoded =
            first_word.map(|id| tokenizer.decode(&[id as u32])).transpose().map_err(ConstraintError::library)?;
        let trie = TokTrie::from(&TokRxInfo::new(words.len() as u32, INVALID_TOKEN), &words);
        let trie = if ends.is_empty() { trie } else { trie.with_eos_tokens(ends) };
        // Tokens are not forced: what must come next may be written in several ways, and which is for the model to say.
        let environment: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let mut factory = ParserFactory::new_simple(&environment).map_err(ConstraintError::library)?;
        let limits = factory.quiet().limits_mut();
        (limits.verbose_errors, limits.step_lexer_fuel, limits.max_lexer_states) = (false, FUEL, STATES);
        Ok(Self {
            factory,
            drops_space: decoded.is_some_and(|text| !text.starts_with(' ')),
            compiled: Mutex::default(),
        })
    }

    /// A new text under a constraint, or why that is none, with a hint. What may come next depends on no other text.
    pub(crate) fn start(&self, constraint: &Constraint) -> Result<ConstrainedText, ConstraintError> {
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        let at = compiled.iter().position(|known| known.constraint == *constraint);
        // Taken out and put back behind the others, so that what was not asked for longest goes first.
        let known = at.map(|at| compiled.remove(at));
        let mut known = known.map_or_else(|| self.compile(constraint), Ok)?;
        if known.begun == SHARED {
            (known.shared, known.begun) = (known.fresh.deep_clone(), 0);
        }
        known.begun += 1;
        let matcher = known.shared.clone();
        compiled.push(known);
        if compiled.len() > KEPT {
            compiled.remove(0);
        }
        Ok(ConstrainedText { matcher, begun: false, mask: None })
    }

    fn compile(&self, constraint: &Constraint) -> Result<CompiledConstraint, ConstraintError> {
        let (what, grammar) = match constraint {
            Constraint::Choice(choice) if choice.is_empty() => return Err(ConstraintError::NoChoice),
            Constraint::Choice(choice) => {
                let alternatives: Vec<String> = choice.iter().map(|text| regex::escape(text)).collect();
                ("choice", self.text(&alternatives.join("|")))
            }
            Constraint::Regex(regex) => ("regex", self.text(regex)),
            Constraint::JsonSchema(given) => ("schema", self.json(&schema::prepared(given)?)),
        };
        let parser = self.factory.create_parser(TopLevelGrammar::from_lark(grammar));
        let mut matcher = Matcher::new(parser);
        if let Some(error) = matcher.get_error() {
            return Err(refusal(what, &error));
        }
        // What the library only warns of, it would not keep: a text outside of the constraint could come out.
        if let [warning, ..] = &matcher.grammar_warnings()[..] {
            return Err(refusal(what, warning));
        }
        // Does the vocabulary have a token to begin with?
        matcher.deep_clone().compute_mask_or_eos().map_err(|_| ConstraintError::NoBeginning { what })?;
        Ok(CompiledConstraint {
            constraint: constraint.clone(),
            shared: matcher.deep_clone(),
            fresh: matcher,
            begun: 0,
        })
    }

    /// The grammar of texts that a regular expression matches as a whole.
    fn text(&self, regex: &str) -> String {
        // In a group, so that alternatives stay together whatever is put before them.
        let regex = regex_to_lark(&format!("(?:{regex})"), "");
        if self.drops_space {
            // The first space of what tokens say is not in the text.
            format!("start: TEXT\nTEXT: (\" \" /{regex}/) | (/{regex}/ & ~/ (?s:.*)/)\n")
        } else {
            format!("start: TEXT\nTEXT: /{regex}/\n")
        }
    }

    /// The grammar of a schema's instances.
    fn json(&self, schema: &serde_json::Value) -> String {
        if self.drops_space {
            format!("start: json | \" \" json\njson: %json {schema}\n")
        } else {
            format!("start: %json {schema}\n")
        }
    }
}

/// Why the library has no grammar for a constraint, in its own words without its advice.
fn refusal(what: &'static str, error: &str) -> ConstraintError {
    let why = error.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
    if why.contains("oneOf constraints are not supported") {
        return ConstraintError::OneOf;
    }
    let hint = match what {
        "regex" => {
            "lookaround and backreferences are not supported; the expression matches the whole text, so it needs no ^ \
             and $"
        }
        "schema" => "leave out what is not supported, and check it in the answers",
        _ => "give texts that are not empty",
    };
    ConstraintError::Refused { what, why, hint }
}

impl ConstrainedText {
    /// The tokens that may come next: end tokens where the text may end, and they alone where it must.
    pub(crate) fn allowed(&mut self) -> Result<&Mask, ConstraintError> {
        let mask = match self.mask.take() {
            Some(mask) => mask,
            None => Mask(self.matcher.compute_mask_or_eos().map_err(ConstraintError::library)?),
        };
        Ok(self.mask.insert(mask))
    }

    /// Whether a token may come next, which takes microseconds where the mask of this place takes up to milliseconds.
    fn allows(&mut self, token: u32) -> Result<bool, ConstraintError> {
        // The library allots its work when it makes a mask: each text begins with one, so that it does not live on what
        // others have left.
        if !self.begun || self.mask.is_some() || self.is_finished() {
            return Ok(self.allowed()?.has(token));
        }
        let environment = self.matcher.tok_env().map_err(ConstraintError::library)?;
        let trie = environment.tok_trie();
        // It takes a token that says nothing for one that does no harm.
        if trie.token(token).is_empty() && !trie.eos_tokens().contains(&token) {
            return Ok(false);
        }
        Ok(self.matcher.validate_tokens(&[token]).map_err(ConstraintError::library)? == 1)
    }

    /// The tokens that may come next where this one may not.
    pub(crate) fn instead_of(&mut self, token: u32) -> Result<Option<&Mask>, ConstraintError> {
        // Most often a model keeps to its constraint of itself. So masks are rare, and a text under a schema was
        // measured to cost 1 to 2 % more.
        if self.allows(token)? { Ok(None) } else { self.allowed().map(Some) }
    }

    /// Goes on by a token that is allowed.
    pub(crate) fn advance(&mut self, token: u32) -> Result<(), ConstraintError> {
        (self.begun, self.mask) = (true, None);
        self.matcher.consume_token(token).map_err(ConstraintError::library)
    }

    /// Whether the text is complete and nothing but its end can follow.
    pub(crate) fn is_finished(&self) -> bool {
        self.matcher.is_stopped()
    }
}

#[cfg(test)]
mod tests {
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

    /// The tokens that may come next, asked one by one and all together.
    fn allowed(text: &mut ConstrainedText) -> Vec<u32> {
        let one_by_one: Vec<u32> = (0..1000).filter(|id| text.allows(*id).expect("a token or none")).collect();
        let masked = text.allowed().expect("some tokens").masked(&[0.0; 1000]);
        let together: Vec<u32> = (0..1000).filter(|id| masked[*id as usize] == 0.0).collect();
        assert_eq!(one_by_one, together);
        together
    }

    /// All texts that a constraint admits in so many tokens, with the ids they were written by.
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
            let mut texts: Vec<&str> =
                found.iter().map(|(text, _)| text.as_str()).filter(|text| text.is_ascii()).collect();
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
            (choice([]), "nothing to choose from"),
            (Constraint::Regex("(?=a)b".into()), "this regex cannot be kept"),
            (Constraint::Regex(r"(a)\1".into()), "this regex cannot be kept"),
            (Constraint::Regex("(".into()), "this regex cannot be kept"),
            (schema(json!({"type": "text"})), "this schema cannot be kept"),
            (schema(json!({"type": "string", "format": "isbn"})), "isbn"),
            (schema(json!({"enum": []})), "this schema cannot be kept"),
            (schema(json!(false)), "no text at all"),
            (schema(json!({"oneOf": [{"minimum": 3}, {"maximum": 9}]})), "`oneOf` is kept only where"),
            (schema(json!({"$ref": "#/$defs/none"})), "this schema cannot be kept"),
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
        let Err(why) = grammars.start(&choice(["\u{1f600}"])) else {
            panic!("a vocabulary of pieces has no such token")
        };
        assert!(matches!(why, ConstraintError::NoBeginning { .. }), "{why}");
    }

    /// A small object as judges write them.
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

    /// A text of a model that says anything, as long as it is allowed; absent where it came to so many tokens.
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

    /// Whether a text can be written under a constraint, in the tokens that the tokenizer makes of it.
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
        let large = json!({"type": "integer", "minimum": 9_007_199_254_740_989_i64, "exclusiveMaximum": 9_007_199_254_740_991_i64});
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
}

//! Constrained decoding: the tokens that can come next for a text to be one of a list, match a regular expression, or
//! be valid under a JSON schema.
//!
//! llguidance compiles a constraint to a grammar over bytes and walks it with a trie of the vocabulary. Every
//! tokenisation of a valid text is allowed, so a model's own choice of tokens is kept whenever the text stays valid.
//!
//! JSON is written on one line, with at most one space after a comma or colon and no other white space between values,
//! so a model cannot fill its token limit with blanks. Object properties come in schema order. A schema without bounds
//! (strings without `maxLength`, arrays without `maxItems`, numbers, with or without a range) allows text up to the
//! token limit, where it is cut. A schema is enforced exactly, or the unsupported part is reported by its path.

mod exact;
mod names;
mod refused;
mod schema;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{ApproximateTokEnv, INVALID_TOKEN, SimpleVob, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory, regex_to_lark};
use probity_lm::Constraint;
use serde_json::Value;

use crate::tokenizer::Tokenizer;

/// Number of cached constraints; work lists use the same few repeatedly.
const KEPT: usize = 64;

/// Number of texts that share the cached state of a constraint, to bound its growth.
const SHARED: usize = 1000;

/// Work limit for the next token of one text, in steps of the library: a few seconds. Far more than schemas need, so
/// that no text fails for lack of state cached by another.
const FUEL: u64 = 100_000_000;
const STATES: usize = 10_000_000;

/// Compiles constraints for one vocabulary.
pub(crate) struct ConstraintGrammars {
    factory: ParserFactory,
    /// Whether decoding drops a space before the first word.
    drops_space: bool,
    /// Most recently used last.
    compiled: Mutex<Vec<CompiledConstraint>>,
}

/// A compiled constraint.
struct CompiledConstraint {
    constraint: Constraint,
    /// Without cached state.
    fresh: Matcher,
    /// Texts start as copies of this one and share its cache.
    shared: Matcher,
    begun: usize,
}

/// A text being generated under a constraint.
pub(crate) struct ConstrainedText {
    matcher: Matcher,
    /// Whether the text has a token.
    begun: bool,
    /// For the current position, if known.
    mask: Option<Mask>,
}

/// The allowed next tokens, one bit per token id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mask(SimpleVob);

impl Mask {
    /// As 32-bit words.
    pub(crate) fn bits(&self) -> &[u32] {
        self.0.as_slice()
    }

    fn has(&self, token: u32) -> bool {
        // The output head may have more rows than the vocabulary has tokens.
        (token as usize) < self.0.len() && self.0.is_allowed(token)
    }

    /// The logits with −∞ for tokens that are not allowed or outside the vocabulary.
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

/// Why a constraint failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
pub(crate) enum ConstraintError {
    #[error("the list of choices is empty")]
    NoChoice,
    #[error("the schema `false` allows no text")]
    #[diagnostic(help("omit the schema to allow any text"))]
    NoText,
    #[error("schema {place}: `{found}` is not a schema")]
    #[diagnostic(help("use an object, true or false"))]
    NoSchema { place: String, found: String },
    #[error(
        "schema {place}: the keyword `{keyword}` is not supported{}",
        probity_lm::did_you_mean(*nearest)
    )]
    #[diagnostic(help("remove it, and check it in the answers; supported are {kept}"))]
    Keyword { keyword: String, place: String, nearest: Option<&'static str>, kept: String },
    #[error("schema {place}: {why}")]
    #[diagnostic(help("remove this part, and check it in the answers"))]
    Part { place: String, why: String },
    #[error(
        "schema {place}: `oneOf` is supported only if its alternatives exclude each other (different types, different \
         constants)"
    )]
    #[diagnostic(help("use `anyOf`"))]
    OneOf { place: String },
    #[error("schema {place}: the schema refers to itself endlessly")]
    #[diagnostic(help("let the reference end in a schema that describes the text"))]
    Endless { place: String },
    #[error("this {what} is not supported: {why}")]
    #[diagnostic(help("{hint}"))]
    Refused { what: &'static str, why: String, hint: &'static str },
    #[error("the model's vocabulary cannot begin any text that this {what} allows")]
    #[diagnostic(help("use another model"))]
    NoBeginning { what: &'static str },
    /// An error of the vocabulary or the library.
    #[error("{why}")]
    Library { why: String },
}

impl ConstraintError {
    fn library(error: impl fmt::Display) -> Self {
        Self::Library { why: error.to_string() }
    }
}

impl ConstraintGrammars {
    /// Reads the vocabulary, which takes tens of milliseconds.
    pub(crate) fn new(tokenizer: &Tokenizer) -> Result<Self, ConstraintError> {
        let ends = tokenizer.ends();
        let words: Vec<Vec<u8>> = (0..tokenizer.vocab_size() as u32)
            // An end token has no text; the library identifies it by id.
            .map(|id| if ends.contains(&id) { Vec::new() } else { tokenizer.token_bytes(id).unwrap_or_default() })
            .collect();
        // Determined by decoding one word, because the decoder decides about the first space.
        let first_word = words.iter().position(|word| word.len() > 1 && word[0] == b' ');
        let decoded =
            first_word.map(|id| tokenizer.decode(&[id as u32])).transpose().map_err(ConstraintError::library)?;
        let trie = TokTrie::from(&TokRxInfo::new(words.len() as u32, INVALID_TOKEN), &words);
        let trie = if ends.is_empty() { trie } else { trie.with_eos_tokens(ends) };
        // Tokens are not forced: required text can be tokenised in several ways, and the model chooses.
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

    /// Starts a text under a constraint. An invalid constraint is an error with a hint. The allowed tokens do not
    /// depend on other texts.
    pub(crate) fn start(&self, constraint: &Constraint) -> Result<ConstrainedText, ConstraintError> {
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        let at = compiled.iter().position(|known| known.constraint == *constraint);
        // Moved to the end, so that the least recently used is evicted first.
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
        let matcher = match (self.matcher(grammar), constraint) {
            (Err(why), Constraint::JsonSchema(schema)) => {
                let is_kept = |part: &Value| {
                    // A part that was changed as part of the whole is not rejected on its own.
                    schema::prepared(part).is_ok_and(|part| self.matcher(self.json(&part)).is_ok())
                };
                return Err(refused::schema(schema, &why, is_kept));
            }
            (matcher, _) => matcher.map_err(|why| refusal(what, &why))?,
        };
        // Checks that the vocabulary has a token to start with.
        matcher.deep_clone().compute_mask_or_eos().map_err(|_| ConstraintError::NoBeginning { what })?;
        Ok(CompiledConstraint {
            constraint: constraint.clone(),
            shared: matcher.deep_clone(),
            fresh: matcher,
            begun: 0,
        })
    }

    /// Compiles a grammar. Returns the library's error message on failure.
    fn matcher(&self, grammar: String) -> Result<Matcher, String> {
        let parser = self.factory.create_parser(TopLevelGrammar::from_lark(grammar));
        let mut matcher = Matcher::new(parser);
        if let Some(error) = matcher.get_error() {
            return Err(error);
        }
        // A warning of the library means that the constraint would not be enforced exactly.
        let warning = matcher.grammar_warnings().first().map(ToString::to_string);
        warning.map_or(Ok(matcher), Err)
    }

    /// The grammar of texts that match a whole regular expression.
    fn text(&self, regex: &str) -> String {
        // Grouped, so that alternatives stay together after a prefix.
        let regex = regex_to_lark(&format!("(?:{regex})"), "");
        if self.drops_space {
            // The first space of the tokens' text is dropped by decoding.
            format!("start: TEXT\nTEXT: (\" \" /{regex}/) | (/{regex}/ & ~/ (?s:.*)/)\n")
        } else {
            format!("start: TEXT\nTEXT: /{regex}/\n")
        }
    }

    /// The grammar of valid instances of a schema.
    fn json(&self, schema: &serde_json::Value) -> String {
        if self.drops_space {
            format!("start: json | \" \" json\njson: %json {schema}\n")
        } else {
            format!("start: %json {schema}\n")
        }
    }
}

/// The JSON pointer of a part of a schema.
fn path_of(place: &str, name: &str) -> String {
    format!("{place}/{}", name.replace('~', "~0").replace('/', "~1"))
}

fn in_one_line(error: &str) -> String {
    error.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

/// The error for a constraint that the library rejects: its message without advice. For a syntax error it prints its
/// own grammar; the reason is on a separate line.
fn refusal(what: &'static str, error: &str) -> ConstraintError {
    let reason = error.lines().find_map(|line| line.trim().strip_prefix("error: "));
    let why = reason.map_or_else(|| in_one_line(error), str::to_owned);
    let hint = match what {
        "regex" => {
            "lookaround and backreferences are not supported; the expression matches the whole text, so it needs no ^ \
             and $"
        }
        _ => "use texts that are not empty",
    };
    ConstraintError::Refused { what, why, hint }
}

impl ConstrainedText {
    /// The allowed next tokens: includes end tokens if the text may end, and only those if it must.
    pub(crate) fn allowed(&mut self) -> Result<&Mask, ConstraintError> {
        let mask = match self.mask.take() {
            Some(mask) => mask,
            None => Mask(self.matcher.compute_mask_or_eos().map_err(ConstraintError::library)?),
        };
        Ok(self.mask.insert(mask))
    }

    /// Whether a token is allowed next. Takes microseconds, whereas computing a mask takes up to milliseconds.
    fn allows(&mut self, token: u32) -> Result<bool, ConstraintError> {
        // The library allots its work limit when it computes a mask. Each text starts with one, so that it does not
        // depend on the work left by others.
        if !self.begun || self.mask.is_some() || self.is_finished() {
            return Ok(self.allowed()?.has(token));
        }
        let environment = self.matcher.tok_env().map_err(ConstraintError::library)?;
        let trie = environment.tok_trie();
        // The library accepts tokens without text as harmless.
        if trie.token(token).is_empty() && !trie.eos_tokens().contains(&token) {
            return Ok(false);
        }
        Ok(self.matcher.validate_tokens(&[token]).map_err(ConstraintError::library)? == 1)
    }

    /// The allowed next tokens if `token` is not one of them.
    pub(crate) fn instead_of(&mut self, token: u32) -> Result<Option<&Mask>, ConstraintError> {
        // Usually a model satisfies its constraint without a mask, so masks are rare: a text under a schema was
        // measured to cost 1 to 2% more.
        if self.allows(token)? { Ok(None) } else { self.allowed().map(Some) }
    }

    /// Advances by an allowed token.
    pub(crate) fn advance(&mut self, token: u32) -> Result<(), ConstraintError> {
        (self.begun, self.mask) = (true, None);
        self.matcher.consume_token(token).map_err(ConstraintError::library)
    }

    /// Whether the text is complete and can only end.
    pub(crate) fn is_finished(&self) -> bool {
        self.matcher.is_stopped()
    }
}

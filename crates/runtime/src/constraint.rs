//! Constrained decoding: which tokens may come next for a text to be one of a list, match a regular expression or be an
//! instance of a JSON schema.
//!
//! The library llguidance turns a constraint into a grammar over bytes and walks it with a trie of the vocabulary.
//! Every way of cutting an allowed text into tokens is allowed: a model's own choice of tokens is kept wherever the
//! text may be so.
//!
//! JSON is written on one line, with at most one space behind a comma or a colon and no other white space between
//! values, so a model cannot fill its limit with blanks. Objects have their properties in the schema's order. A schema
//! that bounds nothing (strings without `maxLength`, arrays without `maxItems`, numbers, with a range or without) lets a text go
//! on until its limit of tokens, where it is cut. A schema is kept exactly, or the part that cannot be kept is refused by
//! its path.

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
    #[error(
        "schema {place}: `oneOf` is kept only where its alternatives cannot hold at once (other types, other constants)"
    )]
    #[diagnostic(help("use `anyOf`"))]
    OneOf { place: String },
    #[error("schema {place}: the schema refers to itself without end")]
    #[diagnostic(help("let the reference lead to a schema that says what the text is"))]
    Endless { place: String },
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
        let matcher = match (self.matcher(grammar), constraint) {
            (Err(why), Constraint::JsonSchema(schema)) => {
                let is_kept = |part: &Value| {
                    // What was prepared as a part of the whole is not refused for itself.
                    schema::prepared(part).is_ok_and(|part| self.matcher(self.json(&part)).is_ok())
                };
                return Err(refused::schema(schema, &why, is_kept));
            }
            (matcher, _) => matcher.map_err(|why| refusal(what, &why))?,
        };
        // Does the vocabulary have a token to begin with?
        matcher.deep_clone().compute_mask_or_eos().map_err(|_| ConstraintError::NoBeginning { what })?;
        Ok(CompiledConstraint {
            constraint: constraint.clone(),
            shared: matcher.deep_clone(),
            fresh: matcher,
            begun: 0,
        })
    }

    /// A grammar made ready, or why the library has none, in its own words.
    fn matcher(&self, grammar: String) -> Result<Matcher, String> {
        let parser = self.factory.create_parser(TopLevelGrammar::from_lark(grammar));
        let mut matcher = Matcher::new(parser);
        if let Some(error) = matcher.get_error() {
            return Err(error);
        }
        // What the library only warns of, it would not keep: a text outside of the constraint could come out.
        let warning = matcher.grammar_warnings().first().map(ToString::to_string);
        warning.map_or(Ok(matcher), Err)
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

/// The path of a part of a schema, as a JSON pointer has it.
fn path_of(place: &str, name: &str) -> String {
    format!("{place}/{}", name.replace('~', "~0").replace('/', "~1"))
}

fn in_one_line(error: &str) -> String {
    error.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

/// Why the library has no grammar for a constraint, in its own words without its advice. Of an expression that it cannot
/// parse it shows its own grammar; the reason is on a line of its own.
fn refusal(what: &'static str, error: &str) -> ConstraintError {
    let reason = error.lines().find_map(|line| line.trim().strip_prefix("error: "));
    let why = reason.map_or_else(|| in_one_line(error), str::to_owned);
    let hint = match what {
        "regex" => {
            "lookaround and backreferences are not supported; the expression matches the whole text, so it needs no ^ \
             and $"
        }
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
        // measured to cost 1 to 2% more.
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

//! Converts text to token ids and back. Text from data never becomes a special token.
//!
//! A tokenizer comes from a `tokenizer.json` ([`Tokenizer::from_json`]) or from the vocabulary of a GGUF file
//! ([`Tokenizer::from_gguf`]). Ids equal those of the reference (the `tokenizers` library on `tokenizer.json`,
//! sentencepiece on its kind of vocabulary) for any text without literals of special tokens. Literals such as
//! `<|im_end|>` in a candidate are encoded as ordinary characters.
//!
//! An added token is special if its file says so (`"special": true`, type "control" in GGUF), if it is written `<|…|>`,
//! or if it is known to end turns; so are T5's sentinels. Markers of turns, reasoning and tools (`</think>`,
//! `<tool_call>`) are control markers even if their file does not call them special: they stay in decoded text, and
//! ordinary text never contains them. Other added tokens belong to the vocabulary of ordinary text, as in the
//! reference.

mod added;
mod check;
mod gguf;
mod gguf_pieces;
mod json;
mod marked;
mod marks;
mod pipeline;
mod pretokenizers;
mod spm;
mod stripping;

use std::path::PathBuf;
use std::sync::Mutex;

use probity_lm::is_thought_mark;

use crate::weights::WeightsError;

use added::{AddedToken, Matcher, Protector, Specials};
pub use gguf::chat_template_of_gguf;
pub use json::{TEMPLATE_FILE, chat_template_of};
use marked::LastText;
pub(crate) use marked::Marked;
use pipeline::Engine;

/// Why a tokenizer could not be loaded or could not encode.
#[derive(Debug, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
pub enum TokenizerError {
    /// A file cannot be read.
    #[error("cannot read {}: {why}", path.display())]
    #[diagnostic(help(
        "download tokenizer.json again, next to config.json; for a model with only tokenizer.model, save one with \
         transformers' AutoTokenizer"
    ))]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        why: String,
    },
    /// A file is invalid.
    #[error("{}: {why}", path.display())]
    #[diagnostic(help("download the tokenizer's files again"))]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Expected and found.
        why: String,
    },
    /// The vocabulary of a GGUF file cannot be used.
    #[error("{why}")]
    Gguf {
        /// Description of the problem.
        why: String,
        /// A hint, if any.
        #[help]
        hint: Option<String>,
    },
    /// A feature is not supported.
    #[error("{what}: {why}")]
    Unsupported {
        /// The part of the tokenizer or the text.
        what: String,
        /// Description of the problem.
        why: String,
    },
    /// The vocabulary cannot encode the text.
    #[error("the tokenizer cannot encode a text: {0}")]
    Encode(String),
}

impl TokenizerError {
    fn unsupported(what: &str, why: String) -> Self {
        Self::Unsupported { what: what.to_owned(), why }
    }
}

impl From<WeightsError> for TokenizerError {
    fn from(error: WeightsError) -> Self {
        let hint = miette::Diagnostic::help(&error).map(|hint| hint.to_string());
        Self::Gguf { why: error.to_string(), hint }
    }
}

/// How pieces of a vocabulary represent bytes and spaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spelling {
    /// Each byte is one printable character.
    ByteLevel,
    /// A space is `▁`, a byte without a piece is `<0xNN>`.
    Sentencepiece,
    /// Unchanged.
    Plain,
}

/// A chat template from a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateSource {
    /// Jinja source.
    pub text: String,
    /// The file that contains it.
    pub path: PathBuf,
}

/// Special tokens and their roles from a tokenizer's files.
#[derive(Debug, Clone, Default)]
struct SpecialRoles {
    bos: Option<u32>,
    adds_bos: bool,
    /// Special tokens before and after a text.
    frame: [Vec<u32>; 2],
    /// Special tokens between two texts of a pair.
    between: Vec<u32>,
    eos: Option<u32>,
    /// Tokens that end an answer, sorted.
    ends: Vec<u32>,
    unknown: Option<u32>,
    /// `bos_token`, `eos_token` and the like, by the names used in templates.
    names: Vec<(String, String)>,
    chat_template: Option<TemplateSource>,
}

impl SpecialRoles {
    /// Removes the unknown token if it is also a start or end token: a character without a piece must not end a prompt.
    /// Such characters are then dropped, as in the reference without an unknown token.
    fn without_unknown_in_two_roles(mut self) -> Self {
        self.unknown =
            self.unknown.filter(|id| Some(*id) != self.bos && Some(*id) != self.eos && !self.ends.contains(id));
        self
    }
}

/// A vocabulary with its encoding rules.
pub struct Tokenizer {
    engine: Engine,
    raw: Matcher,
    normalised: Matcher,
    protector: Protector,
    /// Sorted by id.
    added: Vec<AddedToken>,
    roles: SpecialRoles,
    spelling: Spelling,
    vocab_size: usize,
    /// See [`pretokenizers::Family::newline_ends_word`].
    newline_ends_word: bool,
    /// Whether encoding puts a space before the first word.
    adds_space: bool,
    cautions: Vec<String>,
    /// See [`LastText`].
    last: Mutex<LastText>,
}

/// The parts that file readers provide.
struct TokenizerParts {
    engine: Engine,
    added: Vec<AddedToken>,
    roles: SpecialRoles,
    spelling: Spelling,
    vocab_size: usize,
    newline_ends_word: bool,
    /// See [`Tokenizer::cautions`].
    cautions: Vec<String>,
}

impl Tokenizer {
    fn assemble(parts: TokenizerParts) -> Result<Self, TokenizerError> {
        let TokenizerParts { engine, mut added, roles, spelling, vocab_size, newline_ends_word, cautions } = parts;
        let roles = roles.without_unknown_in_two_roles();
        added.sort_by_key(|token| token.id);
        let (normalised, raw): (Vec<&AddedToken>, Vec<&AddedToken>) = added.iter().partition(|token| token.normalized);
        let normalised = normalised.into_iter().map(|t| Ok((engine.normalise(&t.content)?, t.clone())));
        let normalised = Matcher::new(normalised.collect::<Result<Vec<_>, TokenizerError>>()?)?;
        let raw = Matcher::new(raw.into_iter().map(|t| (t.content.clone(), t.clone())).collect())?;
        let protector = Protector::new(added.iter())?;
        let mut tokenizer = Self {
            engine,
            raw,
            normalised,
            protector,
            added,
            roles,
            spelling,
            vocab_size,
            newline_ends_word,
            adds_space: false,
            cautions,
            last: Mutex::default(),
        };
        // Determined by encoding, because several parts of a file can cause it.
        let first = tokenizer.encode_text("a")?.first().copied();
        tokenizer.adds_space = first.is_some_and(|id| tokenizer.token_text(id).starts_with(' '));
        Ok(tokenizer)
    }

    /// Encodes ordinary text, without control markers (except [`unknown`](Self::unknown) for characters without a
    /// piece) and without special tokens around it.
    pub fn encode_text(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        self.encode_marked(text, None, Specials::AsText)
    }

    /// Encodes ordinary text that follows other tokens. Unlike [`encode_text`](Self::encode_text), without the space
    /// that sentencepiece puts before a text, so `A` is `A` and ` A` is `▁A`.
    pub fn encode_following(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        if !self.adds_space {
            return self.encode_text(text);
        }
        // Encoded after a newline, which merges with nothing; the newline's tokens are then removed.
        let anchor = self.encode_text("\n")?;
        let joint = self.encode_text(&format!("\n{text}"))?;
        match joint.strip_prefix(anchor.as_slice()) {
            Some(ids) => Ok(ids.to_vec()),
            None => self.encode_text(text),
        }
    }

    /// Encodes text with control markers recognised. Only for text without data, such as templates and tests.
    pub fn encode_trusted(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        self.encode_marked(text, None, Specials::Recognised)
    }

    /// Decodes ids without special tokens, except reasoning markers, without which reasoning would read as the answer.
    /// Invalid bytes are replaced.
    pub fn decode(&self, ids: &[u32]) -> Result<String, TokenizerError> {
        let is_text = |id: &u32| self.added(*id).is_none_or(|token| !token.special || is_thought_mark(&token.content));
        let ordinary: Vec<u32> = ids.iter().copied().filter(is_text).collect();
        if let Some(decoded) = self.engine.decode(&ordinary) {
            return decoded;
        }
        let bytes: Vec<u8> = ordinary.iter().flat_map(|&id| self.written(id)).collect();
        let text = String::from_utf8_lossy(&bytes);
        let text = if self.engine.drops_first_space() { text.strip_prefix(' ').unwrap_or(&text) } else { &text };
        Ok(text.to_owned())
    }

    /// The text of ids that later tokens cannot change: [`decode`](Self::decode) without trailing byte pieces, because
    /// a whole run of them becomes U+FFFD if one of its bytes is invalid.
    pub fn decode_settled(&self, ids: &[u32]) -> Result<String, TokenizerError> {
        let open = ids.iter().rev().take_while(|id| self.engine.is_byte_of_run(**id)).count();
        self.decode(&ids[..ids.len() - open])
    }

    /// Text of one token with its leading space; special tokens by name. Invalid bytes are replaced. Empty for an
    /// unknown id.
    pub fn token_text(&self, id: u32) -> String {
        String::from_utf8_lossy(&self.written(id)).into_owned()
    }

    /// The added token with this id.
    fn added(&self, id: u32) -> Option<&AddedToken> {
        let at = self.added.partition_point(|token| token.id < id);
        self.added.get(at).filter(|token| token.id == id)
    }

    /// Bytes of a token's text; empty for an unknown id.
    fn written(&self, id: u32) -> Vec<u8> {
        if let Some(token) = self.added(id) {
            // Added tokens are written literally instead of in the vocabulary's spelling, except markers for spaces:
            // Gemma's vocabulary adds runs of them.
            return match self.spelling {
                Spelling::Sentencepiece if !token.special => token.content.replace(spm::SPACE, " ").into_bytes(),
                _ => token.content.clone().into_bytes(),
            };
        }
        let Some(piece) = self.engine.piece(id) else { return Vec::new() };
        match self.spelling {
            Spelling::ByteLevel => pipeline::byte_level_bytes(&piece),
            Spelling::Sentencepiece => match self.engine.byte(id, &piece) {
                Some(byte) => vec![byte],
                None => piece.replace(spm::SPACE, " ").into_bytes(),
            },
            Spelling::Plain => piece.into_bytes(),
        }
    }

    /// Bytes that a token adds to a text, with its leading space; possibly part of a character. Absent for special
    /// tokens and unknown ids.
    pub fn token_bytes(&self, id: u32) -> Option<Vec<u8>> {
        if self.is_special(id) || self.roles.unknown == Some(id) {
            return None;
        }
        let is_there = self.added(id).is_some() || self.engine.piece(id).is_some();
        is_there.then(|| self.written(id))
    }

    /// Whether pieces at the start of a word include its space, rather than marking continuations with `##`.
    pub fn words_begin_with_space(&self) -> bool {
        self.spelling != Spelling::Plain
    }

    /// Whether encoding puts a space before the first word.
    pub fn adds_space(&self) -> bool {
        self.adds_space
    }

    /// The id of a token by its exact text in the vocabulary.
    pub fn token_id(&self, piece: &str) -> Option<u32> {
        self.added.iter().find(|token| token.content == piece).map(|token| token.id).or_else(|| self.engine.id(piece))
    }

    /// Whether the token is dropped from decoded text unless it is a reasoning marker. Special tokens are control
    /// markers.
    pub fn is_special(&self, id: u32) -> bool {
        self.added(id).is_some_and(|token| token.special)
    }

    /// Whether the token is a control marker, which ordinary text never contains.
    pub fn steers(&self, id: u32) -> bool {
        self.added(id).is_some_and(|token| token.steers)
    }

    /// Warnings for the user about ids that may differ from the original tokenizer.
    pub fn cautions(&self) -> &[String] {
        &self.cautions
    }

    /// The highest id plus one.
    pub fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// The beginning-of-sequence token, if any.
    pub fn bos(&self) -> Option<u32> {
        self.roles.bos
    }

    /// Whether plain text begins with [`bos`](Self::bos).
    pub fn adds_bos(&self) -> bool {
        self.roles.adds_bos && self.roles.bos.is_some()
    }

    /// Encodes a text as encoders read it: ordinary text within its [`frame`](Self::frame).
    pub fn encode_whole(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let [before, after] = &self.roles.frame;
        Ok([before, &*self.encode_text(text)?, after].concat())
    }

    /// Encodes a pair of texts.
    pub fn encode_pair(&self, first: &str, second: &str) -> Result<Vec<u32>, TokenizerError> {
        let [before, after] = &self.roles.frame;
        let (first, second) = (self.encode_text(first)?, self.encode_text(second)?);
        Ok([before, &*first, &*self.roles.between, &*second, after].concat())
    }

    /// Special tokens between two texts of a pair: `[SEP]`, `</s></s>`.
    pub fn between(&self) -> &[u32] {
        &self.roles.between
    }

    /// Special tokens before and after a text: `[CLS]` and `[SEP]`, or nothing and `</s>`.
    pub fn frame(&self) -> &[Vec<u32>; 2] {
        &self.roles.frame
    }

    /// The end-of-sequence token, if any.
    pub fn eos(&self) -> Option<u32> {
        self.roles.eos
    }

    /// The unknown token, if any: the only special token that ordinary text may contain.
    pub fn unknown(&self) -> Option<u32> {
        self.roles.unknown
    }

    /// Tokens that end an answer, sorted: end of sequence, end of turn.
    pub fn ends(&self) -> &[u32] {
        &self.roles.ends
    }

    /// The chat template in the tokenizer's own metadata.
    pub fn chat_template(&self) -> Option<&TemplateSource> {
        self.roles.chat_template.as_ref()
    }

    /// `bos_token`, `eos_token` and the like, by the names used in templates, with their texts.
    pub fn named_tokens(&self) -> &[(String, String)] {
        &self.roles.names
    }
}

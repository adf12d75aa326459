//! Text to token ids and back, with one rule above all: text from data never becomes a special token.
//!
//! A tokenizer comes from a `tokenizer.json` ([`Tokenizer::from_json`]) or from a GGUF file's vocabulary
//! ([`Tokenizer::from_gguf`]). Ids equal those of the reference (the `tokenizers` library on `tokenizer.json`,
//! sentencepiece on its kind of vocabulary) for any text without literals of special tokens. Such literals,
//! `<|im_end|>` in a candidate, are encoded as the characters that they are.
//!
//! An added token is special where its file says so (`"special": true`, type "control" in GGUF), where it is written
//! `<|…|>` and where it is known to end turns, and T5's sentinels. Marks of turns, thoughts and tools (`</think>`,
//! `<tool_call>`) steer too where their file does not call them special: they stay in decoded text, and ordinary text
//! never holds them. Other added tokens are part of the vocabulary of ordinary text, as in the reference.

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

/// Why a tokenizer could not be had or could not encode.
#[derive(Debug, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
pub enum TokenizerError {
    /// A file cannot be read.
    #[error("cannot read {}: {why}", path.display())]
    #[diagnostic(help(
        "tokenizer.json stands in a model's folder, beside config.json: download it again; where a model has tokenizer.model alone, \
         transformers' AutoTokenizer saves one"
    ))]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        why: String,
    },
    /// A file is not what it should be.
    #[error("{}: {why}", path.display())]
    #[diagnostic(help("download the tokenizer's files again"))]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Expected and found.
        why: String,
    },
    /// A GGUF file's vocabulary cannot be used.
    #[error("{why}")]
    Gguf {
        /// What is wrong.
        why: String,
        /// What to do, where that is known.
        #[help]
        hint: Option<String>,
    },
    /// Something that is not supported.
    #[error("{what}: {why}")]
    Unsupported {
        /// The part of the tokenizer or the text.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// The vocabulary has no way to write a text.
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

/// How a vocabulary writes bytes and spaces in its pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spelling {
    /// Each byte is one printable character.
    ByteLevel,
    /// A space is `▁`, a byte without a piece `<0xNN>`.
    Sentencepiece,
    /// As they are.
    Plain,
}

/// A chat template that a model brings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateSource {
    /// In Jinja.
    pub text: String,
    /// The file that has it.
    pub path: PathBuf,
}

/// What a tokenizer's files say about its special tokens.
#[derive(Debug, Clone, Default)]
struct SpecialRoles {
    bos: Option<u32>,
    adds_bos: bool,
    /// What stands before and after each text that is read as a whole.
    frame: [Vec<u32>; 2],
    /// What stands between two texts that are read as a pair.
    between: Vec<u32>,
    eos: Option<u32>,
    /// Every token that ends an answer, sorted.
    ends: Vec<u32>,
    unknown: Option<u32>,
    /// `bos_token`, `eos_token` and the like by the names that templates use.
    names: Vec<(String, String)>,
    chat_template: Option<TemplateSource>,
}

impl SpecialRoles {
    /// Leaves no unknown token where it is also one that begins or ends sequences: a character without a piece must not
    /// end a prompt. Such characters are dropped then, as the reference does where there is no unknown token.
    fn without_unknown_in_two_roles(mut self) -> Self {
        self.unknown =
            self.unknown.filter(|id| Some(*id) != self.bos && Some(*id) != self.eos && !self.ends.contains(id));
        self
    }
}

/// A vocabulary with its rules.
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
    /// Encoding puts a space before the first word.
    adds_space: bool,
    cautions: Vec<String>,
    /// See [`LastText`].
    last: Mutex<LastText>,
}

/// The parts that the readers of files bring together.
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
        // Found out by encoding: several parts of a file may be the one that does it.
        let first = tokenizer.encode_text("a")?.first().copied();
        tokenizer.adds_space = first.is_some_and(|id| tokenizer.token_text(id).starts_with(' '));
        Ok(tokenizer)
    }

    /// The ids of ordinary text: no token that steers among them whatever the text says (but [`unknown`](Self::unknown) for
    /// characters that have no piece), nothing put before or after.
    pub fn encode_text(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        self.encode_marked(text, None, Specials::AsText)
    }

    /// The ids of ordinary text that follows other tokens: unlike [`encode_text`](Self::encode_text) without the space
    /// that sentencepiece vocabularies put before a text, so that `A` is `A` and ` A` is `▁A`.
    pub fn encode_following(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        if !self.adds_space {
            return self.encode_text(text);
        }
        // Behind a newline, which merges with nothing; its own tokens are then taken off.
        let anchor = self.encode_text("\n")?;
        let joint = self.encode_text(&format!("\n{text}"))?;
        match joint.strip_prefix(anchor.as_slice()) {
            Some(ids) => Ok(ids.to_vec()),
            None => self.encode_text(text),
        }
    }

    /// The ids of text in which tokens that steer are meant as such. Only for text that no data went into: templates,
    /// tests.
    pub fn encode_trusted(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        self.encode_marked(text, None, Specials::Recognised)
    }

    /// The text of ids, without special tokens but for marks of thoughts, since a thought without them would read as the
    /// answer; bytes that form no character are replaced.
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

    /// The text of ids that later tokens cannot change: [`decode`](Self::decode) of all but the byte pieces at the end, a
    /// whole run of which becomes U+FFFD if one of its bytes is part of no character.
    pub fn decode_settled(&self, ids: &[u32]) -> Result<String, TokenizerError> {
        let open = ids.iter().rev().take_while(|id| self.engine.is_byte_of_run(**id)).count();
        self.decode(&ids[..ids.len() - open])
    }

    /// What one token stands for, with its leading space, special tokens by name; bytes that form no character are
    /// replaced. Empty for an id that the vocabulary does not have.
    pub fn token_text(&self, id: u32) -> String {
        String::from_utf8_lossy(&self.written(id)).into_owned()
    }

    /// The added token of that id.
    fn added(&self, id: u32) -> Option<&AddedToken> {
        let at = self.added.partition_point(|token| token.id < id);
        self.added.get(at).filter(|token| token.id == id)
    }

    /// The bytes that a token is written with; none for an id that the vocabulary does not have.
    fn written(&self, id: u32) -> Vec<u8> {
        if let Some(token) = self.added(id) {
            // Added tokens are written as they are, not in the vocabulary's spelling, but for spaces that stand for
            // spaces: Gemma's vocabulary adds runs of them.
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

    /// The bytes that a token adds to a text, with its leading space; a part of a character where it is one. Absent for
    /// special tokens and for ids that the vocabulary does not have.
    pub fn token_bytes(&self, id: u32) -> Option<Vec<u8>> {
        if self.is_special(id) || self.roles.unknown == Some(id) {
            return None;
        }
        let is_there = self.added(id).is_some() || self.engine.piece(id).is_some();
        is_there.then(|| self.written(id))
    }

    /// Whether a piece that begins a word is written with its space, rather than one that goes on with a word with
    /// `##`.
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

    /// Whether the token is left out of decoded text unless it marks a thought; such tokens steer the model.
    pub fn is_special(&self, id: u32) -> bool {
        self.added(id).is_some_and(|token| token.special)
    }

    /// Whether the token steers the model rather than being text: ordinary text never holds it.
    pub fn steers(&self, id: u32) -> bool {
        self.added(id).is_some_and(|token| token.steers)
    }

    /// What a user should know about ids that may differ from those of the original tokenizer.
    pub fn cautions(&self) -> &[String] {
        &self.cautions
    }

    /// One more than the highest id.
    pub fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// The beginning-of-sequence token, where there is one.
    pub fn bos(&self) -> Option<u32> {
        self.roles.bos
    }

    /// Whether plain text is to begin with [`bos`](Self::bos).
    pub fn adds_bos(&self) -> bool {
        self.roles.adds_bos && self.roles.bos.is_some()
    }

    /// The ids of a text that is read as a whole, as encoders do: ordinary text in a [`frame`](Self::frame).
    pub fn encode_whole(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let [before, after] = &self.roles.frame;
        Ok([before, &*self.encode_text(text)?, after].concat())
    }

    /// The ids of two texts that are read as a pair.
    pub fn encode_pair(&self, first: &str, second: &str) -> Result<Vec<u32>, TokenizerError> {
        let [before, after] = &self.roles.frame;
        let (first, second) = (self.encode_text(first)?, self.encode_text(second)?);
        Ok([before, &*first, &*self.roles.between, &*second, after].concat())
    }

    /// The special tokens that stand between two texts that are read as a pair: `[SEP]`, `</s></s>`.
    pub fn between(&self) -> &[u32] {
        &self.roles.between
    }

    /// The special tokens that stand before and after a text that is read as a whole: `[CLS]` and `[SEP]`, nothing and
    /// `</s>`.
    pub fn frame(&self) -> &[Vec<u32>; 2] {
        &self.roles.frame
    }

    /// The end-of-sequence token, where there is one.
    pub fn eos(&self) -> Option<u32> {
        self.roles.eos
    }

    /// The token that stands for characters which the vocabulary cannot write, where there is one: the only special
    /// token that ordinary text may hold.
    pub fn unknown(&self) -> Option<u32> {
        self.roles.unknown
    }

    /// Every token that ends an answer, sorted: end of sequence, end of turn.
    pub fn ends(&self) -> &[u32] {
        &self.roles.ends
    }

    /// The chat template of the tokenizer's own metadata.
    pub fn chat_template(&self) -> Option<&TemplateSource> {
        self.roles.chat_template.as_ref()
    }

    /// `bos_token`, `eos_token` and the like, as templates name them, with their texts.
    pub fn named_tokens(&self) -> &[(String, String)] {
        &self.roles.names
    }
}

//! Tokenizers from the vocabulary in a GGUF file.

use probity_models::WeightSource as _;
use tokenizers::decoders::DecoderWrapper;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::{NFC, NormalizerWrapper};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;

use crate::weights::{GgufFile, StringTable};

use super::added::AddedToken;
use super::json::template_file_of;
use super::marks::{self, end_tokens, looks_special};
use super::pipeline::{Engine, parse_byte_piece};
use super::pretokenizers::UNKNOWN_TO_CONVERTER;
use super::spm::{PieceKind, SpmVocabulary};
use super::{
    SpecialRoles, Spelling, TemplateSource, Tokenizer, TokenizerError, TokenizerParts, gguf_pieces, pretokenizers,
    stripping,
};

/// Token types of the format.
const NORMAL: i64 = 1;
const UNKNOWN: i64 = 2;
const CONTROL: i64 = 3;
const USER_DEFINED: i64 = 4;
const UNUSED: i64 = 5;
const BYTE: i64 = 6;

impl Tokenizer {
    /// Builds the tokenizer from the file's `tokenizer.ggml.*` metadata. Kinds: `gpt2` (byte-level merges, split into
    /// words by `tokenizer.ggml.pre`), `llama` (sentencepiece, from the scores of pieces), `gemma4` (sentencepiece,
    /// from merges), `t5` (sentencepiece's unigram model) and `bert` (`WordPiece`).
    ///
    /// Text gets a beginning-of-sequence token if `add_bos_token` says so; by default always for `llama`, and depending
    /// on the family for `gpt2`.
    ///
    /// Without `token_type`, types are inferred: tokens named as beginning, end or unknown and those written like
    /// special tokens are special, `<0xNN>` in a `llama` vocabulary are bytes, and all others are ordinary.
    pub fn from_gguf(file: &GgufFile) -> Result<Self, TokenizerError> {
        let vocabulary = GgufVocabulary::read(file)?;
        match vocabulary.model {
            "gpt2" => byte_level(&vocabulary),
            "llama" => sentencepiece(&vocabulary),
            "gemma4" => gguf_pieces::merged(&vocabulary),
            "t5" => gguf_pieces::unigram(&vocabulary),
            "bert" => gguf_pieces::wordpiece(&vocabulary),
            other => {
                let why = format!(
                    "`{other}` is not supported; gpt2 (byte-level), llama, gemma4 and t5 (sentencepiece) and bert \
                     (WordPiece) are"
                );
                Err(file.metadata_error("tokenizer.ggml.model", why).into())
            }
        }
    }
}

/// Data common to all kinds.
pub(super) struct GgufVocabulary<'a> {
    pub(super) file: &'a GgufFile,
    model: &'a str,
    pub(super) tokens: &'a StringTable,
    types: Vec<i64>,
    pub(super) added: Vec<AddedToken>,
}

impl<'a> GgufVocabulary<'a> {
    fn read(file: &'a GgufFile) -> Result<Self, TokenizerError> {
        let missing = |key: &str| file.metadata_error(key, "it is missing, so the file has no tokenizer");
        let model = file.string("tokenizer.ggml.model")?.ok_or_else(|| missing("tokenizer.ggml.model"))?;
        let tokens = file.strings("tokenizer.ggml.tokens")?.ok_or_else(|| missing("tokenizer.ggml.tokens"))?;
        if tokens.is_empty() {
            return Err(file.metadata_error("tokenizer.ggml.tokens", "it is empty").into());
        }
        let types = read_types(file, model, tokens)?;
        let special = |kind: i64| matches!(kind, CONTROL | UNKNOWN);
        let mut added: Vec<AddedToken> = tokens
            .iter()
            .zip(&types)
            .enumerate()
            .filter(|(_, (_, kind))| special(**kind) || **kind == USER_DEFINED)
            .map(|(id, (text, &kind))| AddedToken::plain(id as u32, text, special(kind)))
            .collect();
        marks::find_steering(&mut added);
        stripping::find_stripping(tokens, &mut added);
        Ok(Self { file, model, tokens, types, added })
    }

    pub(super) fn token_id(&self, name: &str) -> Result<Option<u32>, TokenizerError> {
        token_id(self.file, self.tokens, name)
    }

    pub(super) fn roles(&self, adds_bos: bool) -> Result<SpecialRoles, TokenizerError> {
        let mut names = Vec::new();
        for (name, key) in
            [("bos_token", "bos"), ("eos_token", "eos"), ("unk_token", "unknown"), ("pad_token", "padding")]
        {
            if let Some(text) = self.token_id(key)?.and_then(|id| self.tokens.get(id as usize)) {
                names.push((name.to_owned(), text.to_owned()));
            }
        }
        let eos = self.token_id("eos")?;
        let given = [eos, self.token_id("eot")?, self.token_id("eom")?].into_iter().flatten();
        let unknown = self.types.iter().position(|&kind| kind == UNKNOWN).map(|id| id as u32);
        let bos = self.token_id("bos")?;
        let adds_bos = self.file.bool("tokenizer.ggml.add_bos_token")?.unwrap_or(adds_bos);
        let adds_eos = self.file.bool("tokenizer.ggml.add_eos_token")?.unwrap_or(false);
        Ok(SpecialRoles {
            bos,
            adds_bos,
            between: Vec::new(),
            frame: [bos.filter(|_| adds_bos), eos.filter(|_| adds_eos)].map(|token| token.into_iter().collect()),
            eos,
            ends: end_tokens(given, &self.added),
            unknown,
            names,
            chat_template: chat_template_of_gguf(self.file)?,
        })
    }

    /// The ids of all tokens, and the merges.
    pub(super) fn merges(&self) -> Result<(Vocab, Vec<(String, String)>), TokenizerError> {
        // A duplicate text keeps its first id.
        let mut vocab = Vocab::with_capacity(self.tokens.len());
        for (id, token) in self.tokens.iter().enumerate() {
            vocab.entry(token.to_owned()).or_insert(id as u32);
        }
        let merges = read_merges(self.file, &vocab)?;
        Ok((vocab, merges))
    }

    /// Scores of the pieces; each must be a number.
    pub(super) fn scores(&self) -> Result<&'a [f64], TokenizerError> {
        let key = "tokenizer.ggml.scores";
        let missing = || self.file.metadata_error(key, "it is missing, but a sentencepiece vocabulary needs it");
        let scores = self.file.floats(key)?.ok_or_else(missing)?;
        check_len(self.file, key, scores.len(), self.tokens.len())?;
        match scores.iter().position(|score| score.is_nan()) {
            Some(index) => {
                Err(self.file.metadata_error(key, format!("the score of token {index} is not a number")).into())
            }
            None => Ok(scores),
        }
    }
}

/// The chat template of a GGUF file: `chat_template.jinja` next to it, otherwise the file's own.
pub fn chat_template_of_gguf(file: &GgufFile) -> Result<Option<TemplateSource>, TokenizerError> {
    let path = file.path();
    if let Some(template) = path.parent().map(template_file_of).transpose()?.flatten() {
        return Ok(Some(template));
    }
    let own = file.string("tokenizer.chat_template")?;
    Ok(own.map(|text| TemplateSource { text: text.to_owned(), path }))
}

/// The token that the file assigns to `name`.
fn token_id(file: &GgufFile, tokens: &StringTable, name: &str) -> Result<Option<u32>, TokenizerError> {
    let key = format!("tokenizer.ggml.{name}_token_id");
    match file.token_id(&key)? {
        Some(id) if id as usize >= tokens.len() => {
            let why = format!("token {id} is not one of the {} tokens", tokens.len());
            Err(file.metadata_error(&key, why).into())
        }
        id => Ok(id),
    }
}

/// Token types from the file, or inferred from the tokens' text. Control markers become control tokens even if the file
/// calls them user-defined, as converters do with turn tokens of a fine-tune. Otherwise text would be split at them.
fn read_types(file: &GgufFile, model: &str, tokens: &StringTable) -> Result<Vec<i64>, TokenizerError> {
    let key = "tokenizer.ggml.token_type";
    let given = file.integers(key)?;
    let mut types = match &given {
        Some(types) => types.clone(),
        None => tokens
            .iter()
            .map(|text| if model == "llama" && parse_byte_piece(text).is_some() { BYTE } else { NORMAL })
            .collect(),
    };
    check_len(file, key, types.len(), tokens.len())?;
    // A token with an invalid type would be neither text nor special.
    if let Some((id, kind)) = types.iter().enumerate().find(|(_, kind)| !(NORMAL..=BYTE).contains(*kind)) {
        return Err(file
            .metadata_error(key, format!("token {id} has type {kind}; types are {NORMAL} to {BYTE}"))
            .into());
    }
    if given.is_none()
        && let Some(id) = token_id(file, tokens, "unknown")?
    {
        types[id as usize] = UNKNOWN;
    }
    let named = ["bos", "eos", "eot", "eom"]
        .into_iter()
        .map(|name| token_id(file, tokens, name))
        .collect::<Result<Vec<_>, _>>()?;
    for (id, (text, kind)) in tokens.iter().zip(&mut types).enumerate() {
        // If the file has types, tokens declared as ordinary stay so.
        let open = *kind == USER_DEFINED || (given.is_none() && *kind == NORMAL);
        if open && (looks_special(text) || named.contains(&Some(id as u32))) {
            *kind = CONTROL;
        }
    }
    Ok(types)
}

fn check_len(file: &GgufFile, key: &str, found: usize, expected: usize) -> Result<(), TokenizerError> {
    if found == expected {
        return Ok(());
    }
    Err(file.metadata_error(key, format!("{found} entries for {expected} tokens")).into())
}

fn byte_level(vocabulary: &GgufVocabulary<'_>) -> Result<Tokenizer, TokenizerError> {
    let file = vocabulary.file;
    let key = "tokenizer.ggml.pre";
    let name = file.string(key)?;
    let Some(family) = pretokenizers::family(name.unwrap_or(UNKNOWN_TO_CONVERTER)) else {
        let why = format!("unknown pre-tokenizer `{}`; known are {}", name.unwrap_or_default(), pretokenizers::known());
        let hint = "use the model's safetensors files, whose tokenizer.json defines it: probity model get OWNER/NAME";
        return Err(file.metadata_error_with(key, why, hint).into());
    };
    let unsupported = |source: Box<dyn std::error::Error + Send + Sync>| {
        file.metadata_error("tokenizer.ggml.merges", source.to_string())
    };
    let (vocab, merges) = vocabulary.merges()?;
    let bpe = BPE::builder()
        .vocab_and_merges(vocab, merges)
        .ignore_merges(family.ignore_merges)
        .build()
        .map_err(unsupported)?;
    let mut library = tokenizers::Tokenizer::new(bpe);
    library.with_pre_tokenizer(Some(family.pre_tokenizer()?));
    library.with_decoder(Some(DecoderWrapper::ByteLevel(ByteLevel::default())));
    if family.nfc {
        library.with_normalizer(Some(NormalizerWrapper::NFC(NFC))).map_err(unsupported)?;
    }
    Tokenizer::assemble(TokenizerParts {
        engine: Engine::Library(Box::new(library)),
        added: vocabulary.added.clone(),
        roles: vocabulary.roles(family.adds_bos)?,
        spelling: Spelling::ByteLevel,
        vocab_size: vocabulary.tokens.len(),
        newline_ends_word: family.newline_ends_word,
        cautions: caution(name).into_iter().collect(),
    })
}

/// Warns about a file whose converter did not recognise the tokenizer.
fn caution(name: Option<&str>) -> Option<String> {
    let found = match name {
        None => "has no `tokenizer.ggml.pre`",
        Some(UNKNOWN_TO_CONVERTER) => "has `default` as `tokenizer.ggml.pre`",
        Some(_) => return None,
    };
    Some(format!(
        "the GGUF file {found}: its converter did not know the pre-tokenizer, so token ids and scores may differ from \
         those of the original model; use a newer conversion or the safetensors files"
    ))
}

fn read_merges(file: &GgufFile, vocab: &Vocab) -> Result<Vec<(String, String)>, TokenizerError> {
    let key = "tokenizer.ggml.merges";
    let merges = file
        .strings(key)?
        .ok_or_else(|| file.metadata_error(key, "it is missing, but this kind of vocabulary needs it"))?;
    let mut pairs = Vec::with_capacity(merges.len());
    for (index, merge) in merges.iter().enumerate() {
        // In files of older converters, the first piece may start with a space, so the separator is the first space
        // after it.
        let at = merge.char_indices().skip(1).find(|(_, c)| *c == ' ').map(|(at, _)| at);
        let Some((left, right)) = at.map(|at| (&merge[..at], &merge[at + 1..])) else {
            return Err(file.metadata_error(key, format!("entry {index} is {merge:?}, not two pieces")).into());
        };
        let unknown = [left.to_owned(), right.to_owned(), format!("{left}{right}")]
            .into_iter()
            .find(|piece| !vocab.contains_key(piece));
        if let Some(piece) = unknown {
            return Err(file
                .metadata_error(key, format!("entry {index} is {merge:?}, but {piece:?} is not a token"))
                .into());
        }
        pairs.push((left.to_owned(), right.to_owned()));
    }
    Ok(pairs)
}

fn sentencepiece(vocabulary: &GgufVocabulary<'_>) -> Result<Tokenizer, TokenizerError> {
    let file = vocabulary.file;
    for key in ["tokenizer.ggml.remove_extra_whitespaces", "tokenizer.ggml.treat_whitespace_as_suffix"] {
        if file.bool(key)? == Some(true) {
            return Err(file.metadata_error(key, "this tokenizer rule is not supported, so ids would be wrong").into());
        }
    }
    let scores = vocabulary.scores()?;
    let scores: Vec<f32> = scores.iter().map(|&score| score as f32).collect();
    let kind = |(text, &kind): (&str, &i64)| match kind {
        NORMAL => PieceKind::Normal,
        USER_DEFINED => PieceKind::UserDefined,
        UNUSED => PieceKind::Unused,
        BYTE => parse_byte_piece(text).map_or(PieceKind::Other, PieceKind::Byte),
        _ => PieceKind::Other,
    };
    let mut kinds: Vec<PieceKind> = vocabulary.tokens.iter().zip(&vocabulary.types).map(kind).collect();
    // Matched before the text is split into pieces, and never in data.
    let steering: Vec<AddedToken> = vocabulary.added.iter().filter(|token| token.steers).cloned().collect();
    for token in &steering {
        kinds[token.id as usize] = PieceKind::Other;
    }
    let mut roles = vocabulary.roles(true)?;
    roles.unknown = vocabulary.token_id("unknown")?.or(roles.unknown);
    let roles = roles.without_unknown_in_two_roles();
    let texts = vocabulary.tokens.iter().map(str::to_owned).collect();
    let model = SpmVocabulary::new(texts, &scores, kinds, roles.unknown)?;
    // sentencepiece's default, missing in older files.
    let adds_space = file.bool("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
    Tokenizer::assemble(TokenizerParts {
        engine: Engine::Spm { model, adds_space },
        // Other user-defined pieces are part of the text, as in sentencepiece: no space is put after them.
        added: steering,
        roles,
        spelling: Spelling::Sentencepiece,
        vocab_size: vocabulary.tokens.len(),
        newline_ends_word: false,
        cautions: Vec::new(),
    })
}

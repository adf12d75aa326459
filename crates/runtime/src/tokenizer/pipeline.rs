//! Encoding steps from text to ids: added tokens, normalisation, words, model.
//!
//! The steps are those of the `tokenizers` library, run individually. Its `encode` cannot distinguish intended special
//! tokens from literals in data.

use probity_lm::quietly;
use tokenizers::decoders::DecoderWrapper;
use tokenizers::normalizer::Range as NormalisedRange;
use tokenizers::tokenizer::{Model, NormalizedString, Normalizer as _, PreTokenizedString, PreTokenizer as _, Token};
use tokenizers::{OffsetReferential, OffsetType};

use super::added::{Match, Specials};
use super::spm::{SPACE, SpmVocabulary};
use super::{Tokenizer, TokenizerError};

/// Converts words to ids.
pub(super) enum Engine {
    /// The library with its normaliser, pre-tokenizer, model and decoder. Its own table of added tokens is not used for
    /// encoding.
    Library(Box<tokenizers::Tokenizer>),
    /// A sentencepiece vocabulary.
    Spm {
        /// The vocabulary.
        model: SpmVocabulary,
        /// Whether each span between added tokens begins with a space, as in the reference.
        adds_space: bool,
    },
}

type LibraryError = Box<dyn std::error::Error + Send + Sync>;

#[expect(clippy::needless_pass_by_value, reason = "the form that `map_err` wants")]
fn encode_error(source: LibraryError) -> TokenizerError {
    TokenizerError::Encode(source.to_string())
}

/// Runs library code and turns its panics into errors.
fn guarded<T>(work: impl FnOnce() -> Result<T, TokenizerError>) -> Result<T, TokenizerError> {
    quietly(work)
        .unwrap_or_else(|| Err(TokenizerError::Encode("the library that reads tokenizer.json failed on it".to_owned())))
}

impl Engine {
    /// A pattern after normalisation.
    pub(super) fn normalise(&self, text: &str) -> Result<String, TokenizerError> {
        let mut normalised = NormalizedString::from(text);
        if let Self::Library(library) = self
            && let Some(normalizer) = library.get_normalizer()
        {
            normalizer.normalize(&mut normalised).map_err(encode_error)?;
        }
        Ok(normalised.get().to_owned())
    }

    pub(super) fn piece(&self, id: u32) -> Option<String> {
        match self {
            Self::Library(library) => library.id_to_token(id),
            Self::Spm { model, .. } => model.text(id).map(str::to_owned),
        }
    }

    pub(super) fn id(&self, piece: &str) -> Option<u32> {
        match self {
            Self::Library(library) => library.token_to_id(piece),
            Self::Spm { model, .. } => (0..model.len() as u32).find(|&id| model.text(id) == Some(piece)),
        }
    }

    /// The byte of a byte token in a sentencepiece vocabulary.
    pub(super) fn byte(&self, id: u32, piece: &str) -> Option<u8> {
        match self {
            Self::Library(_) => parse_byte_piece(piece),
            Self::Spm { model, .. } => model.byte(id),
        }
    }

    /// Decodes ids if the text is more than each token's own bytes, otherwise returns `None`. The library reads an
    /// added token of a byte-level vocabulary as if its characters encoded bytes, so it does not decode such
    /// vocabularies.
    pub(super) fn decode(&self, ids: &[u32]) -> Option<Result<String, TokenizerError>> {
        match self {
            Self::Library(library) if !matches!(library.get_decoder(), Some(DecoderWrapper::ByteLevel(_))) => {
                Some(guarded(|| library.decode(ids, false).map_err(encode_error)))
            }
            Self::Library(_) | Self::Spm { .. } => None,
        }
    }

    /// Whether the library decodes the token together with neighbouring bytes.
    pub(super) fn is_byte_of_run(&self, id: u32) -> bool {
        match self {
            Self::Library(library) if !matches!(library.get_decoder(), Some(DecoderWrapper::ByteLevel(_))) => {
                library.id_to_token(id).is_some_and(|piece| parse_byte_piece(&piece).is_some())
            }
            Self::Library(_) | Self::Spm { .. } => false,
        }
    }

    /// Whether a text's first space comes from encoding.
    pub(super) fn drops_first_space(&self) -> bool {
        matches!(self, Self::Spm { adds_space: true, .. })
    }
}

/// `<0x0A>` → 10.
pub(super) fn parse_byte_piece(piece: &str) -> Option<u8> {
    let hex = piece.strip_prefix("<0x")?.strip_suffix('>')?;
    if hex.len() == 2 && hex.bytes().all(|b| b.is_ascii_hexdigit()) { u8::from_str_radix(hex, 16).ok() } else { None }
}

/// The bytes that a piece's characters encode; a piece with a character that encodes none is itself.
pub(super) fn byte_level_bytes(piece: &str) -> Vec<u8> {
    piece.chars().map(byte_of).collect::<Option<_>>().unwrap_or_else(|| piece.as_bytes().to_vec())
}

/// The first UTF-8 byte without a piece in a byte-level vocabulary. Encoding would lose it.
pub(super) fn missing_byte<'p>(pieces: impl Iterator<Item = &'p str>) -> Option<u8> {
    let mut there = [false; 256];
    for piece in pieces {
        let mut characters = piece.chars();
        if let (Some(byte), None) = (characters.next().and_then(byte_of), characters.next()) {
            there[usize::from(byte)] = true;
        }
    }
    (0..=0xff).filter(|byte| !matches!(byte, 0xc0 | 0xc1 | 0xf5..)).find(|byte| !there[usize::from(*byte)])
}

/// The byte that GPT-2's alphabet writes as `c`: printable Latin-1 as itself, the other 68 from U+0100 on, in order.
fn byte_of(c: char) -> Option<u8> {
    let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    match u32::from(c) {
        code @ 0..=0xff => Some(code as u8).filter(|&byte| printable(byte)),
        code => (0..=255u8).filter(|&byte| !printable(byte)).nth(code as usize - 0x100),
    }
}

impl Tokenizer {
    /// The ids of `text`. Each `sentinel` is removed after added tokens were matched.
    pub(super) fn encode_marked(
        &self,
        text: &str,
        sentinel: Option<char>,
        specials: Specials,
    ) -> Result<Vec<u32>, TokenizerError> {
        match &self.engine {
            Engine::Library(library) => guarded(|| self.encode_library(library, text, sentinel, specials)),
            Engine::Spm { model, adds_space } => Ok(self.encode_spm(model, *adds_space, text, sentinel, specials)),
        }
    }

    fn encode_spm(
        &self,
        model: &SpmVocabulary,
        adds_space: bool,
        text: &str,
        sentinel: Option<char>,
        specials: Specials,
    ) -> Vec<u32> {
        let mut ids = Vec::new();
        let stretch = |stretch: &str, ids: &mut Vec<u32>| {
            let ordinary = stretch.chars().filter(|&c| Some(c) != sentinel).map(|c| if c == ' ' { SPACE } else { c });
            let mut escaped: String = ordinary.collect();
            if escaped.is_empty() {
                return;
            }
            if adds_space {
                // Each span between added tokens gets one, as in the reference.
                escaped.insert(0, SPACE);
            }
            model.encode(&escaped, ids);
        };
        let mut from = 0;
        for found in self.raw.find(text, specials) {
            stretch(&text[from..found.range.start], &mut ids);
            ids.push(found.id);
            from = found.range.end;
        }
        stretch(&text[from..], &mut ids);
        ids
    }

    fn encode_library(
        &self,
        library: &tokenizers::Tokenizer,
        text: &str,
        sentinel: Option<char>,
        specials: Specials,
    ) -> Result<Vec<u32>, TokenizerError> {
        let mut pieces = PreTokenizedString::from(text);
        pieces.split(|_, piece| split_at(&piece, self.raw.find(piece.get(), specials))).map_err(encode_error)?;
        pieces
            .split(|_, mut piece| {
                if let Some(normalizer) = library.get_normalizer() {
                    normalizer.normalize(&mut piece)?;
                }
                split_at(&piece, self.normalised.find(piece.get(), specials))
            })
            .map_err(encode_error)?;
        // Removed only now: sentinels separate literals, but must not affect the split into words.
        if let Some(sentinel) = sentinel {
            pieces
                .split(|_, mut piece| {
                    piece.filter(|c| c != sentinel);
                    Ok([piece])
                })
                .map_err(encode_error)?;
        }
        if let Some(pre_tokenizer) = library.get_pre_tokenizer() {
            pre_tokenizer.pre_tokenize(&mut pieces).map_err(encode_error)?;
        }
        pieces.tokenize(|word| self.tokenize_word(library, word.get())).map_err(encode_error)?;
        let splits = pieces.get_splits(OffsetReferential::Original, OffsetType::None);
        Ok(splits.into_iter().filter_map(|(_, _, tokens)| tokens.as_ref()).flatten().map(|token| token.id).collect())
    }

    /// The model's tokens for a word. A control marker among them (from a merge or dictionary entry) is encoded as
    /// characters instead, except the unknown token for an unknown character.
    fn tokenize_word(&self, library: &tokenizers::Tokenizer, word: &str) -> Result<Vec<Token>, LibraryError> {
        // The model does not distinguish control markers, so a merge or dictionary entry may produce one.
        let tokens = library.get_model().tokenize(word)?;
        let spelled = |token: &Token| {
            let written = || word.get(token.offsets.0..token.offsets.1) == Some(self.token_text(token.id).as_str());
            self.steers(token.id) && (self.roles.unknown != Some(token.id) || written())
        };
        if !tokens.iter().any(spelled) {
            return Ok(tokens);
        }
        Ok(tokens
            .into_iter()
            .flat_map(|token| if spelled(&token) { self.by_character(library, &token) } else { vec![token] })
            .collect())
    }

    fn by_character(&self, library: &tokenizers::Tokenizer, token: &Token) -> Vec<Token> {
        let model = library.get_model();
        let mut tokens = Vec::new();
        for c in token.value.chars() {
            let piece = c.to_string();
            if let Some(id) = model.token_to_id(&piece).filter(|&id| !self.steers(id)) {
                tokens.push(Token::new(id, piece, token.offsets));
                continue;
            }
            let bytes: Option<Vec<u32>> =
                piece.bytes().map(|byte| model.token_to_id(&format!("<0x{byte:02X}>"))).collect();
            let ids = bytes.unwrap_or_else(|| self.roles.unknown.into_iter().collect());
            tokens.extend(ids.into_iter().map(|id| Token::new(id, piece.clone(), token.offsets)));
        }
        tokens
    }
}

/// A span of text, with its token if it is an added one.
type CutPiece = (NormalizedString, Option<Vec<Token>>);

/// Splits `piece` at added tokens, which carry their ids.
fn split_at(piece: &NormalizedString, matches: Vec<Match>) -> Result<Vec<CutPiece>, LibraryError> {
    let slice = |range: std::ops::Range<usize>| {
        piece
            .slice(NormalisedRange::Normalized(range))
            .ok_or_else(|| LibraryError::from("an added token cuts a character in two"))
    };
    let mut parts = Vec::with_capacity(matches.len() * 2 + 1);
    let mut from = 0;
    for Match { range, id, .. } in matches {
        if from < range.start {
            parts.push((slice(from..range.start)?, None));
        }
        let len = range.len();
        parts.push((slice(range.clone())?, Some(vec![Token::new(id, String::new(), (0, len))])));
        from = range.end;
    }
    if from < piece.len() {
        parts.push((slice(from..piece.len())?, None));
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_alphabet_is_gpt2s() {
        assert_eq!(byte_level_bytes("ĠA"), b" A");
        assert_eq!(byte_level_bytes("Ċ"), b"\n");
        assert_eq!(byte_level_bytes("Ã©"), "é".as_bytes());
        assert_eq!(byte_level_bytes("Ń"), [0xad]);
        assert_eq!(byte_of('Ń'), Some(0xad));
        assert_eq!(byte_of('日'), None);
    }

    #[test]
    fn byte_pieces_are_two_hex_digits() {
        assert_eq!(parse_byte_piece("<0x0A>"), Some(10));
        assert_eq!(parse_byte_piece("<0x0A"), None);
        assert_eq!(parse_byte_piece("<0x+A>"), None);
    }
}

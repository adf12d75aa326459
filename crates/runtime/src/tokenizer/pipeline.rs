//! The way from text to ids: added tokens, normalisation, words, model.
//!
//! The stages are the `tokenizers` library's own, run one by one rather than through its `encode`, because that offers
//! no way to say which literals of special tokens are meant and which are data.

use probity_lm::quietly;
use tokenizers::decoders::DecoderWrapper;
use tokenizers::normalizer::Range as NormalisedRange;
use tokenizers::tokenizer::{Model, NormalizedString, Normalizer as _, PreTokenizedString, PreTokenizer as _, Token};
use tokenizers::{OffsetReferential, OffsetType};

use super::added::{Match, Specials};
use super::spm::{SPACE, SpmVocabulary};
use super::{Tokenizer, TokenizerError};

/// What turns words into ids.
pub(super) enum Engine {
    /// The library, with its normaliser, pre-tokenizer, model and decoder; its own table of added tokens is not used to
    /// encode.
    Library(Box<tokenizers::Tokenizer>),
    /// A sentencepiece vocabulary; `adds_space` puts a space before each stretch between added tokens, as the reference
    /// does.
    Spm {
        /// The vocabulary.
        model: SpmVocabulary,
        /// Whether stretches begin with a space.
        adds_space: bool,
    },
}

type LibraryError = Box<dyn std::error::Error + Send + Sync>;

#[expect(clippy::needless_pass_by_value, reason = "the form that `map_err` wants")]
fn encode_error(source: LibraryError) -> TokenizerError {
    TokenizerError::Encode(source.to_string())
}

/// The library's code, whose panics are errors.
fn guarded<T>(work: impl FnOnce() -> Result<T, TokenizerError>) -> Result<T, TokenizerError> {
    quietly(work)
        .unwrap_or_else(|| Err(TokenizerError::Encode("the library that reads tokenizer.json failed on it".to_owned())))
}

impl Engine {
    /// A pattern as it looks after normalisation.
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

    /// The byte that a token of a sentencepiece vocabulary stands for.
    pub(super) fn byte(&self, id: u32, piece: &str) -> Option<u8> {
        match self {
            Self::Library(_) => parse_byte_piece(piece),
            Self::Spm { model, .. } => model.byte(id),
        }
    }

    /// The text of ids where more belongs to it than each token's own bytes. The library reads an added token of a
    /// byte-level vocabulary as if its characters stood for bytes, so such text is not left to it.
    pub(super) fn decode(&self, ids: &[u32]) -> Option<Result<String, TokenizerError>> {
        match self {
            Self::Library(library) if !matches!(library.get_decoder(), Some(DecoderWrapper::ByteLevel(_))) => {
                Some(guarded(|| library.decode(ids, false).map_err(encode_error)))
            }
            Self::Library(_) | Self::Spm { .. } => None,
        }
    }

    /// Whether the library decodes the token together with the bytes beside it.
    pub(super) fn is_byte_of_run(&self, id: u32) -> bool {
        match self {
            Self::Library(library) if !matches!(library.get_decoder(), Some(DecoderWrapper::ByteLevel(_))) => {
                library.id_to_token(id).is_some_and(|piece| parse_byte_piece(&piece).is_some())
            }
            Self::Library(_) | Self::Spm { .. } => false,
        }
    }

    /// Whether a text's first space is the one that encoding put there.
    pub(super) fn drops_first_space(&self) -> bool {
        matches!(self, Self::Spm { adds_space: true, .. })
    }
}

/// `<0x0A>` → 10.
pub(super) fn parse_byte_piece(piece: &str) -> Option<u8> {
    let hex = piece.strip_prefix("<0x")?.strip_suffix('>')?;
    if hex.len() == 2 && hex.bytes().all(|b| b.is_ascii_hexdigit()) { u8::from_str_radix(hex, 16).ok() } else { None }
}

/// The bytes of a piece whose characters stand for them; a piece with a character that stands for none is itself.
pub(super) fn byte_level_bytes(piece: &str) -> Vec<u8> {
    piece.chars().map(byte_of).collect::<Option<_>>().unwrap_or_else(|| piece.as_bytes().to_vec())
}

/// The first byte that UTF-8 has and that is no piece of a byte-level vocabulary: a text with it would lose it.
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

/// The byte that GPT-2's alphabet writes as `c`: printable Latin-1 as itself, the 68 others as U+0100 and on, in order.
fn byte_of(c: char) -> Option<u8> {
    let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    match u32::from(c) {
        code @ 0..=0xff => Some(code as u8).filter(|&byte| printable(byte)),
        code => (0..=255u8).filter(|&byte| !printable(byte)).nth(code as usize - 0x100),
    }
}

impl Tokenizer {
    /// The ids of `text`. Each `sentinel` in it is dropped once added tokens have been looked for.
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
                // Each stretch between added tokens gets one: so does the reference.
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
        // Only now: up to here sentinels keep literals apart, and what cuts text into words must not see them.
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

    /// The model's tokens of a word. One that steers (a merge or a dictionary entry that spells one out) is written by its
    /// characters instead, except the unknown token where it stands for something unknown.
    fn tokenize_word(&self, library: &tokenizers::Tokenizer, word: &str) -> Result<Vec<Token>, LibraryError> {
        // The model knows nothing of what steers: a merge, or an entry of its dictionary, may spell such a token
        // out.
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

/// A piece of text, with its token where it is an added one.
type CutPiece = (NormalizedString, Option<Vec<Token>>);

/// `piece` cut at added tokens, which carry their ids.
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

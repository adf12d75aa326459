//! GGUF vocabularies that use models of the `tokenizers` library: sentencepiece's unigram model, its merges, and
//! `WordPiece`.

use tokenizers::decoders::DecoderWrapper;
use tokenizers::decoders::byte_fallback::ByteFallback;
use tokenizers::decoders::fuse::Fuse;
use tokenizers::decoders::sequence::Sequence as DecoderSequence;
use tokenizers::decoders::wordpiece::WordPiece as WordPieceDecoder;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::models::unigram::Unigram;
use tokenizers::models::wordpiece::WordPiece;
use tokenizers::normalizers::replace::ReplacePattern;
use tokenizers::normalizers::{BertNormalizer, NormalizerWrapper, Precompiled, Replace, Sequence, Strip};
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;
use tokenizers::pre_tokenizers::metaspace::{Metaspace, PrependScheme};

use super::gguf::GgufVocabulary;
use super::pipeline::Engine;
use super::spm::SPACE;
use super::{SpecialRoles, Spelling, Tokenizer, TokenizerError, TokenizerParts};

type LibraryError = Box<dyn std::error::Error + Send + Sync>;

/// The vocabulary of T5: spaces are collapsed, each word begins with one, and the pieces with the largest sum of scores
/// are chosen.
pub(super) fn unigram(vocabulary: &GgufVocabulary<'_>) -> Result<Tokenizer, TokenizerError> {
    let file = vocabulary.file;
    for (key, expected) in
        [("add_space_prefix", true), ("remove_extra_whitespaces", true), ("treat_whitespace_as_suffix", false)]
    {
        let key = format!("tokenizer.ggml.{key}");
        if file.bool(&key)?.is_some_and(|found| found != expected) {
            return Err(file
                .metadata_error(&key, "this tokenizer rule is not supported, so ids would be wrong")
                .into());
        }
    }
    let wrong = |key: &str, why: LibraryError| TokenizerError::from(file.metadata_error(key, why.to_string()));
    let unknown = vocabulary.token_id("unknown")?;
    let pieces = vocabulary.tokens.iter().map(str::to_owned).zip(vocabulary.scores()?.iter().copied()).collect();
    let model = Unigram::from(pieces, unknown.map(|id| id as usize), false)
        .map_err(|why| wrong("tokenizer.ggml.tokens", why))?;
    let mut library = tokenizers::Tokenizer::new(model);
    let key = "tokenizer.ggml.precompiled_charsmap";
    let mut normalizers = Vec::new();
    if let Some(map) = file.integers(key)?.filter(|map| !map.is_empty()) {
        // Files store these bytes as unsigned or signed numbers.
        let bytes: Option<Vec<u8>> =
            map.iter().map(|&byte| u8::try_from(byte).or_else(|_| i8::try_from(byte).map(|b| b as u8)).ok()).collect();
        let bytes = bytes.ok_or_else(|| file.metadata_error(key, "an entry is not a byte"))?;
        normalizers
            .push(NormalizerWrapper::Precompiled(Precompiled::from(&bytes).map_err(|why| wrong(key, Box::new(why)))?));
    }
    // The steps of T5's `tokenizer.json`, which a GGUF file does not describe.
    let spaces = Replace::new(ReplacePattern::Regex(" {2,}".to_owned()), SPACE.to_string())
        .map_err(|why| wrong("tokenizer.ggml.model", why))?;
    normalizers.extend([Strip::new(false, true).into(), spaces.into()]);
    library.with_normalizer(Some(Sequence::new(normalizers))).map_err(|why| wrong("tokenizer.ggml.model", why))?;
    let words = Metaspace::new(SPACE, PrependScheme::Always, true);
    library.with_pre_tokenizer(Some(words.clone()));
    library.with_decoder(Some(words));
    let mut roles = vocabulary.roles(false)?;
    roles.unknown = unknown;
    // Only newer files state this, and the encoder needs it for every text.
    roles.frame[1] = roles.eos.into_iter().collect();
    assembled(vocabulary, library, roles)
}

/// A tokenizer of sentencepiece's kind that the library computes.
fn assembled(
    vocabulary: &GgufVocabulary<'_>,
    library: tokenizers::Tokenizer,
    roles: SpecialRoles,
) -> Result<Tokenizer, TokenizerError> {
    Tokenizer::assemble(TokenizerParts {
        engine: Engine::Library(Box::new(library)),
        added: vocabulary.added.clone(),
        roles,
        spelling: Spelling::Sentencepiece,
        vocab_size: vocabulary.tokens.len(),
        newline_ends_word: false,
        cautions: Vec::new(),
    })
}

/// The vocabulary of Gemma 4: a space is `▁`, and merges run over whole texts, as in its `tokenizer.json`. A character
/// without a piece is its bytes.
pub(super) fn merged(vocabulary: &GgufVocabulary<'_>) -> Result<Tokenizer, TokenizerError> {
    let (vocab, merges) = vocabulary.merges()?;
    let mut roles = vocabulary.roles(true)?;
    roles.unknown = vocabulary.token_id("unknown")?;
    // Whatever the file says, as in llama.cpp: some converters wrote `false`.
    (roles.adds_bos, roles.frame[0]) = (roles.bos.is_some(), roles.bos.into_iter().collect());
    let wrong = |why: LibraryError| vocabulary.file.metadata_error("tokenizer.ggml.merges", why.to_string());
    let mut model = BPE::builder().vocab_and_merges(vocab, merges).byte_fallback(true).fuse_unk(true);
    if let Some(unknown) = roles.unknown.and_then(|id| vocabulary.tokens.get(id as usize)) {
        model = model.unk_token(unknown.to_owned());
    }
    let mut library = tokenizers::Tokenizer::new(model.build().map_err(wrong)?);
    let replace = |from: char, to: char| Replace::new(ReplacePattern::String(from.to_string()), to.to_string());
    library.with_normalizer(Some(replace(' ', SPACE).map_err(wrong)?)).map_err(wrong)?;
    let decoders: [DecoderWrapper; 3] =
        [replace(SPACE, ' ').map_err(wrong)?.into(), ByteFallback::new().into(), Fuse::new().into()];
    library.with_decoder(Some(DecoderSequence::new(decoders.into())));
    assembled(vocabulary, library, roles)
}

/// BERT's vocabulary. The format marks word beginnings instead of continuations, and does not state whether letters are
/// lowercased. They are if no piece has a capital letter.
pub(super) fn wordpiece(vocabulary: &GgufVocabulary<'_>) -> Result<Tokenizer, TokenizerError> {
    let special: Vec<&str> = vocabulary.added.iter().map(|token| token.content.as_str()).collect();
    let name = |token: &str| match token.strip_prefix(SPACE) {
        Some(word) => word.to_owned(),
        None if special.contains(&token) || (token.starts_with('[') && token.ends_with(']')) => token.to_owned(),
        None => format!("##{token}"),
    };
    let names: Vec<String> = vocabulary.tokens.iter().map(name).collect();
    let role = |name: &str, usual: &str| -> Result<u32, TokenizerError> {
        let named =
            vocabulary.token_id(name)?.or_else(|| names.iter().position(|other| other == usual).map(|id| id as u32));
        let key = format!("tokenizer.ggml.{name}_token_id");
        named.ok_or_else(|| {
            vocabulary
                .file
                .metadata_error(
                    &key,
                    format!(
                        "it is missing, and the vocabulary has no token \
                                                          {usual}"
                    ),
                )
                .into()
        })
    };
    // `seperator` is the format's spelling.
    let (first, last, unknown) = (role("cls", "[CLS]")?, role("seperator", "[SEP]")?, role("unknown", "[UNK]")?);
    // Only Latin letters: a lowercase vocabulary may contain symbols that count as capitals.
    let small = !names.iter().any(|name| {
        !special.contains(&name.as_str()) && !name.starts_with('[') && name.contains(|c: char| c.is_ascii_uppercase())
    });
    let vocab: Vocab = names.iter().enumerate().map(|(id, name)| (name.clone(), id as u32)).collect();
    let model = WordPiece::builder().vocab(vocab).unk_token(names[unknown as usize].clone()).build();
    let wrong = |why: LibraryError| vocabulary.file.metadata_error("tokenizer.ggml.tokens", why.to_string());
    let mut library = tokenizers::Tokenizer::new(model.map_err(wrong)?);
    library.with_normalizer(Some(BertNormalizer::new(true, true, None, small))).map_err(wrong)?;
    library.with_pre_tokenizer(Some(BertPreTokenizer));
    library.with_decoder(Some(WordPieceDecoder::default()));
    let mut roles = vocabulary.roles(false)?;
    (roles.frame, roles.between, roles.unknown) = ([vec![first], vec![last]], vec![last], Some(unknown));
    Tokenizer::assemble(TokenizerParts {
        engine: Engine::Library(Box::new(library)),
        added: vocabulary.added.clone(),
        roles,
        spelling: Spelling::Plain,
        vocab_size: vocabulary.tokens.len(),
        newline_ends_word: false,
        cautions: Vec::new(),
    })
}

//! Tokenizers from `tokenizer.json` and its companion files.

use std::path::Path;
use std::time::Duration;

use probity_lm::{parse_unique, refuse_repeated_keys};
use serde_json::Value as Json;

use super::added::AddedToken;
use super::check;
use super::marks::{self, end_tokens};
use super::pipeline::Engine;
use super::{SpecialRoles, Spelling, TemplateSource, Tokenizer, TokenizerError, TokenizerParts, pretokenizers};
use crate::contained::{WorkLimits, within};
use crate::side_file;

/// Memory limit for loading a tokenizer: a base, plus a factor per byte of its file. A real one of 17 MB loads in a
/// second and holds about 200 MB.
const MEMORY: usize = 256 << 20;
const MEMORY_PER_BYTE: usize = 48;
const TIME: Duration = Duration::from_secs(15);
const TIME_PER_MEGABYTE: Duration = Duration::from_secs(1);
const STACK: usize = 16 << 20;

impl Tokenizer {
    /// Reads a `tokenizer.json` and, if present in its folder, `tokenizer_config.json` (names of special tokens,
    /// `add_bos_token`, chat template), `chat_template.jinja` (takes precedence), `generation_config.json` and
    /// `config.json` (end tokens).
    ///
    /// Text gets a beginning-of-sequence token if `add_bos_token` says so, by default if the file's post-processor adds
    /// one.
    ///
    /// The files come with a model and are untrusted: their size, and the memory and time for loading, are bounded.
    pub fn from_json(path: &Path) -> Result<Self, TokenizerError> {
        // Larger files are rejected when read.
        let bytes = std::fs::metadata(path).map_or(0, |found| found.len()).min(side_file::MAX_BYTES);
        let limits = WorkLimits {
            memory: MEMORY + MEMORY_PER_BYTE * bytes as usize,
            time: TIME + TIME_PER_MEGABYTE * (bytes >> 20) as u32,
            stack: STACK,
        };
        let owned = path.to_owned();
        within(limits, move || Self::read_json(&owned))
            .map_err(|limit| TokenizerError::Malformed { path: path.to_owned(), why: limit.to_string() })?
    }

    fn read_json(path: &Path) -> Result<Self, TokenizerError> {
        let text = read(path)?;
        let malformed = |why: String| TokenizerError::Malformed { path: path.to_owned(), why };
        refuse_repeated_keys(&text).map_err(|why| malformed(why.to_string()))?;
        let description: check::UncheckedParts =
            serde_json::from_slice(&text).map_err(|source| malformed(source.to_string()))?;
        description.check().map_err(|why| malformed(why.to_string()))?;
        let mut library = tokenizers::Tokenizer::from_bytes(&text).map_err(|source| malformed(source.to_string()))?;
        // Disables truncation and padding: a prompt that is too long is reported, not truncated.
        library.with_truncation(None).map_err(|source| malformed(source.to_string()))?;
        library.with_padding(None);
        let added = description.check_added(|token| library.token_to_id(token));
        added.map_err(|why| malformed(why.to_string()))?;
        let mut added: Vec<AddedToken> = library
            .get_added_tokens_decoder()
            .into_iter()
            .map(|(id, token)| AddedToken {
                id,
                content: token.content,
                special: token.special,
                steers: token.special,
                single_word: token.single_word,
                lstrip: token.lstrip,
                rstrip: token.rstrip,
                normalized: token.normalized,
            })
            .collect();
        marks::find_steering(&mut added);
        // From the highest id instead of the count, because ids may have gaps.
        let vocab_size = library.get_vocab(true).values().max().map_or(0, |&id| id as usize + 1);
        let folder = path.parent().unwrap_or(Path::new(""));
        let unknown = description.model.unk_id.or_else(|| library.token_to_id(description.model.unk_token.as_deref()?));
        let roles = read_roles(folder, &library, &added, unknown)?;
        let spelling = spelling(&description);
        let newline_ends_word = spelling == Spelling::ByteLevel && newline_ends_word(&description);
        Self::assemble(TokenizerParts {
            engine: Engine::Library(Box::new(library)),
            added,
            roles,
            spelling,
            vocab_size,
            newline_ends_word,
            cautions: Vec::new(),
        })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TokenizerError> {
    side_file::read(path).map_err(|source| TokenizerError::Io { path: path.to_owned(), why: source.to_string() })
}

/// The JSON file with this name in `folder`, if it exists.
fn read_beside(folder: &Path, name: &str) -> Result<Option<Json>, TokenizerError> {
    let path = folder.join(name);
    if !side_file::is_there(&path) {
        return Ok(None);
    }
    let json = parse_unique(&read(&path)?);
    json.map(Some).map_err(|source| TokenizerError::Malformed { path, why: source.to_string() })
}

fn read_roles(
    folder: &Path,
    library: &tokenizers::Tokenizer,
    added: &[AddedToken],
    unknown: Option<u32>,
) -> Result<SpecialRoles, TokenizerError> {
    let config = read_beside(folder, "tokenizer_config.json")?.unwrap_or(Json::Null);
    let mut names = Vec::new();
    for name in ["bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token"] {
        if let Some(text) = token_content(&config[name]) {
            names.push((name.to_owned(), text.to_owned()));
        }
    }
    let named = |name: &str| {
        let Some((_, text)) = names.iter().find(|(other, _)| other == name) else { return Ok(None) };
        let id = library.token_to_id(text);
        id.map(Some).ok_or_else(|| TokenizerError::Malformed {
            path: folder.join("tokenizer_config.json"),
            why: format!("`{name}` is `{}`, which is not a token of tokenizer.json", text.escape_debug()),
        })
    };
    let (frame, between) = frame_of_post_processor(library)?;
    // Determined by encoding, because post-processors can express it in several ways.
    let put_first = frame[0].first().copied();
    let bos = named("bos_token")?.or(put_first);
    let adds_bos = config["add_bos_token"].as_bool().unwrap_or(put_first.is_some() && put_first == bos);
    let eos = named("eos_token")?;
    let mut given: Vec<u32> = eos.into_iter().collect();
    // Some chat models name the end-of-turn token only here.
    for name in ["generation_config.json", "config.json"] {
        if let Some(json) = read_beside(folder, name)? {
            let path = folder.join(name);
            let ends = ids(&json["eos_token_id"], &path)?;
            if let Some(id) = ends.iter().find(|id| library.id_to_token(**id).is_none()) {
                let why = format!("`eos_token_id` is {id}, which is not a token of tokenizer.json");
                return Err(TokenizerError::Malformed { path, why });
            }
            given.extend(ends);
        }
    }
    let chat_template = read_template(folder, &config)?;
    Ok(SpecialRoles {
        bos,
        adds_bos,
        frame,
        between,
        eos,
        ends: end_tokens(given, added),
        unknown,
        names,
        chat_template,
    })
}

/// A token's text, as a string or as an object with flags.
fn token_content(json: &Json) -> Option<&str> {
    json.as_str().or_else(|| json["content"].as_str())
}

/// One id or a list; empty if missing. `path` is the file, for errors.
fn ids(json: &Json, path: &Path) -> Result<Vec<u32>, TokenizerError> {
    let id = |json: &Json| {
        let id = json.as_u64().and_then(|id| u32::try_from(id).ok());
        id.ok_or_else(|| TokenizerError::Malformed {
            path: path.to_owned(),
            why: format!("`eos_token_id` is {json}, but must be a token id or a list of token ids"),
        })
    };
    match json {
        Json::Null => Ok(Vec::new()),
        Json::Array(list) => list.iter().map(id).collect(),
        single => id(single).map(|id| vec![id]),
    }
}

/// Special tokens that the file's post-processor puts before, after and between texts.
fn frame_of_post_processor(library: &tokenizers::Tokenizer) -> Result<([Vec<u32>; 2], Vec<u32>), TokenizerError> {
    let fail = |source: tokenizers::Error| TokenizerError::Encode(source.to_string());
    let encode = |special| library.encode_fast("a", special).map_err(fail);
    let (bare, whole) = (encode(false)?, encode(true)?);
    let (bare, whole) = (bare.get_ids(), whole.get_ids());
    let Some(at) = whole.windows(bare.len().max(1)).position(|window| window == bare) else {
        return Ok(Default::default());
    };
    let frame = [whole[..at].to_vec(), whole[at + bare.len()..].to_vec()];
    let pair = library.encode_fast(("a", "a"), true).map_err(fail)?;
    let [before, after] = [[&frame[0], bare].concat(), [bare, &frame[1]].concat()];
    let between = pair.get_ids().strip_prefix(&*before).and_then(|rest| rest.strip_suffix(&*after));
    Ok((frame.clone(), between.unwrap_or_default().to_vec()))
}

/// File name of a chat template next to a model.
pub const TEMPLATE_FILE: &str = "chat_template.jinja";

/// The chat template of a folder, even if its tokenizer cannot be used: `chat_template.jinja`, otherwise the one in
/// `tokenizer_config.json`.
pub fn chat_template_of(folder: &Path) -> Result<Option<TemplateSource>, TokenizerError> {
    read_template(folder, &read_beside(folder, "tokenizer_config.json")?.unwrap_or(Json::Null))
}

/// A folder's `chat_template.jinja`, which takes precedence over the model's other files.
pub(super) fn template_file_of(folder: &Path) -> Result<Option<TemplateSource>, TokenizerError> {
    let file = folder.join(TEMPLATE_FILE);
    if !side_file::is_there(&file) {
        return Ok(None);
    }
    match String::from_utf8(read(&file)?) {
        Ok(text) => Ok(Some(TemplateSource { text, path: file })),
        Err(source) => Err(TokenizerError::Malformed { path: file, why: source.to_string() }),
    }
}

fn read_template(folder: &Path, config: &Json) -> Result<Option<TemplateSource>, TokenizerError> {
    if let Some(template) = template_file_of(folder)? {
        return Ok(Some(template));
    }
    let text = match &config["chat_template"] {
        Json::String(template) => Some(template.clone()),
        Json::Array(named) => {
            let default: Vec<&Json> = named.iter().filter(|entry| entry["name"] == "default").collect();
            let [one] = default[..] else {
                let why =
                    format!("`chat_template` is a list with {} templates named `default`, not one", default.len());
                return Err(TokenizerError::Malformed { path: folder.join("tokenizer_config.json"), why });
            };
            one["template"].as_str().map(str::to_owned)
        }
        Json::Null => None,
        other => {
            let why = format!("`chat_template` is {other}, but must be a string or a list of named templates");
            return Err(TokenizerError::Malformed { path: folder.join("tokenizer_config.json"), why });
        }
    };
    Ok(text.map(|text| TemplateSource { text, path: folder.join("tokenizer_config.json") }))
}

fn spelling(description: &check::UncheckedParts) -> Spelling {
    let decoder = description.decoder.to_string();
    if decoder.contains("\"ByteLevel\"") {
        Spelling::ByteLevel
    } else if decoder.contains('\u{2581}') {
        Spelling::Sentencepiece
    } else {
        Spelling::Plain
    }
}

/// Whether [`pretokenizers::Family::newline_ends_word`] is known to hold for all steps.
fn newline_ends_word(description: &check::UncheckedParts) -> bool {
    let normalizer = &description.normalizer;
    let pre = &description.pre_tokenizer;
    let steps = pre["pretokenizers"].as_array().map_or_else(|| vec![pre], |steps| steps.iter().collect());
    let known = |step: &&Json| match step["type"].as_str() {
        Some("ByteLevel") => step["add_prefix_space"] == false,
        Some("Digits") => true,
        Some("Split") => {
            step["behavior"] == "Isolated"
                && step["invert"] == false
                && step["pattern"]["Regex"].as_str().is_some_and(pretokenizers::newline_ends_word)
        }
        _ => false,
    };
    let cuts = |step: &&Json| step["type"] == "Split" || (step["type"] == "ByteLevel" && step["use_regex"] != false);
    (normalizer.is_null() || normalizer["type"] == "NFC") && steps.iter().all(known) && steps.iter().any(cuts)
}

//! `probity model inspect`: shows the contents of a model.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use probity_lm::{Message, Precision, Prompt, Role, without_byte_order_mark};
use probity_runtime::hub::{LocatedModel, ModelOrigin, WeightFormat, locate};
use probity_runtime::tokenizer::{TEMPLATE_FILE, chat_template_of, chat_template_of_gguf};
use probity_runtime::weights::{GgufFile, LoraAdapter, SafetensorsFiles};
use probity_runtime::{
    BatchSize, Checkpoint, DeviceChoice, DeviceList, DeviceShare, LoadError, LoadOptions, ModelMemory, gguf_config,
    text_part, text_tensor,
};
use serde_json::Value;

use crate::error::{FileError, JsonError};
use crate::terminal::{print, size, table, thousands, visible, visible_line};

/// Options of `model inspect`.
#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// Model: a known name, a path or a hub name (ORG/NAME)
    model: String,
    /// Adapter to include: a folder saved by PEFT
    #[arg(long, value_name = "DIR")]
    adapter: Option<PathBuf>,
    /// List every tensor
    #[arg(long)]
    tensors: bool,
    /// Show the memory needed and free on this device
    ///
    /// Such as cuda:0 or candle-cpu, or several devices that share the layers (cuda:0+cuda:1).
    #[arg(long, value_name = "DEVICE", default_value_t)]
    device: DeviceList,
    /// Precision for which --device shows the memory
    #[arg(long, value_name = "PRECISION", value_parser = precision, default_value = "exact")]
    precision: Precision,
    /// Show a chat with this user message as text and token ids
    #[arg(long, value_name = "TEXT", num_args = 0..=1, require_equals = true, default_missing_value = "Hello")]
    chat: Option<String>,
}

/// The data to show.
struct Inspection {
    files: Vec<PathBuf>,
    config: Value,
    tensors: Vec<Tensor>,
    /// Parameters of tensors outside the text model.
    unread: usize,
    tokenizer: String,
    chat_template: Option<String>,
}

/// How a model can be queried, or why it cannot.
type Runs = Result<AskedModel, LoadError>;

/// The supported queries of a model.
struct AskedModel {
    /// Markers of its chat template that are not single tokens.
    spelled_marks: Vec<String>,
    /// How it thinks before it answers.
    thinking: Option<String>,
    /// The problem with its chat template.
    template_error: Option<String>,
    /// The classes of its head, if it has one instead of token logits.
    classes: Vec<String>,
    /// Whether it encodes whole texts, without a cache.
    reads_whole: bool,
    /// The external library that runs it.
    through: Option<&'static str>,
    /// Maximum length of a text in tokens.
    context: Option<usize>,
}

struct Tensor {
    name: String,
    shape: Vec<usize>,
    type_name: String,
    bytes: usize,
}

impl Tensor {
    fn parameters(&self) -> usize {
        self.shape.iter().product()
    }
}

impl InspectArgs {
    pub(crate) fn run(self) -> miette::Result<()> {
        let located = locate(&self.model)?.with_adapter(self.adapter);
        if let Some(message) = self.chat {
            return Ok(print(&chat_text(&Checkpoint::open(&located)?, message)?)?);
        }
        let adapter = located.adapter.as_deref().map(LoraAdapter::open).transpose()?;
        let inspection = match located.format {
            WeightFormat::Gguf => inspect_gguf(&located.path)?,
            WeightFormat::Safetensors => inspect_folder(&located.path)?,
        };
        let asked = |checkpoint: Checkpoint| {
            let through = checkpoint.through();
            let device = if through.is_some() { DeviceChoice::CandleCpu } else { DeviceChoice::Cpu };
            checkpoint.check_answers(LoadOptions { devices: device.into(), ..LoadOptions::default() })?;
            let encoder = &checkpoint.encoder;
            Ok(AskedModel {
                spelled_marks: encoder.spelled_marks(),
                thinking: encoder.thinking().map(ToString::to_string),
                template_error: encoder.chat_error().map(ToString::to_string),
                classes: encoder.classes().to_vec(),
                reads_whole: encoder.reads_whole(),
                through,
                context: checkpoint.config.context_length(),
            })
        };
        let options =
            LoadOptions { devices: self.device.counted(), precision: self.precision, ..LoadOptions::default() };
        options.devices.check()?;
        // No `?`: the user may inspect a model because it cannot be queried.
        let checkpoint = Checkpoint::open(&located);
        let there = match &checkpoint {
            Ok(checkpoint) => {
                // For cpu there are no lines, whichever engine runs the model.
                if options.devices.first() != DeviceChoice::Cpu {
                    checkpoint.check_devices(options)?;
                }
                device_memory_lines(&ModelMemory::new(checkpoint, options))
            }
            Err(_) => Vec::new(),
        };
        let runs = checkpoint.and_then(asked);
        Ok(print(inspection.text(&located, adapter.as_ref(), (&runs, there), self.tensors).trim_end())?)
    }
}

fn precision(name: &str) -> Result<Precision, String> {
    let known = [Precision::Exact, Precision::Fast];
    known.into_iter().find(|known| known.as_str() == name).ok_or_else(|| "expected exact or fast".to_owned())
}

/// Required and free memory of each device; empty for cpu.
pub(crate) fn device_memory_lines(memory: &ModelMemory) -> Vec<String> {
    let tokens = memory.token_budget();
    let line = |share: &DeviceShare| {
        let activations = share.activations(BatchSize::with_tokens(tokens))?;
        let mut parts = vec![format!("{} of weights on {}", size(share.weights), share.title())];
        let cache = share.cache_per_token().filter(|bytes| *bytes > 0);
        parts.extend(
            cache.map(|bytes| format!("{} of keys and values per 1,000 tokens of context", size(1000 * bytes))),
        );
        parts.push(format!(
            "up to {} of activations for {} tokens at once",
            size(activations),
            thousands(tokens as u64)
        ));
        let free = share.free();
        parts.push(free.map_or_else(|| "free memory is unknown".to_owned(), |free| format!("{} are free", size(free))));
        Some(parts.join("; "))
    };
    memory.shares.iter().filter_map(line).collect()
}

/// The rendered prompt of a chat with one message, up to the start of the answer: as text, then by token.
fn chat_text(checkpoint: &Checkpoint, message: String) -> miette::Result<String> {
    let encoder = &checkpoint.encoder;
    let messages = vec![Message::new(Role::User, message)];
    let answers = encoder.classes().is_empty();
    let text = encoder.chat().map(|template| template.render(&messages, answers)).transpose()?;
    let prompt = Prompt::chat(messages, "");
    let ids = if answers { encoder.encode_prompt(&prompt)? } else { encoder.encode_whole_prompt(&prompt)? };
    let row = |id: &u32| vec![id.to_string(), format!("{:?}", encoder.tokenizer().token_text(*id))];
    let tokens = table(&["id", "token"].map(str::to_owned), &ids.iter().map(row).collect::<Vec<_>>());
    let text = text.unwrap_or_else(|| prompt.text());
    Ok(format!("{}\n\n{}", visible(text.trim_end_matches('\n')), tokens.trim_end()))
}

fn inspect_gguf(path: &Path) -> miette::Result<Inspection> {
    let file = GgufFile::open(path)?;
    let tensors = file.tensors().into_iter().map(|tensor| Tensor {
        name: tensor.name,
        shape: tensor.shape,
        type_name: tensor.type_name.to_owned(),
        bytes: tensor.bytes,
    });
    let kind = file.string("tokenizer.ggml.model")?.unwrap_or("none");
    let kind = match kind {
        "gpt2" => "byte-level BPE",
        "llama" => "sentencepiece",
        other => other,
    };
    let splitting = file.string("tokenizer.ggml.pre")?.map(|pre| format!(", splitting of `{pre}`")).unwrap_or_default();
    let words = file.strings("tokenizer.ggml.tokens")?.map_or(0, probity_runtime::weights::StringTable::len);
    let template = path.parent().map(|folder| folder.join(TEMPLATE_FILE)).filter(|template| template.is_file());
    Ok(Inspection {
        files: file.paths().into_iter().chain(template).collect(),
        config: gguf_config(&file)?,
        tensors: tensors.collect(),
        unread: 0,
        tokenizer: format!("{kind}{splitting}, {} tokens, from the file's own vocabulary", thousands(words as u64)),
        chat_template: chat_template_of_gguf(&file)?.map(|template| template.text),
    })
}

fn inspect_folder(folder: &Path) -> miette::Result<Inspection> {
    let files = SafetensorsFiles::open(folder)?;
    let tensors =
        files.tensors().into_iter().map(|(name, shape, type_name, bytes)| Tensor { name, shape, type_name, bytes });
    let tokenizer = match json_file(&folder.join("tokenizer.json"))? {
        Some(tokenizer) => {
            let kind = tokenizer["model"]["type"].as_str().unwrap_or("of unknown kind").to_owned();
            // A map of tokens, or a list of tokens with scores.
            let vocabulary = &tokenizer["model"]["vocab"];
            let words = vocabulary.as_object().map(serde_json::Map::len);
            let words = words.or_else(|| vocabulary.as_array().map(Vec::len)).unwrap_or(0);
            format!("{kind}, {} tokens, from tokenizer.json", thousands(words as u64))
        }
        None => "none (no tokenizer.json)".to_owned(),
    };
    let chat_template = chat_template_of(folder)?.map(|template| template.text);
    let mut paths = files.paths();
    let others = ["config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"];
    paths.extend(others.iter().map(|name| folder.join(name)).filter(|path| path.is_file()));
    let config = json_file(&folder.join("config.json"))?.unwrap_or_default();
    let text = text_part(&config).ok().flatten();
    let (tensors, unread): (Vec<Tensor>, Vec<Tensor>) =
        tensors.partition(|tensor| text.is_none() || text_tensor(&tensor.name).is_some());
    Ok(Inspection {
        files: paths,
        config: text.unwrap_or(config),
        tensors,
        unread: unread.iter().map(Tensor::parameters).sum(),
        tokenizer,
        chat_template,
    })
}

fn json_file(path: &Path) -> miette::Result<Option<Value>> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(serde_json::from_slice(without_byte_order_mark(&bytes))
            .map_err(JsonError::context(format!("{} is not JSON", path.display())))?),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(FileError::context(format!("cannot read {}", path.display()))(error).into()),
    }
}

impl Inspection {
    fn text(
        &self,
        located: &LocatedModel,
        adapter: Option<&LoraAdapter>,
        (runs, on_device): (&Runs, Vec<String>),
        all_tensors: bool,
    ) -> String {
        let mut text = String::new();
        let mut line = |name: &str, value: String| {
            let _ = writeln!(text, "{name:<14} {}", visible(&value));
        };
        line("model", located.name.clone());
        let origin = match &located.origin {
            ModelOrigin::Models => "probity's model folder".to_owned(),
            ModelOrigin::Path => "a local path".to_owned(),
            ModelOrigin::HubCache { revision } => format!("the Hugging Face cache, revision {revision}"),
        };
        line("found in", origin);
        for path in &self.files {
            let bytes = std::fs::metadata(path).map_or(0, |found| found.len());
            line("file", format!("{}  {}", path.display(), size(bytes)));
        }
        if let Some(adapter) = adapter {
            let (rank, scale) = adapter.rank_and_scale();
            let changed = adapter.changed().count();
            line("adapter", format!("rank {rank}, scale {scale}, changes {changed} tensors, which become F32"));
            adapter.files().iter().for_each(|path| line("file", path.display().to_string()));
        }
        line("architecture", self.architecture());
        let parameters: usize = self.tensors.iter().map(Tensor::parameters).sum();
        line("parameters", thousands(parameters as u64));
        if self.unread > 0 {
            line("not read", format!("{} parameters of the vision part", thousands(self.unread as u64)));
        }
        let said = |keys: &[&str]| {
            let value = keys.iter().find_map(|key| self.config.get(key)).filter(|value| !value.is_null())?;
            Some(value.as_u64().map_or_else(|| value.to_string(), thousands))
        };
        if let Some(said) = said(&["max_position_embeddings"]) {
            let read = runs.as_ref().ok().and_then(|asked| asked.context).map(|tokens| thousands(tokens as u64));
            // Length-dependent scaling or padding positions can reduce the usable context.
            let less = read.filter(|read| *read != said).map(|read| format!("{read}; the configuration has {said}"));
            line("context", less.unwrap_or(said));
        }
        for (name, keys) in SIZES {
            if let Some(said) = said(keys) {
                line(name, said);
            }
        }
        line("tokenizer", self.tokenizer.clone());
        let on_cpu = || self.memory(runs.as_ref().is_ok_and(|asked| !asked.reads_whole));
        if on_device.is_empty() {
            line("memory", on_cpu());
        }
        for memory in on_device {
            line("memory", memory);
        }
        line(
            "usable",
            match runs {
                Err(why) => format!("no: {why}"),
                Ok(asked) if asked.classes.is_empty() => "yes".to_owned(),
                Ok(asked) => format!("with reward, for {}", asked.classes.join(", ")),
            },
        );
        if let Ok(AskedModel { through, .. }) = runs {
            let way = |library| {
                format!(
                    "through {library}, with --device candle-cpu, cuda:N or metal: slower, and the last digits may \
                     differ"
                )
            };
            line("runs", through.map_or_else(|| "in probity's own code, on every device".to_owned(), way));
        }
        let template = match (&self.chat_template, runs) {
            (_, Ok(asked)) if asked.reads_whole => "not needed: task and candidate are a pair of texts".to_owned(),
            (None, _) => "none: prompts are plain text".to_owned(),
            (Some(_), Ok(AskedModel { template_error: Some(wrong), .. })) => {
                format!("broken, see below; prompts are plain text: {wrong}")
            }
            (Some(_), Ok(AskedModel { spelled_marks, .. })) if !spelled_marks.is_empty() => {
                let marks = visible_line(&spelled_marks.join(", "));
                format!("see below; these marks are not in the vocabulary and are spelled out: {marks}")
            }
            (Some(_), _) => "see below".to_owned(),
        };
        line("chat template", template);
        if let Ok(AskedModel { thinking: Some(thinking), .. }) = runs {
            line("thinking", thinking.clone());
        }
        let _ = writeln!(text, "\n{}", self.tensor_table(all_tensors));
        if let Some(template) = &self.chat_template {
            let _ = writeln!(text, "\nchat template\n{}", visible(template));
        }
        text
    }

    fn architecture(&self) -> String {
        let field = self.config["model_type"].as_str().or_else(|| self.config["architectures"][0].as_str());
        field.unwrap_or("unknown").to_owned()
    }

    /// The size of the weights in the files and, for models that generate, of keys and values in 32-bit floats.
    fn memory(&self, has_cache: bool) -> String {
        let weights: usize = self.tensors.iter().map(|tensor| tensor.bytes).sum();
        let number = |key: &str| self.config[key].as_u64();
        // The fields are untrusted: the product may overflow.
        let per_thousand = || {
            let heads = number("num_attention_heads")?;
            let head_dim = number("head_dim").or_else(|| number("hidden_size")?.checked_div(heads))?;
            let factors =
                [1000, 2 * 4, number("num_hidden_layers")?, number("num_key_value_heads").unwrap_or(heads), head_dim];
            factors.into_iter().try_fold(1, u64::checked_mul)
        };
        let weights = format!("{} of weights", size(weights as u64));
        match per_thousand() {
            Some(bytes) if has_cache => {
                format!("{weights}; {} of keys and values per 1,000 tokens of context", size(bytes))
            }
            _ => weights,
        }
    }

    fn tensor_table(&self, all: bool) -> String {
        if all {
            let row = |tensor: &Tensor| {
                let shape = tensor.shape.iter().map(usize::to_string).collect::<Vec<_>>().join(" × ");
                vec![tensor.name.clone(), tensor.type_name.clone(), shape, size(tensor.bytes as u64)]
            };
            let columns = ["tensor", "type", "shape", "size"].map(str::to_owned);
            return table(&columns, &self.tensors.iter().map(row).collect::<Vec<_>>());
        }
        let mut types: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for tensor in &self.tensors {
            let (count, bytes) = types.entry(&tensor.type_name).or_default();
            *count += 1;
            *bytes += tensor.bytes;
        }
        let row = |(name, (count, bytes)): (&&str, &(usize, usize))| {
            vec![(*name).to_owned(), count.to_string(), size(*bytes as u64)]
        };
        table(&["type", "tensors", "size"].map(str::to_owned), &types.iter().map(row).collect::<Vec<_>>())
    }
}

/// Fields of a configuration to show, with their possible names.
const SIZES: [(&str, &[&str]); 7] = [
    ("sliding window", &["sliding_window"]),
    ("vocabulary", &["vocab_size"]),
    ("layers", &["num_hidden_layers", "num_layers", "n_layers", "encoder_layers"]),
    ("decoder layers", &["num_decoder_layers", "decoder_layers"]),
    ("hidden size", &["hidden_size", "d_model", "dim"]),
    ("heads", &["num_attention_heads", "num_heads", "n_heads", "encoder_attention_heads"]),
    ("key heads", &["num_key_value_heads"]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_order_mark_in_front_of_a_side_file_is_skipped() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens/models/qwen2");
        let folder = tempfile::tempdir().expect("temporary folder");
        std::fs::copy(golden.join("model.safetensors"), folder.path().join("model.safetensors")).expect("copied");
        for name in ["config.json", "tokenizer.json", "tokenizer_config.json"] {
            let text = std::fs::read_to_string(golden.join(name)).expect("golden");
            std::fs::write(folder.path().join(name), format!("\u{feff}{text}")).expect("written");
        }
        std::fs::write(folder.path().join("chat_template.jinja"), "\u{feff}{{ messages[0].content }}")
            .expect("written");
        let shown = inspect_folder(folder.path()).expect("inspected").chat_template;
        assert_eq!(shown.as_deref(), Some("{{ messages[0].content }}"));
        let located = locate(&folder.path().display().to_string()).expect("a model");
        Checkpoint::open(&located).expect("a model that can be read");
    }

    #[test]
    fn the_template_that_is_shown_is_the_one_that_runs() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens/models/qwen2");
        let folder = tempfile::tempdir().expect("temporary folder");
        for name in ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"] {
            std::fs::copy(golden.join(name), folder.path().join(name)).expect("copied");
        }
        std::fs::write(folder.path().join("chat_template.jinja"), "{{ messages[0].content }}").expect("written");
        let shown = inspect_folder(folder.path()).expect("inspected").chat_template;
        assert_eq!(shown.as_deref(), Some("{{ messages[0].content }}"));
    }
}

//! Models in memory, shared between the stages of a plan and the models of one method.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use probity_lm::{LanguageModel, ModelDescription, TextEncoder, ThinkMode, ThinkingModel};
use probity_report::text::thousands;
use probity_runtime::{Checkpoint, DeviceChoice, LoadError, LoadOptions, Model, ModelMemory, TextModel, device_room};

use crate::options::{ByteSize, ComputingOptions, ModelOptions, TemplateVariable};
use crate::{Events, Notice, SessionError};

/// A model whose files are open.
#[derive(Clone)]
pub struct OpenedModel {
    pub(crate) options: ModelOptions,
    pub(crate) checkpoint: Arc<Checkpoint>,
}

impl OpenedModel {
    /// Opens the model's files.
    pub fn open(options: &ModelOptions) -> Result<Self, SessionError> {
        if options.computing.thoughts.is_some() && !matches!(options.computing.think, ThinkMode::AtMost(_)) {
            return Err(SessionError::ThoughtsWithoutLength);
        }
        let checkpoint = Arc::new(Checkpoint::open(&options.located()?)?);
        Ok(Self { options: options.clone(), checkpoint })
    }

    /// The loaded model, which formats chats and thinks as the options say.
    pub fn thinking<'m>(&self, model: &'m dyn LanguageModel) -> ThinkingModel<&'m dyn LanguageModel> {
        self.options.computing.thinking(model)
    }

    /// The model's description, with the hash of its files.
    pub(crate) fn describe(&self) -> Result<ModelDescription, SessionError> {
        Ok(self.checkpoint.describe(self.options.computing.load_options(), self.checkpoint.fingerprint()?))
    }

    /// The files, reopened if they changed: the fingerprint must match the weights that are loaded.
    fn current(&self) -> Result<Arc<Checkpoint>, SessionError> {
        if self.checkpoint.is_current() {
            return Ok(self.checkpoint.clone());
        }
        Ok(Self::open(&self.options)?.checkpoint)
    }
}

/// Keeps loaded models in up to a third of a memory (the machine's or a device's own), evicting the least recently
/// used. At least one stays, whatever its size.
pub struct ModelPool {
    events: Arc<dyn Events>,
    /// The most recently used model is last.
    entries: Mutex<Vec<PoolEntry>>,
}

/// The maximum number of variables of a chat template in a warning.
const LISTED_VARIABLES: usize = 20;

/// Weights may take 1/3 of a memory. Another third remains for keys and values, which take half of the free memory when
/// a model is loaded, and a third for everything else.
const WEIGHTS_SHARE: u64 = 3;

/// A loaded model, or why it cannot be loaded.
struct PoolEntry {
    options: ModelOptions,
    loaded: Result<PoolModel, Arc<SessionError>>,
    bytes: u64,
}

/// A model of either kind.
enum PoolModel {
    /// Answers and generates.
    Language(Arc<Model>),
    /// Encodes whole texts.
    Encoder(Arc<TextModel>),
}

impl ModelPool {
    /// An empty pool.
    pub fn new(events: Arc<dyn Events>) -> Self {
        Self { events, entries: Mutex::default() }
    }

    /// The language model, loaded if it is not in memory.
    pub fn language(&self, opened: &OpenedModel) -> Result<Arc<Model>, SessionError> {
        let load = |files: &_, load| Ok(PoolModel::Language(Arc::new(Model::from_checkpoint(files, load)?)));
        self.get(opened, load, PoolModel::language)
    }

    /// The encoder, loaded if it is not in memory.
    pub fn encoder(&self, opened: &OpenedModel) -> Result<Arc<TextModel>, SessionError> {
        let load = |files: &_, load| Ok(PoolModel::Encoder(Arc::new(TextModel::from_checkpoint(files, load)?)));
        self.get(opened, load, PoolModel::encoder)
    }

    fn get<M>(
        &self,
        opened: &OpenedModel,
        load: impl Fn(&Checkpoint, LoadOptions) -> Result<PoolModel, LoadError>,
        of_kind: fn(&PoolModel) -> Option<&Arc<M>>,
    ) -> Result<Arc<M>, SessionError> {
        let options = &opened.options;
        let mut entries = self.entries.lock();
        let is_kind = |loaded: &PoolModel| of_kind(loaded).is_some();
        let fits =
            |entry: &PoolEntry| entry.options.has_weights_of(options) && entry.loaded.as_ref().map_or(true, is_kind);
        if let Some(place) = entries.iter().rposition(fits)
            && entries[place].runs_as(options)?
        {
            let entry = entries.remove(place);
            entries.push(entry);
        } else {
            let entry = self.load(opened, &mut entries, load);
            entries.push(entry);
        }
        match &entries.last().expect("just pushed").loaded {
            Ok(loaded) => {
                if let Some(model) = loaded.language() {
                    self.events.notice(Notice::Tokens(model.progress()));
                }
                Ok(of_kind(loaded).expect("looked for, or loaded, by its kind").clone())
            }
            Err(error) => Err(SessionError::LoadedBefore(Arc::clone(error))),
        }
    }

    /// Loads a model, first evicting those that leave no room for it.
    fn load(
        &self,
        opened: &OpenedModel,
        entries: &mut Vec<PoolEntry>,
        load: impl Fn(&Checkpoint, LoadOptions) -> Result<PoolModel, LoadError>,
    ) -> PoolEntry {
        let mut loaded = || -> Result<PoolModel, SessionError> {
            let (files, load_options) = (opened.current()?, opened.options.computing.load_options());
            make_room(entries, &files, load_options);
            let started = Instant::now();
            let loaded = load(&files, load_options)?;
            self.events
                .notice(Notice::Loaded { model: loaded.description(), seconds: started.elapsed().as_secs_f64() });
            match &loaded {
                PoolModel::Language(model) => {
                    self.report_options(load_options, model);
                    self.report_variables(&opened.options.computing, model);
                    self.report_limits(model);
                }
                PoolModel::Encoder(model) if load_options.devices.has_copies() => {
                    let device = &model.config().description.device;
                    let told = format!("an encoder uses one copy, on {device} of {}", load_options.devices);
                    self.events.notice(Notice::Message(&told));
                }
                PoolModel::Encoder(_) => {}
            }
            Ok(loaded)
        };
        let loaded = loaded().map_err(Arc::new);
        let bytes = loaded.as_ref().map_or(0, PoolModel::bytes);
        PoolEntry { options: opened.options.clone(), loaded, bytes }
    }

    /// Warns of options that this machine does not support.
    fn report_options(&self, options: LoadOptions, model: &Model) {
        let copies = options.devices.copies().len();
        if let Some(threads) = options.threads.filter(|threads| *threads < copies) {
            let told = format!(
                "each copy needs at least one thread: using {copies} threads instead of --compute \
                                threads={threads}"
            );
            self.events.notice(Notice::Message(&told));
        }
        let shares = model.memory().shares.iter();
        let least = shares.filter_map(|share| Some((share.free()?, &share.devices))).min();
        if let (Some(budget), Some((free, device))) = (options.cache_budget, least)
            && budget > free
        {
            self.events.notice(Notice::Warning(&format!(
                "--compute cache-budget={} is more than the {} free on {device} before the model was loaded; a run \
                 that needs more than the free memory fails",
                ByteSize(budget).rounded_up(),
                ByteSize(free).rounded_up()
            )));
        }
    }

    /// Warns of variables that the chat template does not have.
    fn report_variables(&self, options: &ComputingOptions, model: &Model) {
        let Some(chat) = model.encoder().chat() else { return };
        let known: Vec<&str> = chat.variables().iter().map(String::as_str).take(LISTED_VARIABLES).collect();
        let known = if known.is_empty() { "it has none".to_owned() } else { format!("it has {}", known.join(", ")) };
        for TemplateVariable { name, .. } in &options.template_var {
            if !chat.variables().contains(name) {
                let warning = format!("--template-var {name}: the chat template has no such variable; {known}");
                self.events.notice(Notice::Warning(&warning));
            }
        }
    }

    /// Reports limits of the model.
    fn report_limits(&self, model: &Model) {
        let warn = |text: &str| self.events.notice(Notice::Warning(text));
        if let Some(context) = model.description().context_length.filter(|context| model.token_limit() < *context) {
            let [room, seen] = [model.token_limit(), context].map(|tokens| thousands(tokens as u64));
            let larger = model.cache_needed(context).map(|bytes| ByteSize(bytes).rounded_up());
            let larger = larger.map(|budget| format!("; set --compute cache-budget={budget} to use all of it"));
            let larger = larger.unwrap_or_default();
            warn(&format!(
                "the cache budget holds {room} tokens; longer prompts are too_long, although the context of the model \
                 has {seen}{larger}"
            ));
        }
        model.encoder().tokenizer().cautions().iter().for_each(|caution| warn(caution));
        if let Some(error) = model.encoder().chat_error() {
            warn(&format!("{error}; only plain prompts are possible"));
        }
    }
}

impl PoolEntry {
    /// Applies options that need no other weights; `false` if the model is in use with other options.
    fn runs_as(&mut self, options: &ModelOptions) -> Result<bool, SessionError> {
        if self.options != *options {
            if let Ok(PoolModel::Language(model)) = &mut self.loaded {
                let Some(model) = Arc::get_mut(model) else { return Ok(false) };
                model.run_with(options.computing.load_options())?;
            }
            self.options = options.clone();
        }
        Ok(true)
    }
}

impl PoolModel {
    fn language(&self) -> Option<&Arc<Model>> {
        if let Self::Language(model) = self { Some(model) } else { None }
    }

    fn encoder(&self) -> Option<&Arc<TextModel>> {
        if let Self::Encoder(model) = self { Some(model) } else { None }
    }

    fn description(&self) -> &ModelDescription {
        match self {
            Self::Language(model) => model.description(),
            Self::Encoder(model) => &model.config().description,
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Self::Language(model) => model.memory().weights_in_one_memory(),
            Self::Encoder(model) => model.memory().weights_in_one_memory(),
        }
    }
}

/// Whether both devices share a memory: that of the machine, or that of devices of one kind.
fn in_one_memory(one: DeviceChoice, other: DeviceChoice) -> bool {
    use DeviceChoice::{CandleCpu, Cpu, Cuda, Metal};
    matches!((one, other), (Cpu | CandleCpu, Cpu | CandleCpu) | (Cuda(_), Cuda(_)) | (Metal, Metal))
}

/// Evicts models from the memory that a new one needs until there is room; all of them if the amount of memory is
/// unknown.
fn make_room(entries: &mut Vec<PoolEntry>, files: &Checkpoint, options: LoadOptions) {
    let devices = options.devices;
    let room = devices.devices().map(|device| device_room(device).map_or(0, |room| room.total)).min();
    let budget = room.unwrap_or(0) / WEIGHTS_SHARE;
    let needed = ModelMemory::new(files, options).weights_in_one_memory();
    let beside = |entry: &PoolEntry| in_one_memory(entry.options.computing.device.first(), devices.first());
    while let Some(oldest) = entries.iter().position(beside) {
        let held: u64 = entries.iter().filter(|entry| beside(entry)).map(|entry| entry.bytes).sum();
        if held + needed <= budget {
            break;
        }
        entries.remove(oldest);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::Silent;

    #[test]
    fn files_are_opened_again_only_if_they_changed_and_the_fingerprint_is_that_of_the_loaded_ones() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens/models/llama");
        let folder = tempfile::tempdir().expect("temporary folder");
        for file in std::fs::read_dir(golden).expect("a folder").map(|file| file.expect("a file").path()) {
            std::fs::copy(&file, folder.path().join(file.file_name().expect("a name"))).expect("copied");
        }
        let options = ModelOptions { model: folder.path().display().to_string(), ..ModelOptions::default() };
        let opened = OpenedModel::open(&options).expect("opens");
        let before = opened.describe().expect("hashed").fingerprint;
        let loaded = || {
            let model = ModelPool::new(Arc::new(Silent)).language(&opened).expect("loads");
            model.description().fingerprint.clone()
        };
        assert!(Arc::ptr_eq(&opened.current().expect("there"), &opened.checkpoint));
        assert_eq!(loaded(), before);
        let config = folder.path().join("tokenizer_config.json");
        let text = std::fs::read_to_string(&config).expect("there");
        std::fs::write(&config, text + "\n").expect("written");
        let after = loaded();
        assert_ne!(after, before);
        assert_eq!(after, OpenedModel::open(&options).and_then(|again| again.describe()).expect("opens").fingerprint);
    }
}

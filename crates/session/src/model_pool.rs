//! Models in memory: stages of a plan take turns with them, and so do the models that one method asks.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use probity_lm::{LanguageModel, ModelDescription, TextEncoder};
use probity_report::text::thousands;
use probity_runtime::hub::LocatedModel;
use probity_runtime::{Checkpoint, DeviceChoice, LoadOptions, Model, ModelMemory, TextModel, device_room};

use crate::options::{ByteSize, ModelOptions};
use crate::{Events, Notice, SessionError};

/// Holds the models that were loaded, as many as a third of a memory has room for: the machine's, or a device's own. One
/// is always held, however large it is; the one that was not asked for longest goes first.
pub struct ModelPool {
    events: Arc<dyn Events>,
    /// The one that was asked last stands last.
    entries: Mutex<Vec<PoolEntry>>,
}

/// The share of a memory that weights may take together: as much again stays for keys and values, which
/// take half of what is free when a model is loaded, and for everything else.
const WEIGHTS_SHARE: u64 = 3;

/// A model that is loaded, or why it cannot be.
struct PoolEntry {
    options: ModelOptions,
    loaded: Result<PoolModel, Arc<SessionError>>,
    bytes: u64,
}

/// A model of either kind.
enum PoolModel {
    /// It answers and writes.
    Language(Arc<Model>),
    /// It reads whole texts.
    Encoder(Arc<TextModel>),
}

impl ModelPool {
    /// An empty pool.
    pub fn new(events: Arc<dyn Events>) -> Self {
        Self { events, entries: Mutex::default() }
    }

    /// The language model of these options.
    pub fn language(&self, options: &ModelOptions) -> Result<Arc<Model>, SessionError> {
        let load = |located: &_, load| Ok(PoolModel::Language(Arc::new(Model::load(located, load)?)));
        self.get(options, load, PoolModel::language)
    }

    /// The encoder of these options.
    pub fn encoder(&self, options: &ModelOptions) -> Result<Arc<TextModel>, SessionError> {
        let load = |located: &_, load| Ok(PoolModel::Encoder(Arc::new(TextModel::load(located, load)?)));
        self.get(options, load, PoolModel::encoder)
    }

    fn get<M>(
        &self,
        options: &ModelOptions,
        load: impl Fn(&LocatedModel, LoadOptions) -> Result<PoolModel, SessionError>,
        of_kind: fn(&PoolModel) -> Option<&Arc<M>>,
    ) -> Result<Arc<M>, SessionError> {
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
            let entry = self.load(options, &mut entries, load);
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

    /// Loads a model after those have gone that it leaves no room for.
    fn load(
        &self,
        options: &ModelOptions,
        entries: &mut Vec<PoolEntry>,
        load: impl Fn(&LocatedModel, LoadOptions) -> Result<PoolModel, SessionError>,
    ) -> PoolEntry {
        let mut loaded = || -> Result<PoolModel, SessionError> {
            let located = options.located()?;
            let load_options = options.computing.load_options();
            make_room(entries, &located, load_options);
            let started = Instant::now();
            let loaded = load(&located, load_options)?;
            self.events
                .notice(Notice::Loaded { model: loaded.description(), seconds: started.elapsed().as_secs_f64() });
            match &loaded {
                PoolModel::Language(model) => {
                    self.report_options(load_options, model);
                    self.report_limits(model);
                }
                PoolModel::Encoder(model) if load_options.devices.has_copies() => {
                    let device = &model.config().description.device;
                    let told = format!("an encoder has one copy: on {device} of {}", load_options.devices);
                    self.events.notice(Notice::Message(&told));
                }
                PoolModel::Encoder(_) => {}
            }
            Ok(loaded)
        };
        let loaded = loaded().map_err(Arc::new);
        let bytes = loaded.as_ref().map_or(0, PoolModel::bytes);
        PoolEntry { options: options.clone(), loaded, bytes }
    }

    /// Options that this machine cannot follow.
    fn report_options(&self, options: LoadOptions, model: &Model) {
        let copies = options.devices.copies().len();
        if let Some(threads) = options.threads.filter(|threads| *threads < copies) {
            let told = format!("each copy has one thread at least: {copies} threads, not --compute threads={threads}");
            self.events.notice(Notice::Message(&told));
        }
        let shares = model.memory().shares.iter();
        let least = shares.filter_map(|share| Some((share.free()?, &share.devices))).min();
        if let (Some(budget), Some((free, device))) = (options.cache_budget, least)
            && budget > free
        {
            self.events.notice(Notice::Warning(&format!(
                "--compute cache-budget={} is more than the {} that were free on {device} before the model was loaded; a run \
                 that needs more than is free ends early",
                ByteSize(budget).rounded_up(),
                ByteSize(free).rounded_up()
            )));
        }
    }

    /// What a model cannot be asked.
    fn report_limits(&self, model: &Model) {
        let warn = |text: &str| self.events.notice(Notice::Warning(text));
        if let Some(context) = model.description().context_length.filter(|context| model.token_limit() < *context) {
            let [room, seen] = [model.token_limit(), context].map(|tokens| thousands(tokens as u64));
            let larger = model.cache_needed(context).map(|bytes| ByteSize(bytes).rounded_up());
            let larger = larger.map(|budget| format!(", which takes --compute cache-budget={budget}"));
            let larger = larger.unwrap_or_default();
            warn(&format!(
                "there is room for the keys and values of {room} tokens; longer prompts are too long, though the model \
                 could see {seen}{larger}"
            ));
        }
        model.encoder().tokenizer().cautions().iter().for_each(|caution| warn(caution));
        if let Some(error) = model.encoder().chat_error() {
            warn(&format!("{error}; it can be asked plain prompts only"));
        }
    }
}

impl PoolEntry {
    /// Sets the model to these options, which need no other weights; false where it is at work with others.
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

/// Whether both lie in one memory: that of the machine, or that of devices of one kind.
fn in_one_memory(one: DeviceChoice, other: DeviceChoice) -> bool {
    use DeviceChoice::{CandleCpu, Cpu, Cuda, Metal};
    matches!((one, other), (Cpu | CandleCpu, Cpu | CandleCpu) | (Cuda(_), Cuda(_)) | (Metal, Metal))
}

/// Lets models go from the memory that another one comes to until there is room. Where the system does not say how much
/// there is, all of them.
fn make_room(entries: &mut Vec<PoolEntry>, located: &LocatedModel, options: LoadOptions) {
    let devices = options.devices;
    let room = devices.devices().map(|device| device_room(device).map_or(0, |room| room.total)).min();
    let budget = room.unwrap_or(0) / WEIGHTS_SHARE;
    // A model that cannot be opened is refused when it is loaded.
    let weights = |checkpoint| ModelMemory::new(&checkpoint, options).weights_in_one_memory();
    let needed = Checkpoint::open(located).map_or(0, weights);
    let beside = |entry: &PoolEntry| in_one_memory(entry.options.computing.device.first(), devices.first());
    while let Some(oldest) = entries.iter().position(beside) {
        let held: u64 = entries.iter().filter(|entry| beside(entry)).map(|entry| entry.bytes).sum();
        if held + needed <= budget {
            break;
        }
        entries.remove(oldest);
    }
}

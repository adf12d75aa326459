//! Shared caches, and the settings that answers depend on.

use std::path::Path;
use std::sync::Arc;

use probity_runtime::LoadOptions;
use probity_store::{Answers, Encodings, StoreError};

use crate::ready::{MetricFiles, ReadyStage};

/// The caches shared between runs, as far as a stage uses them.
#[derive(Default)]
pub(crate) struct SharedCache {
    pub(crate) answers: Option<Arc<Answers>>,
    pub(crate) encodings: Option<Arc<Encodings>>,
}

impl SharedCache {
    /// Opens the caches of a stage, creating the folder if missing.
    pub(crate) fn open(ready: &ReadyStage<'_>) -> Result<Self, StoreError> {
        let folder = ready.stage.run.keep.cache.as_deref();
        let has = |is: fn(&MetricFiles) -> bool| ready.for_metrics.iter().any(|model| is(&model.files));
        let asks = ready.stage.asks_model() || has(|files| matches!(files, MetricFiles::Seq2Seq(_)));
        let encodes = has(|files| matches!(files, MetricFiles::Encoder(_)));
        let encodings = folder.filter(|_| encodes).map(Encodings::open_shared).transpose()?;
        Ok(Self { answers: shared_answers(folder.filter(|_| asks))?, encodings: encodings.map(Arc::new) })
    }
}

/// Opens the answers shared between runs in `cache`.
pub fn shared_answers(cache: Option<&Path>) -> Result<Option<Arc<Answers>>, StoreError> {
    cache.map(|folder| Answers::open_shared(folder).map(Arc::new)).transpose()
}

/// Settings that an answer depends on besides the model.
pub fn answer_settings(options: LoadOptions) -> String {
    format!("min_mass:{}", options.min_mass)
}

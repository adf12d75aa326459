//! Where answers are kept, and what they depend on.

use std::path::Path;
use std::sync::Arc;

use probity_runtime::LoadOptions;
use probity_store::{Answers, Encodings, StoreError};

use crate::ready::{MetricFiles, ReadyStage};

/// What runs share, as far as one has a use for it.
#[derive(Default)]
pub(crate) struct SharedCache {
    pub(crate) answers: Option<Arc<Answers>>,
    pub(crate) encodings: Option<Arc<Encodings>>,
}

impl SharedCache {
    /// Of a stage; its folder is made where it is not there.
    pub(crate) fn open(ready: &ReadyStage<'_>) -> Result<Self, StoreError> {
        let folder = ready.stage.run.keep.cache.as_deref();
        let has = |is: fn(&MetricFiles) -> bool| ready.for_metrics.iter().any(|model| is(&model.files));
        let asks = ready.stage.asks_model() || has(|files| matches!(files, MetricFiles::Seq2Seq(_)));
        let encodes = has(|files| matches!(files, MetricFiles::Encoder(_)));
        let encodings = folder.filter(|_| encodes).map(Encodings::open_shared).transpose()?;
        Ok(Self { answers: shared_answers(folder.filter(|_| asks))?, encodings: encodings.map(Arc::new) })
    }
}

/// The answers that runs share in that folder.
pub fn shared_answers(cache: Option<&Path>) -> Result<Option<Arc<Answers>>, StoreError> {
    cache.map(|folder| Answers::open_shared(folder).map(Arc::new)).transpose()
}

/// Settings that an answer depends on besides the model.
pub fn answer_settings(options: LoadOptions) -> String {
    format!("min_mass:{}", options.min_mass)
}

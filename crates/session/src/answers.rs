//! Where answers are kept, and what they depend on.

use std::path::Path;
use std::sync::Arc;

use probity_runtime::LoadOptions;
use probity_store::{Answers, StoreError};

/// The answers that runs share in that folder.
pub fn shared_answers(cache: Option<&Path>) -> Result<Option<Arc<Answers>>, StoreError> {
    cache.map(|folder| Answers::open_shared(folder).map(Arc::new)).transpose()
}

/// Settings that an answer depends on besides the model.
pub fn answer_settings(options: LoadOptions) -> String {
    format!("min_mass:{}", options.min_mass)
}

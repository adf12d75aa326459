//! Helpers for tests.

use std::collections::BTreeMap;

use probity_data::{Candidate, Sample};

/// A sample with candidates `0`, `1`, … and these gold scores for coherence.
pub(crate) fn sample(id: &str, golds: &[f64]) -> Sample {
    let candidate = |(k, gold): (usize, &f64)| Candidate {
        id: k.to_string(),
        text: "t".into(),
        scores: BTreeMap::from([("coherence".to_owned(), *gold)]),
    };
    let candidates = golds.iter().enumerate().map(candidate).collect();
    Sample {
        id: id.into(),
        context: "".into(),
        instruction: None,
        texts: BTreeMap::new(),
        candidates,
        references: Vec::new(),
        preference: None,
    }
}

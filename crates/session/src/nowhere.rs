//! Where rows of a run go that is only rehearsed.

use probity_lm::SinkError;
use probity_methods::RunOutput;
use serde_json::Value;

/// Takes rows and keeps none.
pub(crate) struct Nowhere;

impl RunOutput for Nowhere {
    fn table(&mut self, _: &'static str, _: usize) -> Result<(), SinkError> {
        Ok(())
    }

    fn rows(&mut self, _: &'static str, _: usize, _: Vec<Value>) -> Result<(), SinkError> {
        Ok(())
    }

    fn progress(&mut self, _: usize, _: usize) {}
}

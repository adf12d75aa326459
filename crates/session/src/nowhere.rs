//! Output of rehearsals and dry runs.

use probity_lm::SinkError;
use probity_methods::RunOutput;
use serde_json::Value;

/// Discards rows and passes on the name of each stage.
pub(crate) struct Nowhere<F>(pub(crate) F);

impl<F: FnMut(&'static str) + Send> RunOutput for Nowhere<F> {
    fn table(&mut self, _: &'static str, _: usize) -> Result<(), SinkError> {
        Ok(())
    }

    fn rows(&mut self, _: &'static str, _: usize, _: Vec<Value>) -> Result<(), SinkError> {
        Ok(())
    }

    fn begin_stage(&mut self, stage: &'static str) {
        (self.0)(stage);
    }

    fn progress(&mut self, _: usize, _: usize) {}
}

//! A scripted model for tests of the server. Each character is a token.

use probity_lm::{
    BoxedError, GenerateRequest, GenerateResult, LanguageModel, LmError, ModelDescription, Prompt, Requests,
    ScoreRequest, ScoreResult, ScriptedModel, Sink, Usage,
};

use crate::served::ServedModel;

/// A scripted model. A query whose id begins with `bad` fails its work list.
pub(crate) struct Scripted(pub(crate) ScriptedModel);

impl LanguageModel for Scripted {
    fn description(&self) -> &ModelDescription {
        self.0.description()
    }

    fn score(
        &self,
        requests: &mut Requests<'_, ScoreRequest>,
        sink: &mut Sink<'_, ScoreResult>,
    ) -> Result<Usage, LmError> {
        let requests: Vec<ScoreRequest> = requests.collect();
        if let Some(bad) = requests.iter().find(|request| request.id.starts_with("bad")) {
            return Err(LmError::Request { id: bad.id.clone(), source: "it is bad".into() });
        }
        self.0.score(&mut requests.into_iter(), sink)
    }

    fn generate(
        &self,
        requests: &mut Requests<'_, GenerateRequest>,
        sink: &mut Sink<'_, GenerateResult>,
    ) -> Result<Usage, LmError> {
        self.0.generate(requests, sink)
    }
}

impl ServedModel for Scripted {
    fn encode(&self, prompt: &Prompt) -> Result<Vec<u32>, BoxedError> {
        Ok(prompt.text().chars().map(u32::from).collect())
    }

    fn encode_whole(&self, prompt: &Prompt) -> Result<Vec<u32>, BoxedError> {
        self.encode(prompt)
    }

    fn decode(&self, ids: &[u32]) -> Result<String, BoxedError> {
        Ok(ids.iter().filter_map(|id| char::from_u32(*id)).collect())
    }

    fn token_bytes(&self, id: u32) -> Option<Vec<u8>> {
        Some(self.token_text(id).into_bytes())
    }

    fn token_text(&self, id: u32) -> String {
        char::from_u32(id).map(String::from).unwrap_or_default()
    }

    fn is_end(&self, id: u32) -> bool {
        id == 0
    }

    fn is_token(&self, id: u32) -> bool {
        char::from_u32(id).is_some()
    }

    fn token_limit(&self) -> usize {
        100
    }

    fn check_score(&self, _: &ScoreRequest) -> Result<(), LmError> {
        Ok(())
    }

    fn check_text(&self, _: &GenerateRequest) -> Result<(), LmError> {
        Ok(())
    }
}

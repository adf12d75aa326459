//! Interface of a model for the server.

use probity_lm::{BoxedError, ChatFormat, GenerateRequest, LanguageModel, LmError, Outcome, Prompt, ScoreRequest};
use probity_runtime::Model;

/// A language model with its tokenizer.
pub trait ServedModel: LanguageModel {
    /// Tokenises a prompt.
    fn encode(&self, prompt: &Prompt) -> Result<Vec<u32>, BoxedError>;

    /// Tokenises a prompt for a class head.
    fn encode_whole(&self, prompt: &Prompt) -> Result<Vec<u32>, BoxedError>;

    /// Whether a thought is open where the answer of a chat begins.
    fn opens_thought(&self, _format: &ChatFormat) -> bool {
        false
    }

    /// Whether the chat template mentions this variable.
    fn has_variable(&self, _name: &str) -> bool {
        false
    }

    /// Decodes generated tokens.
    fn decode(&self, ids: &[u32]) -> Result<String, BoxedError>;

    /// Decodes the part of a text that later tokens cannot change.
    fn decode_settled(&self, ids: &[u32]) -> Result<String, BoxedError> {
        self.decode(ids)
    }

    /// Bytes that a token adds to a text, possibly only a part of a character; `None` for special tokens, which add
    /// nothing.
    fn token_bytes(&self, id: u32) -> Option<Vec<u8>>;

    /// Display text of a token: its text, or the name of a special token.
    fn token_text(&self, id: u32) -> String;

    /// Whether the token ends an answer.
    fn is_end(&self, id: u32) -> bool;

    /// Whether this is a valid token id.
    fn is_token(&self, id: u32) -> bool;

    /// Maximum number of tokens of a prompt with its answer.
    fn token_limit(&self) -> usize;

    /// A lower bound on the number of tokens of a prompt and a text, if it is certain without tokenising that they do
    /// not fit.
    fn surely_too_long(&self, _prompt: &Prompt, _text: &str) -> Option<usize> {
        None
    }

    /// Checks a query, which would otherwise fail with its whole work list.
    fn check_score(&self, request: &ScoreRequest) -> Result<(), LmError>;

    /// Checks a text to generate.
    fn check_text(&self, request: &GenerateRequest) -> Result<(), LmError>;
}

impl ServedModel for Model {
    fn encode(&self, prompt: &Prompt) -> Result<Vec<u32>, BoxedError> {
        self.encoder().encode_prompt(prompt).map_err(|error| Box::new(error) as BoxedError)
    }

    fn encode_whole(&self, prompt: &Prompt) -> Result<Vec<u32>, BoxedError> {
        self.encoder().encode_whole_prompt(prompt).map_err(|error| Box::new(error) as BoxedError)
    }

    fn opens_thought(&self, format: &ChatFormat) -> bool {
        self.encoder().opens_thought(format)
    }

    fn has_variable(&self, name: &str) -> bool {
        self.encoder().chat().is_some_and(|template| template.source().contains(name))
    }

    fn decode(&self, ids: &[u32]) -> Result<String, BoxedError> {
        self.encoder().tokenizer().decode(ids).map_err(|error| Box::new(error) as BoxedError)
    }

    fn decode_settled(&self, ids: &[u32]) -> Result<String, BoxedError> {
        self.encoder().tokenizer().decode_settled(ids).map_err(|error| Box::new(error) as BoxedError)
    }

    fn token_bytes(&self, id: u32) -> Option<Vec<u8>> {
        self.encoder().tokenizer().token_bytes(id)
    }

    fn token_text(&self, id: u32) -> String {
        self.encoder().tokenizer().token_text(id)
    }

    fn is_end(&self, id: u32) -> bool {
        self.encoder().tokenizer().ends().contains(&id)
    }

    fn is_token(&self, id: u32) -> bool {
        (id as usize) < self.encoder().tokenizer().vocab_size()
    }

    fn token_limit(&self) -> usize {
        Model::token_limit(self)
    }

    fn surely_too_long(&self, prompt: &Prompt, text: &str) -> Option<usize> {
        match Model::surely_too_long(self, prompt, text) {
            Some(Outcome::TooLong { tokens_needed, .. }) => Some(tokens_needed),
            _ => None,
        }
    }

    fn check_score(&self, request: &ScoreRequest) -> Result<(), LmError> {
        self.check(request)
    }

    fn check_text(&self, request: &GenerateRequest) -> Result<(), LmError> {
        Model::check_text(self, request)
    }
}

//! What a server needs of a model besides its answers.

use probity_lm::{BoxedError, GenerateRequest, LanguageModel, LmError, Outcome, Prompt, ScoreRequest};
use probity_runtime::Model;

/// A language model with its tokenizer.
pub trait ServedModel: LanguageModel {
    /// The tokens of a prompt, as the model sees it.
    fn encode(&self, prompt: &Prompt) -> Result<Vec<u32>, BoxedError>;

    /// The tokens of a prompt that a class head reads.
    fn encode_whole(&self, prompt: &Prompt) -> Result<Vec<u32>, BoxedError>;

    /// The text of generated tokens.
    fn decode(&self, ids: &[u32]) -> Result<String, BoxedError>;

    /// The text of ids that later tokens cannot change.
    fn decode_settled(&self, ids: &[u32]) -> Result<String, BoxedError> {
        self.decode(ids)
    }

    /// The bytes that a token adds to a text, a part of a character where it is one; absent for special tokens, which
    /// add nothing.
    fn token_bytes(&self, id: u32) -> Option<Vec<u8>>;

    /// What a token is called: its text, or a special token's name.
    fn token_text(&self, id: u32) -> String;

    /// Whether the token ends an answer.
    fn is_end(&self, id: u32) -> bool;

    /// Whether the token exists.
    fn is_token(&self, id: u32) -> bool;

    /// Tokens that a prompt with its answer may have.
    fn token_limit(&self) -> usize;

    /// How many tokens a prompt and the text behind it need at least, where these are so many that they need not be cut
    /// to know that there is no room for them.
    fn surely_too_long(&self, _prompt: &Prompt, _text: &str) -> Option<usize> {
        None
    }

    /// Whether that can be asked; the work list would end with the same error.
    fn check_score(&self, request: &ScoreRequest) -> Result<(), LmError>;

    /// Whether that can be continued.
    fn check_text(&self, request: &GenerateRequest) -> Result<(), LmError>;
}

impl ServedModel for Model {
    fn encode(&self, prompt: &Prompt) -> Result<Vec<u32>, BoxedError> {
        self.encoder().encode_prompt(prompt).map_err(|error| Box::new(error) as BoxedError)
    }

    fn encode_whole(&self, prompt: &Prompt) -> Result<Vec<u32>, BoxedError> {
        self.encoder().encode_whole_prompt(prompt).map_err(|error| Box::new(error) as BoxedError)
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

//! State shared by all requests.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use probity_lm::{ChatFormat, Prompt, ThoughtReader};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::api_error::ApiError;
use crate::body::BodyLimit;
use crate::options::ServeOptions;
use crate::queue::Queue;
use crate::served::ServedModel;
use crate::wire::forms::Header;

/// A model, its queue, and the options of the server.
pub(crate) struct App {
    pub(crate) model: Arc<dyn ServedModel>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) options: ServeOptions,
    /// Start time in seconds. Answers report it as their creation time, so that equal requests give equal bytes.
    pub(crate) created: u64,
    /// Version, fingerprint of the model, precision, and the device unless it is the CPU.
    pub(crate) system_fingerprint: String,
    /// Limits on request bodies.
    pub(crate) bodies: BodyLimit,
    /// The `OpenAPI` description.
    pub(crate) openapi: Bytes,
}

impl App {
    pub(crate) fn new(model: Arc<dyn ServedModel>, options: ServeOptions) -> Self {
        let description = model.description();
        // Bits differ between kinds of devices.
        let device = if description.device == "cpu" { String::new() } else { format!("-{}", description.device) };
        let system_fingerprint = format!(
            "probity-{}-{}-{}{device}",
            env!("CARGO_PKG_VERSION"),
            description.fingerprint.get(..12).unwrap_or(&description.fingerprint),
            description.precision.as_str()
        );
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self {
            queue: Arc::new(Queue::new(options.max_waiting)),
            created: since.map_or(0, |since| since.as_secs()),
            bodies: BodyLimit::new(options.max_body),
            openapi: crate::openapi::description(&options).to_string().into(),
            model,
            options,
            system_fingerprint,
        }
    }

    /// Deadline of a request that arrives now.
    pub(crate) fn deadline(&self) -> Instant {
        // Limited to about a century, which clocks can add.
        Instant::now() + self.options.timeout.min(Duration::from_secs(3_000_000_000))
    }

    /// Common fields of each part of an answer.
    pub(crate) fn header(&self, kind: &str, object: &'static str, body: &[u8]) -> Header {
        Header {
            id: Self::answer_id(kind, body),
            object,
            created: self.created,
            model: self.options.name.clone(),
            system_fingerprint: self.system_fingerprint.clone(),
        }
    }

    /// Id of an answer, derived from the request's content.
    fn answer_id(kind: &str, body: &[u8]) -> String {
        let hash = Sha256::new().chain_update(kind).chain_update(body).finalize();
        let mut id = format!("{kind}-");
        for byte in hash.iter().take(12) {
            let _ = write!(id, "{byte:02x}");
        }
        id
    }

    /// Rejects a request for another model.
    pub(crate) fn check_model(&self, asked: Option<&String>) -> Result<(), ApiError> {
        match asked {
            Some(name) if *name != self.options.name => Err(self.no_model(name)),
            _ => Ok(()),
        }
    }

    /// A chat in the format of the server and the request. `is_free_text`: the answer is neither a label nor
    /// constrained.
    pub(crate) fn formatted(&self, prompt: Prompt, is_free_text: bool) -> Prompt {
        let Prompt::Chat { messages, answer_prefix, format } = prompt else { return prompt };
        let mut chat = self.options.chat.clone();
        chat.variables.extend(format.variables);
        let thought = chat.thought_before(self.model.description().thinking.as_ref(), is_free_text);
        Prompt::Chat { messages, answer_prefix, format: ChatFormat { thought, variables: chat.variables } }
    }

    /// Splits answers to a chat into thought and answer; `None` for a model that does not think, and for other prompts.
    pub(crate) fn thought_reader(&self, prompt: &Prompt) -> Option<ThoughtReader> {
        let Prompt::Chat { format, .. } = prompt else { return None };
        let style = self.model.description().thinking.as_ref()?;
        Some(ThoughtReader::new(style, self.model.opens_thought(format)))
    }

    /// The error for an unknown model.
    pub(crate) fn no_model(&self, name: &str) -> ApiError {
        let name: String = name.chars().take(80).collect();
        let message = format!("unknown model `{name}`; this server has `{}`", self.options.name);
        let mut error = ApiError::new(axum::http::StatusCode::NOT_FOUND, message).with_code("model_not_found");
        error.detail.param = Some("model".to_owned());
        error
    }
}

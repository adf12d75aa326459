//! What goes over the wire: requests as they are read, responses as they are written. The description of the endpoints
//! is made of these types.

pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod forms;
mod logprobs;
pub(crate) mod models;
pub(crate) mod score;
pub(crate) mod text;
mod unhonoured;

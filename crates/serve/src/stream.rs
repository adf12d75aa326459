//! Streamed answers: server-sent events (SSE).

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use hyper::body::Frame;
use probity_lm::{TextPart, ThoughtReader};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::answers::too_late;
use crate::api_error::{ApiError, ErrorBody};
use crate::app::App;
use crate::queue::TextEvent;
use crate::wire::text::{DoneText, Event, WrittenText};

/// Number of buffered events for a slow client.
const AHEAD: usize = 64;

/// Response body of events.
struct EventBody(mpsc::Receiver<Bytes>);

impl hyper::body::Body for EventBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|event| event.map(|event| Ok(Frame::data(event))))
    }
}

/// Why a stream ends early.
pub(crate) enum StreamEnd {
    /// The client has disconnected.
    Left,
    /// The answer failed.
    Failed(ApiError),
}

impl From<ApiError> for StreamEnd {
    fn from(error: ApiError) -> Self {
        Self::Failed(error)
    }
}

impl From<serde_json::Error> for StreamEnd {
    fn from(error: serde_json::Error) -> Self {
        Self::Failed(ApiError::model(error.to_string()))
    }
}

/// Sender of a stream's events.
#[derive(Clone)]
pub(crate) struct EventSender {
    sender: mpsc::Sender<Bytes>,
    deadline: Instant,
}

impl EventSender {
    /// Sends an event as JSON.
    pub(crate) async fn send(&self, event: impl Serialize + Send) -> Result<(), StreamEnd> {
        let event = Bytes::from(format!("data: {}\n\n", serde_json::to_string(&event)?));
        // Stop sending to a client that does not read before the deadline.
        let sent = tokio::time::timeout_at(self.deadline, self.sender.send(event)).await;
        if matches!(sent, Ok(Ok(()))) { Ok(()) } else { Err(StreamEnd::Left) }
    }
}

/// A streamed response. `write` sends its events and returns the event with the usage, sent if `include_usage`.
pub(crate) fn stream<F, W, U>(app: &Arc<App>, include_usage: bool, write: W) -> Response
where
    W: FnOnce(EventSender) -> F,
    F: Future<Output = Result<U, StreamEnd>> + Send + 'static,
    U: Serialize + Send,
{
    let (sender, receiver) = mpsc::channel(AHEAD);
    let out = EventSender { sender, deadline: app.deadline() };
    let written = write(out.clone());
    tokio::spawn(async move {
        let ended = match written.await {
            Ok(usage) if include_usage => out.send(usage).await,
            Ok(_) => Ok(()),
            Err(StreamEnd::Failed(error)) => out.send(ErrorBody { error: error.detail }).await,
            Err(StreamEnd::Left) => return,
        };
        if ended.is_ok() {
            let _ = out.sender.send(Bytes::from_static(b"data: [DONE]\n\n")).await;
        }
    });
    let mut response = Response::new(Body::new(EventBody(receiver)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// A text that is generated.
pub(crate) struct OpenText {
    /// Text to send before the first event.
    pub(crate) before: String,
    pub(crate) events: mpsc::UnboundedReceiver<TextEvent>,
    /// Keeps its thought apart.
    pub(crate) reader: Option<ThoughtReader>,
}

/// Texts sent as they are generated.
pub(crate) struct Streamed<'a> {
    pub(crate) app: &'a App,
    pub(crate) out: &'a EventSender,
    pub(crate) stops: &'a [String],
    /// Field of the prompts, for errors.
    pub(crate) param: &'a str,
    pub(crate) deadline: Instant,
}

impl Streamed<'_> {
    /// Sends the texts' new parts as events made by `encode`. Returns the number of tokens.
    pub(crate) async fn all<C: Serialize + Send>(
        &self,
        texts: Vec<OpenText>,
        encode: impl Fn(Event<'static>) -> C + Send + Sync,
    ) -> Result<usize, StreamEnd> {
        let mut open = Vec::with_capacity(texts.len());
        for (index, OpenText { before, events, reader }) in texts.into_iter().enumerate() {
            if !before.is_empty() {
                self.out.send(encode(Event::Grown(index, before))).await?;
            }
            open.push(Some((events, GrowingText { stops: self.stops, ids: Vec::new(), sent: String::new(), reader })));
        }
        let mut tokens = 0;
        while let Some((index, event)) = self.next(&mut open).await? {
            let Some((_, text)) = &mut open[index] else { continue };
            match event {
                TextEvent::Grown(ids) => {
                    if let Some(news) = text.grow(&ids, |ids| self.app.model.decode_settled(ids).ok()) {
                        for event in text.events(index, news) {
                            self.out.send(encode(event)).await?;
                        }
                    }
                }
                TextEvent::Done(result) => {
                    let written = WrittenText::from_result(result.map_err(ApiError::model)?, self.param)?;
                    tokens += written.ids.len();
                    let rest = text.rest(&written.text);
                    let (thought, text) = split(text.reader.take(), rest);
                    let done = DoneText { index, text, thought, finish: written.reason(), logprobs: None };
                    self.out.send(encode(Event::Done(done))).await?;
                    open[index] = None;
                }
            }
        }
        Ok(tokens)
    }

    /// The next event of any text; `None` when all are done.
    async fn next(
        &self,
        open: &mut [Option<(mpsc::UnboundedReceiver<TextEvent>, GrowingText<'_>)>],
    ) -> Result<Option<(usize, TextEvent)>, StreamEnd> {
        if open.iter().all(Option::is_none) {
            return Ok(None);
        }
        let ready = std::future::poll_fn(|context| {
            for (index, text) in open.iter_mut().enumerate() {
                let Some((events, _)) = text else { continue };
                if let Poll::Ready(event) = events.poll_recv(context) {
                    return Poll::Ready(event.map(|event| (index, event)));
                }
            }
            Poll::Pending
        });
        tokio::select! {
            event = ready => Ok(Some(event.ok_or_else(ApiError::gone)?)),
            // Detects a client that disconnects between events.
            () = self.out.sender.closed() => Err(StreamEnd::Left),
            () = tokio::time::sleep_until(self.deadline) => Err(too_late().into()),
        }
    }
}

/// The thought and the answer of a text, or of its rest.
pub(crate) fn split(reader: Option<ThoughtReader>, text: String) -> (Option<String>, String) {
    match reader {
        Some(reader) => reader.split(&text),
        None => (None, text),
    }
}

/// A partially generated text.
struct GrowingText<'a> {
    stops: &'a [String],
    ids: Vec<u32>,
    sent: String,
    reader: Option<ThoughtReader>,
}

impl GrowingText<'_> {
    /// The new text for these tokens, without parts of characters and without text that a stop sequence could still
    /// remove.
    fn grow(&mut self, ids: &[u32], decode: impl Fn(&[u32]) -> Option<String>) -> Option<String> {
        self.ids.extend_from_slice(ids);
        let text = decode(&self.ids)?;
        let whole = text.trim_end_matches('\u{fffd}');
        let sure = &whole[..whole.len() - held_back(whole, self.stops)];
        let news = sure.strip_prefix(self.sent.as_str()).filter(|news| !news.is_empty())?.to_owned();
        self.sent.push_str(&news);
        Some(news)
    }

    /// New text as events, thoughts apart.
    fn events(&mut self, index: usize, news: String) -> Vec<Event<'static>> {
        let Some(reader) = &mut self.reader else { return vec![Event::Grown(index, news)] };
        let event = |part| match part {
            TextPart::Thought(text) => Event::Thought(index, text),
            TextPart::Answer(text) => Event::Grown(index, text),
        };
        reader.push(&news).into_iter().map(event).collect()
    }

    /// The unsent rest of the complete text.
    fn rest(&self, text: &str) -> String {
        text.strip_prefix(self.sent.as_str()).unwrap_or_default().to_owned()
    }
}

/// Number of bytes at the end of a text that may begin a stop sequence, or follow one.
fn held_back(text: &str, stops: &[String]) -> usize {
    let of_stop = |stop: &String| {
        if let Some(at) = text.find(stop.as_str()) {
            return text.len() - at;
        }
        let ends = |bytes: &usize| stop.is_char_boundary(*bytes) && text.ends_with(&stop[..*bytes]);
        (1..stop.len()).rev().find(ends).unwrap_or(0)
    };
    stops.iter().map(of_stop).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letters(ids: &[u32]) -> String {
        ids.iter().filter_map(|id| char::from_u32(*id)).collect()
    }

    fn pieces(text: &str, stops: &[&str]) -> Vec<String> {
        let stops: Vec<String> = stops.iter().map(|stop| (*stop).to_owned()).collect();
        let mut growing = GrowingText { stops: &stops, ids: Vec::new(), sent: String::new(), reader: None };
        text.chars().filter_map(|letter| growing.grow(&[letter as u32], |ids| Some(letters(ids)))).collect()
    }

    #[test]
    fn nothing_is_told_that_a_stop_sequence_takes_back() {
        assert_eq!(pieces("so stay", &["stop"]), ["so", " ", "sta", "y"].map(str::to_owned));
        assert_eq!(pieces("to stop", &["stop"]).concat(), "to ");
        assert_eq!(pieces("ab\u{fffd}c", &[]), ["a", "b", "\u{fffd}c"].map(str::to_owned));
        let growing = GrowingText { stops: &[], ids: Vec::new(), sent: "to ".into(), reader: None };
        assert_eq!((growing.rest("to be"), growing.rest("")), ("be".to_owned(), String::new()));
    }
}

//! The queue of jobs for the model.

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};
use probity_lm::{GenerateRequest, GenerateResult, ScoreRequest, ScoreResult};
use tokio::sync::{mpsc, oneshot};

/// A query and the channel for its answer, which is closed when the client disconnects.
pub(crate) struct ScoreJob {
    pub(crate) request: ScoreRequest,
    /// Tokens of the prompt, to estimate prefixes shared with other jobs.
    pub(crate) tokens: Vec<u32>,
    pub(crate) reply: oneshot::Sender<Result<ScoreResult, String>>,
}

/// A text to generate and the channel for its events.
pub(crate) struct TextJob {
    pub(crate) request: GenerateRequest,
    /// Whether to send tokens as they are generated.
    pub(crate) is_streamed: bool,
    // Unbounded: it never holds more than the tokens of one text, and the model must not wait for a client.
    pub(crate) events: mpsc::UnboundedSender<TextEvent>,
}

/// Event of a text.
#[derive(Debug)]
pub(crate) enum TextEvent {
    /// New tokens.
    Grown(Vec<u32>),
    /// The result, or an error.
    Done(Box<Result<GenerateResult, String>>),
}

/// The queue is full or closed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct QueueFull;

/// Queries and texts in order of arrival.
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    came: Condvar,
    limit: usize,
}

#[derive(Default)]
struct Waiting {
    scores: VecDeque<ScoreJob>,
    texts: VecDeque<TextJob>,
    is_closed: bool,
}

/// Which kinds of jobs are waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pending {
    pub(crate) scores: bool,
    pub(crate) texts: bool,
}

impl Queue {
    /// An empty queue for `limit` jobs.
    pub(crate) fn new(limit: usize) -> Self {
        Self { waiting: Mutex::default(), came: Condvar::new(), limit }
    }

    /// Adds all jobs or none.
    pub(crate) fn submit(&self, scores: Vec<ScoreJob>, texts: Vec<TextJob>) -> Result<(), QueueFull> {
        let mut waiting = self.waiting.lock();
        if waiting.is_closed {
            return Err(QueueFull);
        }
        let fits = |waiting: &Waiting| {
            let there = waiting.scores.len() + waiting.texts.len();
            // A request larger than the queue is accepted if nothing else is waiting.
            there == 0 || there + scores.len() + texts.len() <= self.limit
        };
        if !fits(&waiting) {
            // Drop jobs of disconnected clients.
            waiting.scores.retain(|job| !job.reply.is_closed());
            waiting.texts.retain(|job| !job.events.is_closed());
            if !fits(&waiting) {
                return Err(QueueFull);
            }
        }
        waiting.scores.extend(scores);
        waiting.texts.extend(texts);
        self.came.notify_one();
        Ok(())
    }

    /// Waits for a job; `None` when the queue is closed and empty.
    pub(crate) fn wait(&self) -> Option<Pending> {
        let mut waiting = self.waiting.lock();
        loop {
            let pending = Pending { scores: !waiting.scores.is_empty(), texts: !waiting.texts.is_empty() };
            if pending.scores || pending.texts {
                return Some(pending);
            }
            if waiting.is_closed {
                return None;
            }
            self.came.wait(&mut waiting);
        }
    }

    /// Whether a query is waiting.
    pub(crate) fn has_scores(&self) -> bool {
        !self.waiting.lock().scores.is_empty()
    }

    /// The next query with a connected client.
    pub(crate) fn next_score(&self) -> Option<ScoreJob> {
        let mut waiting = self.waiting.lock();
        std::iter::from_fn(|| waiting.scores.pop_front()).find(|job| !job.reply.is_closed())
    }

    /// The next text with a connected client.
    pub(crate) fn next_text(&self) -> Option<TextJob> {
        let mut waiting = self.waiting.lock();
        std::iter::from_fn(|| waiting.texts.pop_front()).find(|job| !job.events.is_closed())
    }

    /// Rejects new jobs; waiting ones remain.
    pub(crate) fn close(&self) {
        self.waiting.lock().is_closed = true;
        self.came.notify_all();
    }

    /// Rejects new jobs and drops waiting ones, because the model has stopped.
    pub(crate) fn abandon(&self) {
        let mut waiting = self.waiting.lock();
        *waiting = Waiting { is_closed: true, ..Waiting::default() };
    }
}

#[cfg(test)]
mod tests {
    use probity_lm::{Ask, Prompt};

    use super::*;

    fn job() -> (ScoreJob, oneshot::Receiver<Result<ScoreResult, String>>) {
        let (reply, receiver) = oneshot::channel();
        let request =
            ScoreRequest { id: "x".into(), prompt: Prompt::Tokens(vec![1]), ask: Ask::Continuation("y".into()) };
        (ScoreJob { request, tokens: vec![1], reply }, receiver)
    }

    #[test]
    fn those_whose_clients_have_gone_take_no_place_and_are_not_asked() {
        let queue = Queue::new(2);
        let [(first, _kept), (second, gone), (third, _waits)] = [job(), job(), job()];
        queue.submit(vec![first, second], Vec::new()).expect("room");
        assert_eq!(queue.submit(vec![third], Vec::new()), Err(QueueFull));
        drop(gone);
        let (third, _waits) = job();
        queue.submit(vec![third], Vec::new()).expect("room again");
        assert!(queue.next_score().is_some() && queue.next_score().is_some() && queue.next_score().is_none());
    }

    #[test]
    fn a_closed_queue_takes_nothing_and_ends_when_all_is_taken() {
        let queue = Queue::new(2);
        let (only, _receiver) = job();
        queue.submit(vec![only], Vec::new()).expect("room");
        queue.close();
        assert_eq!(queue.submit(vec![job().0], Vec::new()), Err(QueueFull));
        assert_eq!(queue.wait(), Some(Pending { scores: true, texts: false }));
        queue.next_score();
        assert_eq!(queue.wait(), None);
    }
}

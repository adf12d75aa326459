//! What waits for the model.

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};
use probity_lm::{GenerateRequest, GenerateResult, ScoreRequest, ScoreResult};
use tokio::sync::{mpsc, oneshot};

/// A question, and who waits for the answer. A client that goes away drops the other end.
pub(crate) struct ScoreJob {
    pub(crate) request: ScoreRequest,
    /// The prompt's tokens, by which it is told how much of it is shared with others.
    pub(crate) tokens: Vec<u32>,
    pub(crate) reply: oneshot::Sender<Result<ScoreResult, String>>,
}

/// A text to be written, and who waits for it.
pub(crate) struct TextJob {
    pub(crate) request: GenerateRequest,
    /// Whether tokens are told as they come.
    pub(crate) is_streamed: bool,
    // Not bounded: it never holds more than the tokens of one text, and the model waits for nobody.
    pub(crate) events: mpsc::UnboundedSender<TextEvent>,
}

/// What is told of a text.
#[derive(Debug)]
pub(crate) enum TextEvent {
    /// It has these tokens more.
    Grown(Vec<u32>),
    /// It is done, or could not be.
    Done(Box<Result<GenerateResult, String>>),
}

/// There are as many requests waiting as may.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct QueueFull;

/// Questions and texts in the order in which they came.
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

/// Of what kinds there is something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pending {
    pub(crate) scores: bool,
    pub(crate) texts: bool,
}

impl Queue {
    /// An empty one, in which at most so many wait.
    pub(crate) fn new(limit: usize) -> Self {
        Self { waiting: Mutex::default(), came: Condvar::new(), limit }
    }

    /// All of them or none.
    pub(crate) fn submit(&self, scores: Vec<ScoreJob>, texts: Vec<TextJob>) -> Result<(), QueueFull> {
        let mut waiting = self.waiting.lock();
        if waiting.is_closed {
            return Err(QueueFull);
        }
        let fits = |waiting: &Waiting| {
            let there = waiting.scores.len() + waiting.texts.len();
            // A request that is larger than the queue is taken where nothing else waits.
            there == 0 || there + scores.len() + texts.len() <= self.limit
        };
        if !fits(&waiting) {
            // Those whose clients have gone take no place.
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

    /// Waits until there is something; absent when it is closed and nothing is left.
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

    /// Whether a question waits.
    pub(crate) fn has_scores(&self) -> bool {
        !self.waiting.lock().scores.is_empty()
    }

    /// The next question that somebody waits for.
    pub(crate) fn next_score(&self) -> Option<ScoreJob> {
        let mut waiting = self.waiting.lock();
        std::iter::from_fn(|| waiting.scores.pop_front()).find(|job| !job.reply.is_closed())
    }

    /// The next text that somebody waits for.
    pub(crate) fn next_text(&self) -> Option<TextJob> {
        let mut waiting = self.waiting.lock();
        std::iter::from_fn(|| waiting.texts.pop_front()).find(|job| !job.events.is_closed())
    }

    /// Takes nothing more; what waits is still answered.
    pub(crate) fn close(&self) {
        self.waiting.lock().is_closed = true;
        self.came.notify_all();
    }

    /// The same, and forgets what waits: nobody is left to answer it.
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

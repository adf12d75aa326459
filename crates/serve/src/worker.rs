//! The thread that owns the model.
//!
//! All jobs that are waiting when the model is free form one work list, so that they run together and share prefixes.
//! New texts join those in progress as soon as there is room. Between two tokens of texts, waiting queries are
//! answered, so they wait for one pass at most. In turn, texts get as much time as the previous round of queries took,
//! so that many queries cannot starve them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use probity_lm::{GenerateRequest, GenerateResult, LiveTexts, LmError, ScoreRequest, ScoreResult, SinkError};
use tokio::sync::oneshot;

use crate::queue::{Queue, TextEvent, TextJob};
use crate::served::ServedModel;

/// Maximum number of query tokens in a round, without prefixes shared with earlier queries. Then texts and later
/// queries have their turn.
const ROUND_TOKENS: usize = 16 << 10;
/// Number of earlier queries searched for shared prefixes.
const NEIGHBOURS: usize = 4;

/// Runs jobs until the queue is closed and empty.
pub(crate) fn work(model: &dyn ServedModel, queue: &Queue) {
    while let Some(pending) = queue.wait() {
        if pending.scores {
            score_round(model, queue);
        }
        if pending.texts {
            let mut texts = OpenTexts {
                model,
                queue,
                open: BTreeMap::new(),
                given: 0,
                scored: Duration::ZERO,
                since: Instant::now(),
            };
            if let Err(error) = model.generate_live(&mut texts) {
                texts.fail(&error);
            }
        }
    }
}

/// Channel for an answer.
type Reply = oneshot::Sender<Result<ScoreResult, String>>;

/// A round of queries.
struct Round<'q> {
    queue: &'q Queue,
    /// Prompts of recent queries.
    neighbours: Vec<Vec<u32>>,
    tokens: usize,
    open: Vec<Option<(ScoreRequest, Reply)>>,
}

impl Round<'_> {
    fn next(&mut self) -> Option<ScoreRequest> {
        if self.tokens >= ROUND_TOKENS {
            return None;
        }
        let job = self.queue.next_score()?;
        let alike = |other: &Vec<u32>| other.iter().zip(&job.tokens).take_while(|(a, b)| a == b).count();
        let shared = self.neighbours.iter().map(alike).max().unwrap_or(0);
        // Allowance for the tokens after the prompt.
        self.tokens += job.tokens.len() - shared + 8;
        if self.neighbours.len() == NEIGHBOURS {
            self.neighbours.remove(0);
        }
        self.neighbours.push(job.tokens);
        self.open.push(Some((job.request.clone(), job.reply)));
        Some(job.request)
    }

    fn answer(&mut self, index: usize, result: Result<ScoreResult, String>) {
        if let Some((_, reply)) = self.open[index].take() {
            // The client may have disconnected.
            let _ = reply.send(result);
        }
    }
}

/// Answers waiting queries, and those that arrive in the meantime.
fn score_round(model: &dyn ServedModel, queue: &Queue) {
    let round = Mutex::new(Round { queue, neighbours: Vec::new(), tokens: 0, open: Vec::new() });
    let failed = model.score(&mut std::iter::from_fn(|| round.lock().next()), &mut |index, result| {
        round.lock().answer(index, Ok(result));
        Ok(())
    });
    if let Err(error) = failed {
        one_by_one(model, round.into_inner().open, &error);
    }
}

/// After a query has failed the work list, runs the others one by one.
fn one_by_one(model: &dyn ServedModel, open: Vec<Option<(ScoreRequest, Reply)>>, error: &LmError) {
    for (request, reply) in open.into_iter().flatten() {
        let answer = match model.score_all(std::slice::from_ref(&request)) {
            Ok(mut results) => results.pop().ok_or_else(|| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let _ = reply.send(answer);
    }
}

/// Texts in progress.
struct OpenTexts<'a> {
    model: &'a dyn ServedModel,
    queue: &'a Queue,
    /// Jobs by position, with the number of tokens sent.
    open: BTreeMap<usize, (TextJob, usize)>,
    given: usize,
    /// Duration of the last round of queries, and when it ended.
    scored: Duration,
    since: Instant,
}

impl OpenTexts<'_> {
    fn fail(self, error: &LmError) {
        for (job, _) in self.open.into_values() {
            let _ = job.events.send(TextEvent::Done(Box::new(Err(error.to_string()))));
        }
    }
}

impl LiveTexts for OpenTexts<'_> {
    fn next(&mut self) -> Option<GenerateRequest> {
        let job = self.queue.next_text()?;
        let request = job.request.clone();
        self.open.insert(self.given, (job, 0));
        self.given += 1;
        Some(request)
    }

    fn grown(&mut self, place: usize, ids: &[u32]) -> bool {
        let Some((job, told)) = self.open.get_mut(&place) else { return false };
        if job.is_streamed && ids.len() > *told {
            let news = TextEvent::Grown(ids[*told..].to_vec());
            *told = ids.len();
            return job.events.send(news).is_ok();
        }
        !job.events.is_closed()
    }

    fn pause(&mut self) -> Result<(), SinkError> {
        if self.since.elapsed() >= self.scored && self.queue.has_scores() {
            let started = Instant::now();
            score_round(self.model, self.queue);
            self.scored = started.elapsed();
            self.since = Instant::now();
        }
        Ok(())
    }

    fn done(&mut self, place: usize, result: GenerateResult) -> Result<(), SinkError> {
        if let Some((job, _)) = self.open.remove(&place) {
            let _ = job.events.send(TextEvent::Done(Box::new(Ok(result))));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use probity_lm::{Ask, Finish, Outcome, Prompt, ScriptedModel};
    use tokio::sync::mpsc;

    use super::*;
    use crate::queue::ScoreJob;
    use crate::testing::Scripted;

    fn question(id: &str) -> (ScoreJob, oneshot::Receiver<Result<ScoreResult, String>>) {
        let (reply, receiver) = oneshot::channel();
        let (prompt, ask) = (Prompt::Text(id.to_owned()), Ask::Continuation("to be".into()));
        (ScoreJob { request: ScoreRequest { id: id.to_owned(), prompt, ask }, tokens: vec![1, 2, 3], reply }, receiver)
    }

    fn text(id: &str) -> (TextJob, mpsc::UnboundedReceiver<TextEvent>) {
        let (events, receiver) = mpsc::unbounded_channel();
        let request = GenerateRequest::greedy(id, Prompt::Text(id.to_owned()), 5);
        (TextJob { request, is_streamed: true, events }, receiver)
    }

    fn written(text: &str) -> GenerateResult {
        GenerateResult {
            text: text.to_owned(),
            finish: Some(Finish::EndOfTurn),
            ..GenerateResult::without_text(Outcome::Scored, 3)
        }
    }

    #[test]
    fn a_question_that_ends_its_list_leaves_the_others_their_answers() {
        let model = Scripted(ScriptedModel::from_probabilities(|_| Vec::new()));
        let queue = Queue::new(9);
        let [(first, mut a), (bad, mut b), (last, mut c)] = ["a", "bad", "c"].map(question);
        queue.submit(vec![first, bad, last], Vec::new()).expect("room");
        queue.close();
        work(&model, &queue);
        assert_eq!(a.try_recv().expect("answered"), c.try_recv().expect("answered"));
        assert!(b.try_recv().expect("answered").is_err_and(|why| why.contains("it is bad")));
    }

    #[test]
    fn questions_are_answered_between_texts_and_nobody_is_asked_for_whoever_has_left() {
        let queue = Arc::new(Queue::new(9));
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let (asked, wrote) = (told.clone(), told.clone());
        let of_text = queue.clone();
        let (late, answers) = question("late");
        let (late, answers) = (Mutex::new(Some(late)), Mutex::new(answers));
        let model = ScriptedModel::from_results(move |request| {
            asked.lock().push(request.id.clone());
            ScoreResult { outcome: Outcome::Empty, prompt_tokens: 0, answer: None }
        });
        let model = Scripted(model.with_generation(move |request| {
            wrote.lock().push(request.id.clone());
            // It arrives while the first text is generated.
            if let Some(late) = late.lock().take() {
                of_text.submit(vec![late], Vec::new()).expect("room");
            }
            written(&request.id)
        }));
        let [(one, mut events), (gone, receiver), (two, _waits)] = ["one", "gone", "two"].map(text);
        drop(receiver);
        queue.submit(Vec::new(), vec![one, gone, two]).expect("room");
        // In production another thread closes the queue; here it closes when the late query is answered.
        let ends = queue.clone();
        let closing = std::thread::spawn(move || {
            let mut answers = answers.into_inner();
            while answers.try_recv().is_err() {
                std::thread::yield_now();
            }
            ends.close();
        });
        work(&model, &queue);
        closing.join().expect("answered");
        assert_eq!(*told.lock(), ["one", "late", "two"]);
        let Ok(TextEvent::Done(result)) = events.try_recv() else { panic!("nothing was reported") };
        assert_eq!(result.map(|result| result.text), Ok("one".to_owned()));
    }
}

//! Work lists that exceed memory: requests are held and run one window at a time.

use std::collections::VecDeque;

use probity_lm::{LmError, Requests, Sink, Usage};

use crate::Model;

/// An item of a window.
pub(crate) trait Windowed {
    /// The prompt's tokens.
    fn tokens(&self) -> &[u32];

    /// Tokens held in memory for it.
    fn held_tokens(&self) -> usize;

    /// Maximum tokens to compute after the prompt.
    fn answer_tokens(&self) -> usize;
}

/// Length of the common prefix of two prompts in tokens.
pub(crate) fn shared_tokens<T: Windowed>(a: &T, b: &T) -> usize {
    a.tokens().iter().zip(b.tokens()).take_while(|(a, b)| a == b).count()
}

/// Overhead of a request besides its tokens, in tokens.
const OVERHEAD: usize = 64;

/// Splits a list into windows of `limit` to twice as many tokens, where neighbours share the least. Prompts with a long
/// common prefix are adjacent in a work list and so run together. A list of less than twice the limit is one window.
struct WindowCutter<T> {
    limit: usize,
    waiting: VecDeque<T>,
    tokens: usize,
}

impl<T: Windowed> WindowCutter<T> {
    fn new(limit: usize) -> Self {
        Self { limit: limit.max(1), waiting: VecDeque::new(), tokens: 0 }
    }

    /// The next window of items from `pull`; empty at the end.
    fn next<E>(&mut self, pull: &mut dyn FnMut() -> Result<Option<T>, E>) -> Result<Vec<T>, E> {
        while self.tokens < 2 * self.limit {
            let Some(item) = pull()? else {
                self.tokens = 0;
                return Ok(self.waiting.drain(..).collect());
            };
            self.tokens += item.held_tokens() + OVERHEAD;
            self.waiting.push_back(item);
        }
        let window: Vec<T> = self.waiting.drain(..self.cut()).collect();
        self.tokens -= window.iter().map(|item| item.held_tokens() + OVERHEAD).sum::<usize>();
        Ok(window)
    }

    /// Number of items before the split: the last position beyond the limit at which the fewest tokens are shared.
    fn cut(&self) -> usize {
        let mut tokens = 0;
        let mut best = (usize::MAX, self.waiting.len());
        for (place, (before, after)) in self.waiting.iter().zip(self.waiting.iter().skip(1)).enumerate() {
            tokens += before.held_tokens() + OVERHEAD;
            let shared = shared_tokens(before, after);
            if tokens >= self.limit && shared <= best.0 {
                best = (shared, place + 1);
            }
        }
        best.1
    }
}

/// Answers a window through a sink.
type AnswerWindow<'a, T, A> = dyn FnMut(Vec<T>, &mut Sink<'_, A>) -> Result<Usage, LmError> + 'a;

impl Model {
    /// Runs a work list one window at a time. `hold` returns the item for a request, or its result if there is nothing
    /// to compute. `run` answers a window.
    pub(crate) fn in_windows<R, T: Windowed, A>(
        &self,
        requests: &mut Requests<'_, R>,
        sink: &mut Sink<'_, A>,
        hold: &dyn Fn(usize, R) -> Result<Result<T, A>, LmError>,
        run: &mut AnswerWindow<'_, T, A>,
    ) -> Result<Usage, LmError> {
        let mut usage = Usage::default();
        let (mut windows, mut requests) = (WindowCutter::new(self.options().window_tokens), requests.enumerate());
        loop {
            let window = windows.next(&mut || {
                for (index, request) in requests.by_ref() {
                    match hold(index, request)? {
                        Ok(held) => return Ok(Some(held)),
                        // Sent immediately, because there is nothing to compute.
                        Err(result) => {
                            self.progress().pass();
                            sink(index, result).map_err(LmError::Sink)?;
                        }
                    }
                }
                Ok(None)
            })?;
            if window.is_empty() {
                return Ok(usage);
            }
            usage += run(window, sink)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    impl Windowed for Vec<u32> {
        fn tokens(&self) -> &[u32] {
            self
        }

        fn held_tokens(&self) -> usize {
            self.len()
        }

        fn answer_tokens(&self) -> usize {
            1
        }
    }

    fn windows(items: &[Vec<u32>], limit: usize) -> Vec<Vec<Vec<u32>>> {
        let mut windows = WindowCutter::new(limit);
        let mut items = items.iter().cloned();
        let mut all = Vec::new();
        loop {
            let Ok(window) = windows.next(&mut || Ok::<_, Infallible>(items.next()));
            if window.is_empty() {
                return all;
            }
            all.push(window);
        }
    }

    /// `groups` contexts, each with `each` prompts.
    fn list(groups: u32, each: u32) -> Vec<Vec<u32>> {
        let prompt = |g: u32, k: u32| {
            (0..36)
                .map(move |t| {
                    if t < 4 {
                        t
                    } else if t < 30 {
                        100 * g + t
                    } else {
                        k
                    }
                })
                .collect()
        };
        (0..groups).flat_map(|g| (0..each).map(move |k| prompt(g, k))).collect()
    }

    #[test]
    fn windows_are_cut_between_contexts_and_hold_every_request_in_order() {
        let list = list(10, 7);
        for limit in [1000, 1600, 2500] {
            let windows = windows(&list, limit);
            assert_eq!(windows.concat(), list);
            assert!(windows.len() > 1 && windows.iter().all(|window| window.len() % 7 == 0), "{limit}");
            assert!(windows.iter().all(|window| window.len() * 100 <= 2 * limit), "{limit}");
        }
        assert_eq!(windows(&list, 35_000).len(), 1);
    }

    #[test]
    fn a_request_beyond_the_limit_is_a_window_of_its_own() {
        let list = list(3, 1);
        assert_eq!(windows(&list, 1), list.iter().map(|item| vec![item.clone()]).collect::<Vec<_>>());
        assert!(windows(&[], 5).is_empty());
    }
}

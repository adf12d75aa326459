//! Distributes each window over several devices.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use probity_lm::{BoxedError, LmError, Sink, Usage};
use probity_models::{DeviceChoice, Placement};

use crate::Model;
use crate::replica::Replica;
use crate::window::{Windowed, shared_tokens};

/// Answers a part of a window on one device.
type AnswerPart<'a, T, A> = dyn Fn(&Replica, Vec<T>, &mut Sink<'_, A>) -> Result<Usage, LmError> + Sync + 'a;

/// Splits a window into at most `parts` consecutive parts and minimises the longest. With `shares`, a prefix shared
/// with the previous prompt is computed once per part, and again after a split, so splits between prompts with little
/// in common are preferred. The split depends only on the requests.
fn split<T: Windowed>(mut window: Vec<T>, parts: usize, shares: bool) -> Vec<Vec<T>> {
    let mut cut = Vec::with_capacity(parts);
    for others in (1..parts).rev() {
        let rest = window.split_off(first_part(&window, others, shares));
        cut.push(std::mem::replace(&mut window, rest));
    }
    cut.push(window);
    cut.retain(|part| !part.is_empty());
    cut
}

/// Number of requests in the first part if `others` parts share the rest evenly.
fn first_part<T: Windowed>(window: &[T], others: usize, shares: bool) -> usize {
    let shared = |place: usize| match place.checked_sub(1) {
        Some(before) if shares && place < window.len() => shared_tokens(&window[before], &window[place]),
        _ => 0,
    };
    let shared: Vec<usize> = (0..=window.len()).map(shared).collect();
    let work = |place: usize| window[place].tokens().len() - shared[place] + window[place].answer_tokens();
    let all: usize = (0..window.len()).map(work).sum();
    let (mut before, mut best) = (0, (usize::MAX, window.len()));
    for (place, shared) in shared.iter().enumerate().skip(1) {
        before += work(place - 1);
        // Both multiplied by `others`, to stay with integers.
        let longest = (before * others).max(all - before + shared);
        if longest < best.0 {
            best = (longest, place);
        }
    }
    best.1
}

/// The shared sink, and whether it has rejected a result.
struct SharedSink<'s, 'a, A> {
    sink: &'s mut Sink<'a, A>,
    refused: bool,
}

/// How a part ended.
enum PartEnd {
    Done(Usage),
    Failed(LmError),
    /// Stopped because another part failed.
    Stopped,
}

#[derive(Debug, thiserror::Error, miette::Diagnostic)]
#[error("another device has failed")]
struct OtherFailed;

/// Work of one worker on its part.
type PartWork<'r, W, T, A> = dyn Fn(W, Vec<T>, &mut Sink<'_, A>) -> Result<Usage, LmError> + Sync + 'r;

/// Runs each part on its own thread. If one fails, the others stop after their next result, which the sink still
/// receives. Returns the error of the first part that failed on its own; a panic continues in the caller.
fn run_parts<W: Send, T: Send, A: Send>(
    parts: Vec<(W, Vec<T>)>,
    sink: &mut Sink<'_, A>,
    run: &PartWork<'_, W, T, A>,
) -> Result<Usage, LmError> {
    let shared = Mutex::new(SharedSink { sink, refused: false });
    let stopped = AtomicBool::new(false);
    let work = |worker: W, part: Vec<T>| {
        let mut was_stopped = false;
        let ended = catch_unwind(AssertUnwindSafe(|| {
            run(worker, part, &mut |index, answer| {
                // A sink that panicked receives nothing more.
                let open = shared.lock().ok().filter(|shared| !shared.refused);
                let given = open.map(|mut open| {
                    let given = (open.sink)(index, answer);
                    open.refused = given.is_err();
                    given
                });
                if let Some(Err(error)) = given {
                    return Err(error);
                }
                was_stopped = given.is_none() || stopped.load(Ordering::Acquire);
                if was_stopped { Err(Box::new(OtherFailed)) } else { Ok(()) }
            })
        }));
        if !matches!(ended, Ok(Ok(_))) {
            stopped.store(true, Ordering::Release);
        }
        ended.map(|ended| match ended {
            Ok(usage) => PartEnd::Done(usage),
            Err(_) if was_stopped => PartEnd::Stopped,
            Err(error) => PartEnd::Failed(error),
        })
    };
    let ended: Vec<_> = thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> = parts.into_iter().map(|(worker, part)| scope.spawn(move || work(worker, part))).collect();
        // The work catches its own panics.
        running.into_iter().map(|running| running.join().and_then(|ended| ended)).collect()
    });
    let (mut usage, mut failed) = (Usage::default(), None);
    for part in ended {
        match part.unwrap_or_else(|panic| resume_unwind(panic)) {
            // Each device has its own keys and values, so their peaks do not add up.
            PartEnd::Done(of_part) => usage += of_part,
            PartEnd::Failed(error) => failed = failed.or(Some(error)),
            PartEnd::Stopped => {}
        }
    }
    failed.map_or(Ok(usage), Err)
}

/// Which device failed.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
#[error("{place}: {source}")]
struct DeviceFailed {
    place: Placement,
    #[diagnostic_source]
    source: BoxedError,
}

fn on_device(place: Placement, error: LmError) -> LmError {
    match error {
        LmError::Model(source) => LmError::Model(Box::new(DeviceFailed { place, source })),
        error => error,
    }
}

impl Model {
    /// The parts of a window, each with the replica that answers it.
    pub(crate) fn parts<T: Windowed>(&self, window: Vec<T>) -> Vec<(&Replica, Vec<T>)> {
        let shares = self.schedule(self.first()).share_prefixes;
        self.replicas.iter().zip(split(window, self.replicas.len(), shares)).collect()
    }

    /// Answers a window on all devices.
    pub(crate) fn on_replicas<T: Windowed + Send, A: Send>(
        &self,
        window: Vec<T>,
        sink: &mut Sink<'_, A>,
        answer: &AnswerPart<'_, T, A>,
    ) -> Result<Usage, LmError> {
        if self.replicas.len() == 1 {
            let answered = answer(self.first(), window, sink);
            // On `cpu` there is only one device.
            let is_cpu = self.first().place == DeviceChoice::Cpu.into();
            return answered.map_err(|error| if is_cpu { error } else { on_device(self.first().place.clone(), error) });
        }
        run_parts(self.parts(window), sink, &|replica: &Replica, part, sink| {
            answer(replica, part, sink).map_err(|error| on_device(replica.place.clone(), error))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Barrier;
    use std::time::Duration;

    use probity_lm::SinkError;

    use super::*;

    /// A prompt's tokens, and the number of answer tokens.
    impl Windowed for (Vec<u32>, usize) {
        fn tokens(&self) -> &[u32] {
            &self.0
        }

        fn held_tokens(&self) -> usize {
            self.0.len()
        }

        fn answer_tokens(&self) -> usize {
            self.1
        }
    }

    /// For each size, a separate context of `tokens` tokens with that many prompts.
    fn contexts(sizes: &[u32], tokens: u32) -> Vec<(Vec<u32>, usize)> {
        let prompt = |context: u32, question: u32| {
            let context = (0..tokens).map(|token| 1000 * (context + 1) + token);
            (context.chain([question, question, question]).collect(), 1)
        };
        let sizes = (0..).zip(sizes);
        sizes.flat_map(|(context, count)| (0..*count).map(move |question| prompt(context, question))).collect()
    }

    fn sizes(window: &[(Vec<u32>, usize)], parts: usize, shares: bool) -> Vec<usize> {
        let cut = split(window.to_vec(), parts, shares);
        assert_eq!(cut.concat(), window, "every request once, in order");
        cut.iter().map(Vec::len).collect()
    }

    #[test]
    fn parts_are_cut_between_contexts_and_take_equally_long() {
        assert_eq!(sizes(&contexts(&[10, 10], 100), 2, true), [10, 10]);
        assert_eq!(sizes(&contexts(&[10; 12], 100), 4, true), [30; 4]);
        // A split in the middle would compute a context twice.
        assert_eq!(sizes(&contexts(&[9, 11], 100), 2, true), [9, 11]);
        assert_eq!(sizes(&contexts(&[12, 8], 100), 2, true), [12, 8]);
        // A split in the second context costs less than an idle device.
        assert_eq!(sizes(&contexts(&[40, 40, 40], 20), 2, true), [60, 60]);
        assert_eq!(sizes(&contexts(&[10], 0), 2, true), [5, 5]);
    }

    #[test]
    fn without_sharing_prompts_count_in_full_and_long_answers_count_too() {
        assert_eq!(sizes(&contexts(&[9, 11], 100), 2, false), [10, 10]);
        let mut window = contexts(&[10], 0);
        window[0].1 = 37;
        assert_eq!(sizes(&window, 2, false), [1, 9]);
    }

    #[test]
    fn fewer_requests_than_devices_are_a_part_each() {
        assert_eq!(sizes(&contexts(&[1, 1, 1], 10), 8, true), [1, 1, 1]);
        assert_eq!(sizes(&contexts(&[1], 10), 2, true), [1]);
        assert_eq!(sizes(&contexts(&[5], 10), 1, true), [5]);
    }

    /// Requests per part.
    const EACH: usize = 1000;

    /// Runs two parts in which each answer is ten times its position. Returns the answers received by the sink.
    fn run(
        answer: impl Fn(usize, usize) -> Result<(), LmError> + Sync,
        sink: impl Fn(usize) -> Result<(), SinkError> + Sync,
    ) -> (Result<Usage, LmError>, BTreeMap<usize, usize>) {
        let mut answers = BTreeMap::new();
        let result = run_parts(
            vec![(0, (0..EACH).collect()), (1, (EACH..2 * EACH).collect())],
            &mut |index, value: usize| {
                sink(index)?;
                assert!(answers.insert(index, value).is_none(), "each result once");
                Ok(())
            },
            &|worker, part: Vec<usize>, sink| {
                let mut usage = Usage::default();
                for index in part {
                    answer(worker, index)?;
                    usage.tokens_computed += 1;
                    usage.peak_cache_bytes = usage.peak_cache_bytes.max(index as u64);
                    sink(index, 10 * index).map_err(LmError::Sink)?;
                }
                Ok(usage)
            },
        );
        (result, answers)
    }

    fn model_error(worker: usize) -> LmError {
        on_device(DeviceChoice::Cuda(worker).into(), LmError::Model("out of memory".into()))
    }

    /// Long enough for another thread to fail during a part.
    fn pause() {
        thread::sleep(Duration::from_millis(1));
    }

    #[test]
    fn parts_run_at_the_same_time_and_every_result_comes_under_its_position() {
        // Neither part can start before the other.
        let barrier = Barrier::new(2);
        let together = |_, index: usize| {
            if index.is_multiple_of(EACH) {
                barrier.wait();
            }
            Ok(())
        };
        let (result, answers) = run(together, |_| Ok(()));
        let usage = result.expect("answered");
        assert_eq!((usage.tokens_computed, usage.peak_cache_bytes), (2 * EACH as u64, 2 * EACH as u64 - 1));
        assert_eq!(answers, (0..2 * EACH).map(|index| (index, 10 * index)).collect());
    }

    #[test]
    fn an_error_of_one_device_ends_the_others_and_loses_no_result() {
        let computed = Mutex::new(Vec::new());
        let fails_at = EACH + 3;
        let (result, answers) = run(
            |worker, index| {
                if index == fails_at {
                    return Err(model_error(worker));
                }
                pause();
                computed.lock().expect("no panic").push(index);
                Ok(())
            },
            |_| Ok(()),
        );
        assert_eq!(result.expect_err("failed").to_string(), "the model failed: cuda:1: out of memory");
        let mut computed = computed.into_inner().expect("no panic");
        computed.sort_unstable();
        assert_eq!(answers.keys().copied().collect::<Vec<_>>(), computed);
        assert!(!answers.contains_key(&(EACH - 1)), "the other device ends early");
    }

    #[test]
    fn of_two_errors_that_of_the_first_device_is_reported() {
        let barrier = Barrier::new(2);
        let both = |worker, _| {
            barrier.wait();
            Err(model_error(worker))
        };
        let (result, answers) = run(both, |_| Ok(()));
        assert_eq!(result.expect_err("failed").to_string(), "the model failed: cuda:0: out of memory");
        assert!(answers.is_empty());
    }

    #[test]
    fn a_sink_that_refuses_is_not_given_another_result() {
        let refused = AtomicBool::new(false);
        let (result, answers) = run(
            |_, _| Ok(()),
            |_| {
                assert!(!refused.swap(true, Ordering::AcqRel), "called again");
                Err("the disk is full".into())
            },
        );
        let error = result.expect_err("refused");
        assert!(matches!(&error, LmError::Sink(_)) && error.to_string() == "the disk is full", "{error}");
        assert!(answers.is_empty());
    }

    #[test]
    fn a_panic_goes_on_in_the_caller_and_stops_the_other_device() {
        let answered = Mutex::new(0);
        let on_purpose = |worker, _| {
            if worker == 0 {
                resume_unwind(Box::new("on purpose"));
            }
            pause();
            *answered.lock().expect("no panic here") += 1;
            Ok(())
        };
        let caught = catch_unwind(AssertUnwindSafe(|| run(on_purpose, |_| Ok(()))));
        assert_eq!(caught.expect_err("panics").downcast_ref(), Some(&"on purpose"));
        assert!(answered.into_inner().expect("no panic here") < EACH, "the other device ends early");
    }
}

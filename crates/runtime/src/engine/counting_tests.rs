//! Cost of a work list, measured with a real decoder that counts calls and live spans.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock, Mutex, Weak};

use candle_core::Tensor;
use probity_lm::Sampling;
use probity_models::{HeadRow, KvSpan, LayerTaps, PackedDecoder, PackedOutput, PackedSegment};
use proptest::prelude::*;

use super::behind::BehindText;
use super::generate::{GeneratedText, GenerationVocabulary, TokenPrompt, generate};
use super::golden_tests::{load, token_query};
use super::kept::KeptPrefixes;
use super::scheduler::ScheduleLimits;
use super::token_scores::{ScheduleOptions, TokenQuery, score_tokens};
use super::walk::WalkError;
use crate::constraint::ConstraintError;
use crate::{Drafting, TokenProgress};

#[derive(Default)]
struct Counts {
    tokens: usize,
    rows: usize,
    spans: Vec<Weak<KvSpan>>,
    most_bytes: usize,
    most_segments: usize,
    most_spans: usize,
}

struct Counting {
    model: Box<dyn PackedDecoder>,
    counts: Mutex<Counts>,
}

impl Counting {
    fn new(name: &str) -> Self {
        Self { model: load(name), counts: Mutex::default() }
    }

    /// Counts since the last call.
    fn take(&self) -> Counts {
        std::mem::take(&mut self.counts.lock().expect("one thread"))
    }

    fn watch(&self, spans: &[Arc<KvSpan>]) {
        let mut counts = self.counts.lock().expect("one thread");
        counts.spans.extend(spans.iter().map(Arc::downgrade));
        counts.spans.retain(|span| span.strong_count() > 0);
        let live = counts.spans.iter().filter_map(Weak::upgrade).map(|span| self.model.cache_bytes(span.len())).sum();
        counts.most_bytes = counts.most_bytes.max(live);
    }
}

impl PackedDecoder for Counting {
    fn forward_tapped(
        &self,
        segments: &[PackedSegment],
        taps: &mut LayerTaps<'_>,
    ) -> candle_core::Result<PackedOutput> {
        let output = self.model.forward_tapped(segments, taps)?;
        self.watch(&output.spans);
        let mut counts = self.counts.lock().expect("one thread");
        counts.tokens += segments.iter().map(|segment| segment.tokens.len()).sum::<usize>();
        counts.most_segments = counts.most_segments.max(segments.len());
        counts.most_spans = segments.iter().map(|segment| segment.past.len()).fold(counts.most_spans, usize::max);
        drop(counts);
        Ok(output)
    }

    fn logits(&self, hidden: &Tensor) -> candle_core::Result<Tensor> {
        self.model.logits(hidden)
    }

    fn head(&self, hidden: &Tensor, asked: &[Vec<u32>]) -> candle_core::Result<Vec<HeadRow>> {
        self.counts.lock().expect("one thread").rows += hidden.dim(0)?;
        self.model.head(hidden, asked)
    }

    fn greedy_among(&self, hidden: &Tensor, row: &HeadRow, allowed: &[u32]) -> candle_core::Result<Option<u32>> {
        self.model.greedy_among(hidden, row, allowed)
    }

    fn cache_bytes(&self, tokens: usize) -> usize {
        self.model.cache_bytes(tokens)
    }

    fn idle_rows(&self) -> usize {
        self.model.idle_rows()
    }

    fn join(&self, spans: &[Arc<KvSpan>], len: usize) -> candle_core::Result<Arc<KvSpan>> {
        let joined = self.model.join(spans, len)?;
        self.watch(std::slice::from_ref(&joined));
        Ok(joined)
    }
}

type Bits = Vec<Vec<(u64, bool)>>;

fn scores(model: &Counting, queries: &[TokenQuery], schedule: ScheduleOptions<'_>) -> (Bits, u64) {
    let mut results = vec![Vec::new(); queries.len()];
    let usage = score_tokens(model, queries, schedule, &mut |query, scores| {
        assert!(results[query].is_empty(), "each query once");
        results[query] = scores.scores.iter().map(|s| (s.logprob.to_bits(), s.is_greedy)).collect();
        Ok::<(), std::convert::Infallible>(())
    });
    (results, usage.expect("runs").peak_cache_bytes)
}

fn schedule(tokens: usize, cache: u64, share_prefixes: bool) -> ScheduleOptions<'static> {
    static PROGRESS: LazyLock<TokenProgress> = LazyLock::new(TokenProgress::default);
    ScheduleOptions {
        kept: None,
        limits: ScheduleLimits { tokens, cache },
        share_prefixes,
        drafting: Drafting::Lookup,
        side_by_side: 128,
        progress: &PROGRESS,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn lists_that_go_on_from_what_is_kept_have_the_same_bits(
        lists in prop::collection::vec(
            prop::collection::vec((0usize..3, 1usize..40, prop::collection::vec(0u32..3, 2..6)), 1..6), 2..6),
        spans in 1u64..30,
        tokens in 4usize..60,
    ) {
        let model = Counting::new("qwen2");
        let kept = KeptPrefixes::new(spans * model.cache_bytes(16) as u64);
        for list in lists {
            let sequence = |(text, len, end): &(usize, usize, Vec<u32>)| -> Vec<u32> {
                (0..*len as u32).map(|t| 20 + 40 * *text as u32 + t).chain(end.iter().copied()).collect()
            };
            let query = |(place, item): (usize, &_)| {
                let sequence = sequence(item);
                token_query(&sequence, 1 + place % (sequence.len() - 1), place)
            };
            let queries: Vec<TokenQuery> = list.iter().enumerate().map(query).collect();
            model.take();
            let alone = scores(&model, &queries, schedule(tokens, u64::MAX, true)).0;
            let all = model.take().tokens;
            let schedule = ScheduleOptions { kept: Some(&kept), ..schedule(tokens, u64::MAX, true) };
            prop_assert_eq!(&scores(&model, &queries, schedule).0, &alone);
            prop_assert!(model.take().tokens <= all);
            prop_assert!(kept.bytes() <= spans * model.cache_bytes(16) as u64);
        }
    }
}

#[test]
fn what_was_asked_before_is_not_computed_again() {
    let model = Counting::new("qwen2");
    let kept = KeptPrefixes::new(1 << 30);
    let schedule = ScheduleOptions { kept: Some(&kept), ..schedule(1024, u64::MAX, true) };
    let sequence = |end: u32| -> Vec<u32> { (1..=40).chain([end, end, 7]).collect() };
    let tokens = |ends: &[u32]| {
        let queries: Vec<TokenQuery> =
            ends.iter().enumerate().map(|(place, end)| token_query(&sequence(*end), 42, place)).collect();
        scores(&model, &queries, schedule);
        model.take().tokens
    };
    // After the shared part, the last token is always computed because it is scored.
    assert_eq!([tokens(&[50]), tokens(&[51]), tokens(&[52, 53]), tokens(&[50, 51, 54])], [42, 2, 4, 1 + 1 + 2]);
    // The least recently used go first.
    let few = KeptPrefixes::new(model.cache_bytes(42) as u64 * 4);
    let one = |first: u32| {
        let schedule = ScheduleOptions { kept: Some(&few), ..schedule };
        scores(&model, &[token_query(&(first..first + 43).collect::<Vec<_>>(), 42, 0)], schedule);
        model.take().tokens
    };
    assert_eq!([1, 2, 3, 1, 4, 1, 2].map(one), [42, 42, 42, 1, 42, 1, 42]);
}

#[test]
fn tokens_rows_and_cache_are_what_the_tree_needs() {
    let model = Counting::new("qwen2");
    // A context, and two continuations after each of three candidates; the last two tokens are scored.
    let sequence = |a: u32, b: u32| -> Vec<u32> {
        (1..=40).chain((0..8).map(|t| 50 + 8 * a + t)).chain([100 + b, 7, 9]).collect()
    };
    let pairs = [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)];
    let query = |(request, (a, b)): (usize, &(u32, u32))| token_query(&sequence(*a, *b), 49, request);
    let queries: Vec<TokenQuery> = pairs.iter().enumerate().map(query).collect();
    let (expected, _) = scores(&model, &queries, schedule(512, u64::MAX, true));
    let counts = model.take();
    let seen: BTreeSet<&[u32]> = queries.iter().flat_map(|q| (1..=q.seen.len()).map(|len| &q.seen[..len])).collect();
    let asked: BTreeSet<&[u32]> = queries.iter().flat_map(|q| (49..=q.seen.len()).map(|len| &q.seen[..len])).collect();
    assert_eq!((counts.tokens, counts.rows), (seen.len(), asked.len()));
    assert_eq!((seen.len(), asked.len()), (40 + 3 * 8 + 6 * 2, 6 * 2));
    assert!(counts.spans.iter().all(|span| span.strong_count() == 0), "nothing outlives the walk");

    // One path at a time: context, candidate, continuation.
    let path = [40, 8, 2].map(|len| model.cache_bytes(len)).iter().sum::<usize>();
    let (tight, peak) = scores(&model, &queries, schedule(512, path as u64, true));
    let counts = model.take();
    assert_eq!((tight, counts.tokens), (expected, seen.len()));
    assert_eq!((counts.most_bytes, peak), (path, path as u64), "a node goes with its last child");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn limits_hold_and_change_no_bit(
        sequences in prop::collection::vec(prop::collection::vec(1u32..4, 2..30), 1..14),
        tokens in 1usize..60,
        share in 0.2f64..1.1,
        share_prefixes: bool,
    ) {
        let model = Counting::new("mistral-window");
        let query = |(request, tokens): (usize, &Vec<u32>)| token_query(tokens, 1 + request % (tokens.len() - 1), request);
        let queries: Vec<TokenQuery> = sequences.iter().enumerate().map(query).collect();
        let (expected, peak) = scores(&model, &queries, schedule(4096, u64::MAX, true));
        prop_assert_eq!(model.take().most_bytes as u64, peak);
        let limits = schedule(tokens, (peak as f64 * share) as u64, share_prefixes);
        let (got, peak) = scores(&model, &queries, limits);
        prop_assert_eq!(got, expected);
        prop_assert_eq!(model.take().most_bytes as u64, peak);
    }
}

#[test]
fn as_many_texts_are_generated_side_by_side_as_the_cache_has_room_for() {
    let model = Counting::new("qwen2");
    let prompt = |k: u32| TokenPrompt {
        source: 0,
        tokens: (1..=30).chain([40 + k]).collect(),
        max_tokens: 40,
        stop: Vec::new(),
        sampling: Sampling::Greedy,
        constraint: None,
    };
    let prompts: Vec<Arc<TokenPrompt>> = (0..9).map(prompt).map(Arc::new).collect();
    let vocabulary = GenerationVocabulary {
        decode: &|_| Ok(String::new()),
        ends: &[],
        constrain: &|_| Err(ConstraintError::NoChoice),
    };
    let run = |prompts: &[Arc<TokenPrompt>], cache: u64| {
        let mut texts = vec![Vec::new(); prompts.len()];
        let usage = generate(
            &model,
            prompts,
            &vocabulary,
            schedule(64, cache, true),
            &mut |index: usize, generated: GeneratedText, _: &mut BehindText<'_>| {
                texts[index] = generated.token_ids;
                Ok::<(), WalkError<std::convert::Infallible>>(())
            },
        );
        let peak = usage.expect("runs").peak_cache_bytes;
        let counts = model.take();
        assert!(counts.most_bytes as u64 <= peak && peak <= cache, "{} of {peak} under {cache}", counts.most_bytes);
        // Two of the prompt, full spans of sixteen tokens, and four short ones.
        assert!(counts.most_spans <= 2 + 40 / 16 + 4, "{} spans", counts.most_spans);
        (texts, counts.most_segments, peak)
    };
    let (texts, together, peak) = run(&prompts, 1 << 40);
    assert!(together == 9 && texts.iter().all(|text| text.len() == 40));
    let (fewer, together, _) = run(&prompts, peak / 2);
    assert!(fewer == texts && (2..9).contains(&together), "{together} side by side");
    let (_, _, one) = run(&prompts[..1], 1 << 40);
    let (fewest, together, _) = run(&prompts, one);
    assert!(fewest == texts && together == 1, "{together} side by side");
}

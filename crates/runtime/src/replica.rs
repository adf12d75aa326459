//! Copies of a model's weights, one per device or group of devices.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;

use candle_core::Tensor;
use probity_models::{Compute, HeadRow, KvSpan, LayerTaps, PackedDecoder, PackedOutput, PackedSegment, Placement};

use crate::TokenProgress;
use crate::checkpoint::{Checkpoint, LoadError};
use crate::engine::kept::KeptPrefixes;
use crate::threads::ComputeThreads;

/// A decoder on one device, or on several that share its layers, with its own threads.
pub(crate) struct Replica {
    pub(crate) place: Placement,
    pub(crate) threads: ComputeThreads,
    /// Prefix cache; its keys and values are on the device too.
    pub(crate) kept: Option<KeptPrefixes>,
    decoder: Box<dyn PackedDecoder>,
    /// Shared by all copies.
    progress: Arc<TokenProgress>,
}

/// Loads the weights to all placements concurrently.
pub(crate) fn load_replicas(
    checkpoint: &Checkpoint,
    compute: Compute,
    places: Vec<Placement>,
    threads: Vec<ComputeThreads>,
) -> Result<Vec<Replica>, LoadError> {
    let progress = Arc::<TokenProgress>::default();
    let load = |place: Placement, threads: ComputeThreads| {
        let decoder = threads.load(|| checkpoint.load(compute, place.clone()))?;
        Ok(Replica { place, threads, kept: None, decoder, progress: progress.clone() })
    };
    thread::scope(|scope| {
        let load = &load;
        let loading = places.into_iter().zip(threads).map(|(place, threads)| scope.spawn(|| load(place, threads)));
        let loading: Vec<_> = loading.collect();
        loading.into_iter().map(|loading| loading.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

impl Replica {
    /// Progress of all copies together.
    pub(crate) fn progress(&self) -> &Arc<TokenProgress> {
        &self.progress
    }
}

impl PackedDecoder for Replica {
    fn forward_tapped(
        &self,
        segments: &[PackedSegment],
        taps: &mut LayerTaps<'_>,
    ) -> candle_core::Result<PackedOutput> {
        let output = self.threads.compute(|| self.decoder.forward_tapped(segments, taps))?;
        self.progress.advance(segments.iter().map(|segment| segment.tokens.len()).sum());
        Ok(output)
    }

    fn logits(&self, hidden: &Tensor) -> candle_core::Result<Tensor> {
        self.threads.compute(|| self.decoder.logits(hidden))
    }

    fn head(&self, hidden: &Tensor, asked: &[Vec<u32>]) -> candle_core::Result<Vec<HeadRow>> {
        self.threads.compute(|| self.decoder.head(hidden, asked))
    }

    fn greedy_among(&self, hidden: &Tensor, row: &HeadRow, allowed: &[u32]) -> candle_core::Result<Option<u32>> {
        self.threads.compute(|| self.decoder.greedy_among(hidden, row, allowed))
    }

    fn cache_bytes(&self, tokens: usize) -> usize {
        self.decoder.cache_bytes(tokens)
    }

    fn state_bytes(&self) -> usize {
        self.decoder.state_bytes()
    }

    fn without_states(&self, span: &Arc<KvSpan>) -> Arc<KvSpan> {
        self.decoder.without_states(span)
    }

    fn join(&self, spans: &[Arc<KvSpan>], len: usize) -> candle_core::Result<Arc<KvSpan>> {
        self.decoder.join(spans, len)
    }

    fn idle_rows(&self) -> usize {
        self.decoder.idle_rows()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use candle_core::{Error, Result};
    use probity_lm::{Ask, LabelSet, LanguageModel as _, LmError, Prompt, ScoreRequest, ScoreResult};
    use probity_models::DeviceChoice;
    use probity_store::{Answers, Recorded};

    use super::*;
    use crate::hub::locate;
    use crate::{LoadOptions, Model};

    /// A decoder on a device that runs out of memory after some batches.
    struct Starved {
        decoder: Box<dyn PackedDecoder>,
        batches: AtomicUsize,
    }

    impl PackedDecoder for Starved {
        fn forward_tapped(&self, segments: &[PackedSegment], taps: &mut LayerTaps<'_>) -> Result<PackedOutput> {
            let left = self.batches.try_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
            // The driver's message as returned by candle.
            left.map_err(|_| Error::Msg("DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\")".to_owned()))?;
            self.decoder.forward_tapped(segments, taps)
        }

        fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
            self.decoder.logits(hidden)
        }

        fn head(&self, hidden: &Tensor, asked: &[Vec<u32>]) -> Result<Vec<HeadRow>> {
            self.decoder.head(hidden, asked)
        }

        fn greedy_among(&self, hidden: &Tensor, row: &HeadRow, allowed: &[u32]) -> Result<Option<u32>> {
            self.decoder.greedy_among(hidden, row, allowed)
        }

        fn cache_bytes(&self, tokens: usize) -> usize {
            self.decoder.cache_bytes(tokens)
        }

        fn join(&self, spans: &[Arc<KvSpan>], len: usize) -> Result<Arc<KvSpan>> {
            self.decoder.join(spans, len)
        }

        fn idle_rows(&self) -> usize {
            self.decoder.idle_rows()
        }
    }

    fn model(batches: Option<usize>) -> Model {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens/models/llama");
        let located = locate(folder.to_str().expect("UTF-8")).expect("is there");
        let options = LoadOptions {
            devices: DeviceChoice::CandleCpu.into(),
            token_budget: Some(16),
            window_tokens: 32,
            ..LoadOptions::default()
        };
        let mut model = Model::load(&located, options).expect("loads");
        if let Some(batches) = batches {
            let Replica { place, threads, kept, decoder, progress } = model.replicas.remove(0);
            let decoder = Box::new(Starved { decoder, batches: batches.into() });
            model.replicas.push(Replica { place, threads, kept, decoder, progress });
        }
        model
    }

    fn requests() -> Vec<ScoreRequest> {
        let request = |at: usize| ScoreRequest {
            id: format!("q{at}"),
            prompt: Prompt::Text(format!("the cat of number {at} sat on the {}", "mat ".repeat(1 + at % 5))),
            ask: Ask::Labels(LabelSet::from_words(["A", "B"]).expect("two labels")),
        };
        (0..24).map(request).collect()
    }

    /// Log-probabilities of the labels for each answer received, by position.
    fn ask(model: &Recorded<'_>) -> (Vec<Option<Vec<f64>>>, std::result::Result<(), LmError>) {
        let answers = Mutex::new(vec![None; 24]);
        let ended = model.score(&mut requests().into_iter(), &mut |at, result: ScoreResult| {
            let labels = &result.labels().expect("labels").labels;
            answers.lock().expect("no panic")[at] = Some(labels.iter().map(|label| label.logprob).collect());
            Ok(())
        });
        (answers.into_inner().expect("no panic"), ended.map(drop))
    }

    #[test]
    fn a_run_whose_device_has_no_memory_left_ends_with_an_error_and_goes_on_from_its_answers() {
        let folder = tempfile::tempdir().expect("a folder");
        let answers = || Arc::new(Answers::open(&folder.path().join("answers.sqlite")).expect("opens"));
        let (whole, ended) = ask(&Recorded::new(Arc::new(model(None)), "", None, None).expect("nothing kept"));
        ended.expect("answers");
        let kept = answers();
        let (some, ended) = ask(&Recorded::new(Arc::new(model(Some(9))), "", Some(&kept), None).expect("opens"));
        drop(kept);
        let Err(LmError::Model(error)) = ended else { panic!("no memory: {ended:?}") };
        let message = error.to_string();
        assert!(message.starts_with("candle-cpu: out of memory: DriverError(CUDA_ERROR_OUT_OF_MEMORY"), "{message}");
        let hint = error.diagnostic_source().and_then(|source| Some(source.help()?.to_string())).expect("a hint");
        assert!(hint.contains("--compute cache-budget") && hint.contains("--resume"), "{hint}");
        let count = some.iter().flatten().count();
        assert!(count > 0 && count < 24, "{count} of 24 in the middle");
        // A second run reuses the existing answers and computes the rest.
        let kept = answers();
        let again = Recorded::new(Arc::new(model(None)), "", Some(&kept), None).expect("opens");
        let (all, ended) = ask(&again);
        ended.expect("answers");
        assert_eq!(again.found(), count, "nothing is lost");
        for ((all, whole), some) in all.iter().zip(&whole).zip(&some) {
            let (all, whole) = (all.as_ref().expect("all of them"), whole.as_ref().expect("all of them"));
            assert!(some.as_ref().is_none_or(|some| some == all), "as it was");
            assert!(all.iter().zip(whole).all(|(a, b)| (a - b).abs() <= 1e-5), "{all:?} and {whole:?}");
        }
    }
}

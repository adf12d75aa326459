//! Clusters units by their embeddings.

use kodama::{Method, linkage};
use probity_lm::{EncoderError, Framed, HiddenStates, TextEncoder};

use crate::{MethodError, Run};

/// The maximum number of units clustered together. All pairs of a block are compared, so a fixed block size keeps time
/// and memory per unit constant.
const BLOCK: usize = 1024;

/// The number of texts embedded between checks whether the run should stop.
const AT_ONCE: usize = 256;

/// The embedding of each text, as in `MiniLM`: the normalised mean of its tokens' last hidden states, including `[CLS]`
/// and `[SEP]`. Texts longer than the encoder's limit are truncated.
pub(super) fn embed(
    encoder: &dyn TextEncoder,
    texts: &[&str],
    run: &mut Run<'_>,
) -> Result<Vec<Vec<f32>>, MethodError> {
    let failed = |source: EncoderError| MethodError::Other { option: Some("encoder"), source: Box::new(source) };
    let (tokenizer, config) = (encoder.tokenizer(), encoder.config());
    let mut vectors = Vec::with_capacity(texts.len());
    for block in texts.chunks(AT_ONCE) {
        run.check()?;
        let ids = tokenizer.tokenize(block).map_err(failed)?;
        let frame = |ids: &Vec<u32>| tokenizer.framing().frame(ids, config.description.context_length);
        let framed: Vec<Framed> = ids.iter().map(frame).collect();
        let sequences: Vec<&[u32]> = framed.iter().map(|one| one.ids.as_slice()).collect();
        let mut found: Vec<Vec<f32>> = vec![Vec::new(); sequences.len()];
        let keep = &mut |place: usize, states: HiddenStates| {
            found[place] = pooled(&states);
            Ok(())
        };
        encoder.hidden_states(&sequences, &[config.layers], keep).map_err(failed)?;
        vectors.extend(found);
    }
    Ok(vectors)
}

fn pooled(states: &HiddenStates) -> Vec<f32> {
    let mut sum = vec![0.0_f32; states.hidden_size];
    for token in states.layer(0).chunks(states.hidden_size) {
        sum.iter_mut().zip(token).for_each(|(sum, value)| *sum += value);
    }
    let norm = sum.iter().map(|value| value * value).sum::<f32>().sqrt();
    if norm > 0.0 {
        for value in &mut sum {
            *value /= norm;
        }
    }
    sum
}

/// The cosine similarity of two embeddings.
pub(super) fn cosine(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum()
}

/// Clusters of at most `most` texts, each sorted, in the order of their first text. Average linkage over 1 − cosine
/// builds a tree; the largest branches within the limit are the clusters. The number of clusters therefore follows from
/// the limit and the texts.
pub(super) fn clusters(vectors: &[&[f32]], most: usize) -> Vec<Vec<usize>> {
    let mut all = Vec::new();
    for (block, vectors) in vectors.chunks(BLOCK).enumerate() {
        let own = cluster_block(vectors, most).into_iter();
        all.extend(own.map(|cluster| cluster.into_iter().map(|place| block * BLOCK + place).collect::<Vec<_>>()));
    }
    all.sort_by_key(|cluster| cluster[0]);
    all
}

fn cluster_block(vectors: &[&[f32]], most: usize) -> Vec<Vec<usize>> {
    let count = vectors.len();
    let mut distances = Vec::with_capacity(count * count.saturating_sub(1) / 2);
    for first in 0..count {
        distances.extend((first + 1..count).map(|second| 1.0 - cosine(vectors[first], vectors[second])));
    }
    let tree = linkage(&mut distances, count, Method::Average);
    let mut found = Vec::new();
    // The last step joins all; a single text has no steps.
    let mut open = vec![if count > 1 { 2 * count - 2 } else { 0 }];
    while let Some(node) = open.pop() {
        let size = if node < count { 1 } else { tree.steps()[node - count].size };
        if size <= most {
            let mut members = Vec::with_capacity(size);
            let mut below = vec![node];
            while let Some(node) = below.pop() {
                if node < count {
                    members.push(node);
                } else {
                    let step = &tree.steps()[node - count];
                    below.extend([step.cluster1, step.cluster2]);
                }
            }
            members.sort_unstable();
            found.push(members);
        } else {
            let step = &tree.steps()[node - count];
            open.extend([step.cluster1, step.cluster2]);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_point_the_same_way_stand_together() {
        let vector = |angle: f32| vec![angle.cos(), angle.sin()];
        let vectors: Vec<Vec<f32>> = [0.0, 1.5, 0.12, 1.6, 0.05, 3.0].into_iter().map(vector).collect();
        let vectors: Vec<&[f32]> = vectors.iter().map(Vec::as_slice).collect();
        assert_eq!(clusters(&vectors, 3), [vec![0, 2, 4], vec![1, 3, 5]]);
        assert_eq!(clusters(&vectors, 2), [vec![0, 4], vec![1, 3], vec![2], vec![5]]);
        assert_eq!(clusters(&vectors, 9), [vec![0, 1, 2, 3, 4, 5]]);
        assert_eq!(clusters(&vectors[..1], 3), [vec![0]]);
        assert!(clusters(&[], 3).is_empty());
    }

    #[test]
    fn many_texts_are_clustered_block_by_block() {
        let vectors: Vec<Vec<f32>> = (0..2100).map(|k| vec![(k as f32).cos(), (k as f32).sin()]).collect();
        let vectors: Vec<&[f32]> = vectors.iter().map(Vec::as_slice).collect();
        let found = clusters(&vectors, 8);
        let mut all: Vec<usize> = found.iter().flatten().copied().collect();
        all.sort_unstable();
        assert_eq!(all, (0..2100).collect::<Vec<_>>());
        assert!(
            found.iter().all(|cluster| cluster.len() <= 8 && cluster[0] / BLOCK == cluster[cluster.len() - 1] / BLOCK)
        );
    }
}

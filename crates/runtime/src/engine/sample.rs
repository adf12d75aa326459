//! Sampling from the model's distribution.

use probity_lm::SamplingLimits;

/// Samples from softmax(logits / temperature) within the limits: the first token in id order whose cumulative
/// probability exceeds `uniform`. At least one logit must be finite; −∞ means impossible.
pub(crate) fn sample(logits: &[f32], temperature: f64, limits: SamplingLimits, uniform: f64) -> u32 {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    // In f64 with libm's exponential, so that a seed gives the same token on every machine.
    let mut weights: Vec<f64> =
        logits.iter().map(|l| libm::exp((f64::from(*l) - f64::from(max)) / temperature)).collect();
    limit(&mut weights, limits);
    let mut left = uniform * weights.iter().sum::<f64>();
    let mut last = 0;
    for (id, weight) in weights.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
        // A remainder from rounding goes to the last possible token.
        last = id;
        if left < *weight {
            break;
        }
        left -= weight;
    }
    last as u32
}

/// Sets the weight of tokens outside the limits to 0. The largest weight is 1.
fn limit(weights: &mut [f64], SamplingLimits { top_k, top_p, min_p }: SamplingLimits) {
    if top_k.is_some() || top_p.is_some() {
        let mut ids: Vec<usize> = (0..weights.len()).filter(|id| weights[*id] > 0.0).collect();
        // Ties go to the lowest id, so that the result depends only on the logits.
        let likelier = |a: &usize, b: &usize| weights[*b].total_cmp(&weights[*a]).then(a.cmp(b));
        let k = top_k.unwrap_or(usize::MAX).min(ids.len());
        if k < ids.len() {
            ids.select_nth_unstable_by(k, likelier);
        }
        let kept = &mut ids[..k];
        let mut count = k;
        if let Some(p) = top_p {
            kept.sort_unstable_by(likelier);
            // Applied to what top-k keeps: limits apply in sequence, as in transformers.
            let enough = p * kept.iter().map(|id| weights[*id]).sum::<f64>();
            let mut sum = 0.0;
            count = 1 + kept
                .iter()
                .take_while(|id| {
                    sum += weights[**id];
                    sum < enough
                })
                .count();
        }
        let mut stays = vec![false; weights.len()];
        kept.iter().take(count).for_each(|id| stays[*id] = true);
        weights.iter_mut().zip(stays).filter(|(_, stays)| !stays).for_each(|(weight, _)| *weight = 0.0);
    }
    if let Some(p) = min_p {
        weights.iter_mut().filter(|weight| **weight < p).for_each(|weight| *weight = 0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: SamplingLimits = SamplingLimits { top_k: None, top_p: None, min_p: None };

    /// Ids of the tokens that can be drawn.
    fn possible(probabilities: &[f32], limits: SamplingLimits) -> Vec<u32> {
        let logits: Vec<f32> = probabilities.iter().map(|p| p.ln()).collect();
        let mut drawn: Vec<u32> = (0..1000).map(|u| sample(&logits, 1.0, limits, f64::from(u) / 1000.0)).collect();
        drawn.sort_unstable();
        drawn.dedup();
        drawn
    }

    #[test]
    fn samples_follow_the_distribution_and_never_fall_on_the_impossible() {
        let logits = [0.0, 3f32.ln(), f32::NEG_INFINITY];
        let drawn = |u| sample(&logits, 1.0, NONE, u);
        assert_eq!((drawn(0.0), drawn(0.249), drawn(0.251), drawn(0.999_999_999)), (0, 0, 1, 1));
        assert_eq!(sample(&logits, 1e-3, NONE, 0.001), 1, "a low temperature is greedy");
    }

    #[test]
    fn limits_keep_the_likeliest_tokens_the_lowest_id_first_among_equals() {
        let p = [0.1, 0.4, 0.2, 0.2, 0.1];
        assert_eq!(possible(&p, NONE), [0, 1, 2, 3, 4]);
        assert_eq!(possible(&p, SamplingLimits { top_k: Some(2), ..NONE }), [1, 2]);
        assert_eq!(possible(&p, SamplingLimits { top_k: Some(9), ..NONE }), [0, 1, 2, 3, 4]);
        assert_eq!(possible(&p, SamplingLimits { top_p: Some(0.39), ..NONE }), [1]);
        assert_eq!(possible(&p, SamplingLimits { top_p: Some(0.59), ..NONE }), [1, 2]);
        assert_eq!(possible(&p, SamplingLimits { top_p: Some(0.79), ..NONE }), [1, 2, 3]);
        assert_eq!(possible(&p, SamplingLimits { top_p: Some(1.0), ..NONE }), [0, 1, 2, 3, 4]);
        assert_eq!(possible(&p, SamplingLimits { min_p: Some(0.45), ..NONE }), [1, 2, 3]);
        assert_eq!(possible(&p, SamplingLimits { min_p: Some(1.0), ..NONE }), [1]);
        // Of the three most probable (0.4, 0.2, 0.2), the first alone has half of the probability.
        assert_eq!(possible(&p, SamplingLimits { top_k: Some(3), top_p: Some(0.49), ..NONE }), [1]);
    }
}

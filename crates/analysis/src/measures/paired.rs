//! A measure of two runs, compared sample by sample.

use std::collections::BTreeMap;

use probity_stats::{PairedDifference, Range, Resampling};

use super::{Measure, SamplePart};

/// A measure of two runs over their common samples.
#[derive(Debug, Clone)]
pub struct PairedMeasure {
    range: Range,
    first: Vec<SamplePart>,
    second: Vec<SamplePart>,
}

fn ratio<'a>(parts: impl Iterator<Item = &'a SamplePart>) -> Option<f64> {
    let (sum, weight) = parts.fold((0.0, 0.0), |(sum, weight), part| (sum + part.sum, weight + part.weight));
    (weight > 0.0).then(|| sum / weight)
}

impl PairedMeasure {
    /// `shared` maps sample numbers of the second run to those of the first.
    pub fn new(first: &Measure, second: &Measure, shared: &BTreeMap<u32, u32>) -> Self {
        let by_sample: BTreeMap<u32, SamplePart> = first.parts.iter().map(|part| (part.sample, *part)).collect();
        let both = second.parts.iter().filter_map(|part| Some((*by_sample.get(shared.get(&part.sample)?)?, *part)));
        let range = first.range;
        let (first, second) = both.unzip();
        Self { range, first, second }
    }

    /// Number of common samples.
    pub fn samples(&self) -> usize {
        self.first.len()
    }

    /// The values of both runs; `None` without common samples.
    pub fn values(&self) -> Option<[f64; 2]> {
        Some([ratio(self.first.iter())?, ratio(self.second.iter())?])
    }

    /// Each sample's number in the first run, and its values in both.
    pub fn by_sample(&self) -> impl Iterator<Item = (u32, [f64; 2])> {
        let both = self.first.iter().zip(&self.second);
        both.map(|(a, b)| (a.sample, [a.sum / a.weight, b.sum / b.weight]))
    }

    /// The difference of the runs, first minus second, with Student's t; `None` if undefined.
    pub fn difference(&self, resampling: &Resampling) -> Option<PairedDifference> {
        resampling.paired_difference(self.samples(), self.range, |kept| {
            let over = |parts: &[SamplePart]| ratio(kept.iter().map(|place| &parts[*place]));
            Some(over(&self.first)? - over(&self.second)?)
        })
    }

    /// p of the randomisation test of the difference; `None` if undefined.
    pub fn randomisation(&self, resampling: &Resampling) -> Option<f64> {
        resampling.randomisation(self.samples(), |swapped| {
            let pick = |turned: bool| {
                let parts = self.first.iter().zip(&self.second).zip(swapped);
                ratio(parts.map(move |((first, second), swap)| if *swap == turned { first } else { second }))
            };
            Some(pick(false)? - pick(true)?)
        })
    }
}

//! The references available for each unit.

use std::collections::BTreeMap;

use probity_data::Sample;

use super::options::Reference;
use crate::judge::{JudgedUnit, Mode};
use crate::revise::{Reviser, Revision, RevisionJob};

/// All units, sample by sample; for pairs, samples without exactly two candidates have none.
pub(super) fn units(samples: &[Sample], mode: Mode, attributes: usize) -> Vec<JudgedUnit> {
    let of_item = |item: usize, attribute: usize| match mode {
        Mode::Pairwise if samples[item].candidates.len() != 2 => Vec::new(),
        Mode::Pairwise => vec![JudgedUnit { item, attribute, first: 0, second: Some(1) }],
        Mode::Pointwise => (0..samples[item].candidates.len())
            .map(|first| JudgedUnit { item, attribute, first, second: None })
            .collect::<Vec<_>>(),
    };
    (0..samples.len()).flat_map(|item| (0..attributes).flat_map(move |attribute| of_item(item, attribute))).collect()
}

/// References that are shown, or scored against, together.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ReferenceGroup<'a> {
    /// Distinguishes it from others of its kind and unit: an aspect, a candidate's id, or a number.
    pub(super) tag: String,
    pub(super) texts: Vec<&'a str>,
}

/// All references from the data or generated.
pub(super) struct ReferencePool<'a> {
    samples: &'a [Sample],
    reviser: &'a Reviser<'a>,
    made: &'a [Revision],
    /// Positions of revisions by set and item.
    of: BTreeMap<(usize, usize), Vec<usize>>,
}

impl<'a> ReferencePool<'a> {
    pub(super) fn new(reviser: &'a Reviser<'a>, made: &'a [Revision]) -> Self {
        let mut of: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
        for (index, revision) in made.iter().enumerate() {
            of.entry((revision.job.set, revision.job.item)).or_default().push(index);
        }
        Self { samples: reviser.samples, reviser, made, of }
    }

    /// The groups of references for a unit; empty without a usable reference. `Reference::None` has one group without
    /// references.
    pub(super) fn references(&self, reference: Reference, unit: JudgedUnit) -> Vec<ReferenceGroup<'a>> {
        let one = |tag: String, texts: Vec<&'a str>| ReferenceGroup { tag, texts };
        match reference {
            Reference::None => vec![one(String::new(), Vec::new())],
            Reference::Given => {
                let texts: Vec<&str> = self.samples[unit.item].references.iter().map(|text| &**text).collect();
                let texts: Vec<&str> = texts.into_iter().filter(|text| !text.trim().is_empty()).collect();
                if texts.is_empty() { Vec::new() } else { vec![one(String::new(), texts)] }
            }
            _ => {
                let use_truncated = self.reviser.how.options.use_truncated;
                let usable = self.revisions(reference, unit).filter(|revision| revision.is_usable(use_truncated));
                usable.map(|revision| one(self.tag(&revision.job), vec![revision.made.text.as_str()])).collect()
            }
        }
    }

    /// All revisions of a kind for a unit, usable or not.
    pub(super) fn revisions(&self, reference: Reference, unit: JudgedUnit) -> impl Iterator<Item = &'a Revision> {
        let kind = reference.kind();
        let sets: Vec<usize> =
            (0..self.reviser.sets.len()).filter(|set| Some(self.reviser.sets[*set].kind) == kind).collect();
        // Revisions for an attribute are at its position among those of their kind; all others serve every attribute.
        let by_attribute =
            matches!(reference, Reference::Adapted | Reference::Both | Reference::Each) && sets.len() > 1;
        let sets = if by_attribute { vec![sets[unit.attribute]] } else { sets };
        let of_sets: Vec<usize> =
            sets.iter().flat_map(|set| self.of.get(&(*set, unit.item)).into_iter().flatten().copied()).collect();
        let pair = unit.second.is_some();
        let revisions = of_sets.into_iter().map(|index| &self.made[index]);
        revisions.filter(move |revision| pair || revision.job.primary.is_none_or(|primary| primary == unit.first))
    }

    fn tag(&self, job: &RevisionJob) -> String {
        let aspect = self.reviser.sets[job.set].focus.name.clone();
        let candidate =
            job.primary.filter(|_| job.guidance.is_none()).map(|k| self.samples[job.item].candidates[k].id.clone());
        let paraphrase = job.paraphrase.map(|(reference, number)| format!("{reference}#{number}"));
        aspect.into_iter().chain(candidate).chain(paraphrase).collect::<Vec<_>>().join("/")
    }
}

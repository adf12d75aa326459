//! Selects the attacked candidates and builds the samples for the method.

use std::collections::BTreeMap;

use probity_data::{Candidate, Preference, Sample};
use rand::Rng;
use rand::seq::SliceRandom;

use super::options::AttackParams;
use super::texts::AttackText;
use crate::MethodError;
use crate::pairs::rng_for;

/// A sample with the attacked candidate and its opponent.
pub(super) struct AttackedItem<'s> {
    pub(super) sample: &'s Sample,
    pub(super) attacked: &'s Candidate,
    pub(super) other: &'s Candidate,
    /// Whether people judged the other one better.
    pub(super) has_gold: bool,
}

impl<'s> AttackedItem<'s> {
    /// Attacks the worse candidate by human judgement, else a random one. `None` for a sample without two texts.
    fn from_sample(sample: &'s Sample, params: &AttackParams) -> Option<Self> {
        let mut shown: Vec<&Candidate> = sample.candidates.iter().filter(|one| !one.text.trim().is_empty()).collect();
        // Sorted by id, so that ties do not depend on the order in the file.
        shown.sort_by(|a, b| a.id.cmp(&b.id));
        let [first, .., last] = shown[..] else { return None };
        let by_people = by_scores(&shown, &params.attribute).or_else(|| by_preference(sample, &shown));
        let (attacked, other) = by_people.unwrap_or_else(|| {
            let coin: bool = rng_for(params.seed, &["attacked", &sample.id]).random();
            if coin { (first, last) } else { (last, first) }
        });
        Some(Self { sample, attacked, other, has_gold: by_people.is_some() })
    }
}

/// The worst and the best by gold scores; `None` for a tie.
fn by_scores<'c>(shown: &[&'c Candidate], attribute: &str) -> Option<(&'c Candidate, &'c Candidate)> {
    let scored: Vec<(f64, &Candidate)> =
        shown.iter().filter_map(|one| Some((*one.scores.get(attribute)?, *one))).collect();
    // The first of equal ones, at both ends.
    let worst = scored.iter().copied().reduce(|a, b| if b.0 < a.0 { b } else { a })?;
    let best = scored.iter().copied().reduce(|a, b| if b.0 > a.0 { b } else { a })?;
    (worst.0 < best.0).then_some((worst.1, best.1))
}

/// The first that is not preferred, and the preferred one.
fn by_preference<'c>(sample: &Sample, shown: &[&'c Candidate]) -> Option<(&'c Candidate, &'c Candidate)> {
    let Some(Preference::Candidate(id)) = &sample.preference else { return None };
    let preferred = shown.iter().find(|one| one.id == *id)?;
    let other = shown.iter().find(|one| one.id != *id)?;
    Some((other, preferred))
}

/// The attacked samples sorted by id, which also determines the jackknife groups.
pub(super) fn choose<'s>(params: &AttackParams, samples: &'s [Sample]) -> Result<Vec<AttackedItem<'s>>, MethodError> {
    let mut places: Vec<usize> =
        (0..samples.len()).filter(|place| AttackedItem::from_sample(&samples[*place], params).is_some()).collect();
    if places.is_empty() {
        let why = "no sample has two non-empty candidates";
        return MethodError::refuse("--data", why, "an attacked candidate is compared with another one of its sample");
    }
    // Drawn in the order of ids: the sort order of the file has no effect.
    places.sort_by(|a, b| samples[*a].id.cmp(&samples[*b].id));
    places.shuffle(&mut rng_for(params.seed, &["attacked items"]));
    places.truncate(params.items as usize);
    places.sort_by(|a, b| samples[*a].id.cmp(&samples[*b].id));
    Ok(places.into_iter().filter_map(|place| AttackedItem::from_sample(&samples[place], params)).collect())
}

/// All versions of the attacked candidates, as samples.
pub(super) struct Variants {
    /// The samples, those of an item adjacent, so that shared prefixes are computed once.
    pub(super) samples: Vec<Sample>,
    /// By item: the sample with the unchanged text, and for each attack those with the attack and with its control.
    pub(super) places: Vec<ItemPlaces>,
}

/// The positions of an item's samples.
pub(super) struct ItemPlaces {
    pub(super) plain: usize,
    /// By attack: the samples with the attack and with its control.
    pub(super) attacks: Vec<(usize, usize)>,
}

impl Variants {
    pub(super) fn new(items: &[AttackedItem<'_>], attacks: &[AttackText]) -> Self {
        let mut samples = Vec::new();
        let places = items.iter().map(|item| place_item(item, attacks, &mut samples)).collect();
        Self { samples, places }
    }
}

fn place_item(item: &AttackedItem<'_>, attacks: &[AttackText], samples: &mut Vec<Sample>) -> ItemPlaces {
    // Attacks of the same length share a control.
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    let mut place = |text: String| {
        *known.entry(text.clone()).or_insert_with(|| {
            samples.push(variant(item, samples.len(), text));
            samples.len() - 1
        })
    };
    let plain = place(item.attacked.text.to_string());
    let attacks = attacks
        .iter()
        .map(|attack| (place(attack.applied(&item.attacked.text)), place(attack.control(&item.attacked.text))));
    ItemPlaces { plain, attacks: attacks.collect() }
}

/// The item's sample with only the two candidates, the attacked one with this text.
fn variant(item: &AttackedItem<'_>, number: usize, text: String) -> Sample {
    let bare = |one: &Candidate| Candidate { scores: BTreeMap::new(), ..one.clone() };
    let attacked = Candidate { text: text.into(), ..bare(item.attacked) };
    Sample {
        id: number.to_string(),
        candidates: vec![bare(item.other), attacked],
        preference: None,
        ..item.sample.clone()
    }
}

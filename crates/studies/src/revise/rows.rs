//! Rows and figures of generated references.

use probity_lm::text::{counted, thousands};
use serde::Serialize;
use serde_json::{Value, json};

use super::options::RevisionKind;
use super::reviser::{REVISED, Reviser, Revision, RevisionJob};
use super::similarity::Similarity;
use crate::figures::{decimals, mean, number};
use crate::written::WrittenOutcome;
use crate::{Cell, Conclusion, Table, Trust, cells, row};

/// The fields that identify the row of a reference: the attribute or aspect that it was generated for, and the index of
/// the existing reference that it paraphrases, from 0.
pub(super) fn identity(reviser: &Reviser<'_>, job: RevisionJob) -> Value {
    let (sample, set) = (&reviser.samples[job.item], &reviser.sets[job.set]);
    let id = |candidate: usize| sample.candidates[candidate].id.as_str();
    row! {
        "item": sample.id, "kind": set.kind, "aspect"?: set.focus.name, "primary"?: job.primary.map(id),
        "guidance"?: job.guidance.map(id), "reference"?: job.paraphrase.map(|(reference, _)| reference),
    }
}

/// The other fields. `unchanged`: whether it equals the primary candidate's trimmed text.
pub(super) fn row(reviser: &Reviser<'_>, revision: &Revision) -> Value {
    let id = |candidate: usize| reviser.samples[revision.job.item].candidates[candidate].id.as_str();
    let similarity = revision.similarity.iter().map(|(of, similarity)| row! { "candidate": id(*of), ..similarity });
    let mut row = row! {
        ..&revision.made, "unchanged"?: is_unchanged(reviser, revision),
        "similarity": similarity.collect::<Vec<_>>(),
    };
    if revision.made.ended == WrittenOutcome::Written {
        row["outcome"] = json!(REVISED);
    }
    row
}

fn is_unchanged(reviser: &Reviser<'_>, revision: &Revision) -> Option<bool> {
    let primary = &reviser.samples[revision.job.item].candidates[revision.job.primary?];
    (!revision.made.text.is_empty()).then(|| primary.text.trim() == revision.made.text)
}

/// The figures of the references of one kind and aspect.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct RevisionTally {
    pub(crate) kind: RevisionKind,
    pub(crate) aspect: Option<String>,
    references: usize,
    usable: usize,
    truncated: usize,
    empty: usize,
    /// Usable references equal to the revised text; absent if none was revised.
    unchanged: Option<usize>,
    /// How often the random draw chose the first candidate of the file; absent without a draw.
    first_is_primary: Option<f64>,
    /// This and the following: means over usable references.
    mean_tokens: Option<f64>,
    to_primary: Similarity,
    to_guidance: Similarity,
    /// To the candidates, if the reference was generated without them.
    to_candidates: Similarity,
}

impl RevisionTally {
    /// One per set of the reviser.
    pub(crate) fn all(reviser: &Reviser<'_>, revisions: &[Revision]) -> Vec<Self> {
        let of_set = |set: usize| revisions.iter().filter(|one| one.job.set == set).collect::<Vec<_>>();
        (0..reviser.sets.len()).map(|set| Self::new(reviser, set, &of_set(set))).collect()
    }

    fn new(reviser: &Reviser<'_>, set: usize, revisions: &[&Revision]) -> Self {
        let count = |is: &dyn Fn(&Revision) -> bool| revisions.iter().filter(|revision| is(revision)).count();
        let is_usable = |revision: &Revision| revision.is_usable(reviser.how.options.use_truncated);
        // Unusable references are never compared with, so they do not count.
        let usable: Vec<&Revision> = revisions.iter().copied().filter(|revision| is_usable(revision)).collect();
        let unchanged: Vec<bool> = usable.iter().filter_map(|revision| is_unchanged(reviser, revision)).collect();
        let coins = revisions.iter().filter(|r| r.job.guidance.is_some());
        let coins = coins.map(|r| f64::from(u8::from(r.job.primary == Some(0))));
        let likeness = |of: &dyn Fn(&Revision, usize) -> bool| {
            let all = usable
                .iter()
                .flat_map(|r| r.similarity.iter().filter(|(candidate, _)| of(r, *candidate)).map(|(_, s)| *s));
            Similarity::mean(&all.collect::<Vec<_>>())
        };
        Self {
            kind: reviser.sets[set].kind,
            aspect: reviser.sets[set].focus.name.clone(),
            references: revisions.len(),
            usable: usable.len(),
            truncated: count(&|revision| revision.made.ended == WrittenOutcome::Truncated),
            empty: count(&|revision| revision.made.ended == WrittenOutcome::Empty),
            unchanged: (!unchanged.is_empty()).then(|| unchanged.iter().filter(|same| **same).count()),
            first_is_primary: mean(coins),
            mean_tokens: mean(usable.iter().filter_map(|revision| Some(revision.made.counts.tokens? as f64))),
            to_primary: likeness(&|revision, candidate| revision.job.primary == Some(candidate)),
            to_guidance: likeness(&|revision, candidate| revision.job.guidance == Some(candidate)),
            to_candidates: likeness(&|revision, _| revision.job.primary.is_none()),
        }
    }

    /// Word similarity to the revised text, or to the candidates if none was revised.
    pub(crate) fn words_kept(&self) -> Option<f64> {
        self.to_primary.word.or(self.to_candidates.word)
    }
}

/// The number of usable references and the outcomes of the others. Nothing judges the references, so a person should.
pub(super) fn conclusion(tallies: &[RevisionTally], use_truncated: bool) -> Conclusion {
    let sum = |of: fn(&RevisionTally) -> usize| -> usize { tallies.iter().map(of).sum() };
    let (all, usable, truncated) = (sum(|one| one.references), sum(|one| one.usable), sum(|one| one.truncated));
    let unchanged = sum(|one| one.unchanged.unwrap_or(0));
    let not_made = all - usable - if use_truncated { 0 } else { truncated };
    let counts = [("unchanged", unchanged), ("truncated", truncated), ("missing", not_made)];
    let counts = counts.into_iter().filter(|(_, count)| *count > 0);
    let counts: Vec<String> = counts.map(|(name, count)| format!("{name}: {}", thousands(count as u64))).collect();
    let counts = if counts.is_empty() { String::new() } else { format!("; {}", counts.join(", ")) };
    let (trust, because) = if usable == 0 {
        (Trust::Unreliable, "there are no usable references; see the outcomes")
    } else {
        (Trust::Caution, "these texts have not been judged; read some before using them as references")
    };
    Conclusion {
        about: None,
        says: format!("{} of {} are usable{counts}", thousands(usable as u64), counted(all, "reference")),
        agreement: None,
        trust,
        because: because.to_owned(),
        figures: json!({
            "references": all, "usable": usable, "unchanged": unchanged, "truncated": truncated,
            "not_made": not_made,
        }),
    }
}

/// The figures as a table.
pub(crate) fn revisions_table(tallies: &[RevisionTally]) -> Table {
    let columns = [
        "kind", "for", "made", "usable", "truncated", "empty", "unchanged", "tokens", "to primary: words",
        "characters", "ROUGE-L", "to guidance: words",
    ];
    let mut table = Table::new("References", columns);
    for tally in tallies {
        let near = if tally.to_primary.word.is_some() { tally.to_primary } else { tally.to_candidates };
        let counts = [tally.references, tally.usable, tally.truncated, tally.empty].map(Cell::from);
        let numbers = [near.word, near.char, near.rouge_l, tally.to_guidance.word].map(number);
        let names = cells![tally.kind.to_string(), tally.aspect.as_ref()];
        let others = cells![tally.unchanged, decimals(tally.mean_tokens, 0)];
        table.push(names.into_iter().chain(counts).chain(others).chain(numbers));
    }
    table.note(
        "Similarity to the revised text (for answers and paraphrases: to the candidates), mean from 0 to 1; tokens: \
         mean length. Means are over usable references.",
    );
    table
}

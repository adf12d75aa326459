//! Training sets for a reviser and a judge, as chats (the paper's appendix C).

use probity_data::Sample;
use rand::Rng;

use super::evaluators::preferred;
use super::judged::ReferenceQuestions;
use super::options::Reference;
use super::references::ReferencePool;
use crate::judge::{JudgeVerdict, ModelJudge};
use crate::pairs::rng_for;
use crate::revise::Reviser;
use crate::{MethodError, Run, Table, cells, chats};

/// The inputs of the sets.
pub(super) struct TrainingSets<'s, 'a> {
    pub(super) samples: &'a [Sample],
    pub(super) asking: &'s ReferenceQuestions<'a>,
    pub(super) verdicts: &'s [JudgeVerdict],
    pub(super) seed: u64,
}

impl TrainingSets<'_, '_> {
    /// Writes three sets for the same units: revisions, verdicts without reference, and verdicts with a revision as
    /// reference. Returns their sizes.
    pub(super) fn write(
        &self,
        judge: &ModelJudge<'_>,
        reviser: &Reviser<'_>,
        pool: &ReferencePool<'_>,
        run: &mut Run<'_>,
    ) -> Result<Vec<(&'static str, usize)>, MethodError> {
        let asking = self.asking;
        let chosen: Vec<usize> = (0..asking.asked.len()).filter(|index| self.is_chosen(*index)).collect();
        let mut seen = vec![[false; 2]; asking.units.len()];
        let mut right = vec![true; asking.units.len()];
        for &index in &chosen {
            let asked = &asking.asked[index];
            seen[asked.unit][usize::from(asked.reference == Reference::Adapted)] = true;
            right[asked.unit] &= self.is_right(index);
        }
        let units: Vec<usize> = (0..right.len()).filter(|unit| right[*unit] && seen[*unit] == [true, true]).collect();
        let revisions = units.iter().flat_map(|unit| pool.revisions(Reference::Adapted, asking.units[*unit]));
        let revised =
            chats::write("set_reviser", revisions.map(|one| (reviser.prompt(&one.job), one.made.text.clone())), run)?;
        let mut written = vec![("set_reviser.jsonl", revised)];
        for (table, file, reference) in [
            ("set_judge", "set_judge.jsonl", Reference::None),
            ("set_judge_with_reference", "set_judge_with_reference.jsonl", Reference::Adapted),
        ] {
            let of_set = chosen.iter().filter(|index| {
                asking.asked[**index].reference == reference && units.contains(&asking.asked[**index].unit)
            });
            let chat = |index: &usize| {
                let text = self.verdicts[*index].answers.first()?.text.clone()?;
                Some((judge.prompt(&asking.question(&asking.asked[*index])), text))
            };
            written.push((file, chats::write(table, of_set.filter_map(chat), run)?));
        }
        Ok(written)
    }

    /// Selects questions without reference and with a revision, with pairs in a random order by seed.
    fn is_chosen(&self, index: usize) -> bool {
        let asked = &self.asking.asked[index];
        let unit = self.asking.units[asked.unit];
        let parts = ["set", self.samples[unit.item].id.as_str(), self.asking.attributes[unit.attribute].as_str()];
        let turned = unit.second.is_some() && rng_for(self.seed, &parts).random::<bool>();
        let wanted = matches!(asked.reference, Reference::None | Reference::Adapted) && asked.temperature.is_none();
        wanted && asked.turned == turned
    }

    /// Whether the verdict agrees with the human preference; without a preference, whether it is readable.
    fn is_right(&self, index: usize) -> bool {
        let (asked, decided) = (&self.asking.asked[index], &self.verdicts[index].decided);
        let decided = if asked.turned { decided.turned() } else { decided.clone() };
        let people = preferred(self.samples, self.asking.units[asked.unit]);
        decided.says.is_some() && people.is_none_or(|people| decided.choice() == Some(people))
    }
}

pub(super) fn table(written: &[(&'static str, usize)]) -> Table {
    let mut table = Table::new("Training sets", ["file", "chats"]);
    for (file, chats) in written {
        table.push(cells![*file, *chats]);
    }
    table.note("From units on which the judge agrees with people, both without reference and with a revision.");
    table
}

//! Maps columns to fields by their names, in addition to the user's mapping.

use std::collections::HashSet;

use crate::UnfitMapping;
use crate::column::{ColumnPath, names};
use crate::mapping::{Field, MapEntry, Mapping};
use crate::preferences;

impl Mapping {
    /// Adds columns named after fields (`id`, `context`, `candidate…`, `reference…`, `score.…`, `instruction`,
    /// `text.…`, `preference`) for the fields that this mapping omits. For preference data the columns are `prompt`,
    /// `chosen` and `rejected`, plus references, texts and scores. A column mapped by the user keeps its field.
    ///
    /// # Errors
    /// The columns include `chosen` and `rejected` but no prompt. With `chosen_is_a_conversation` the prompt is in the
    /// conversations.
    pub(crate) fn completed(&self, columns: &[String], chosen_is_a_conversation: bool) -> Result<Self, UnfitMapping> {
        let known = names(columns);
        let paths: Vec<ColumnPath> = self.columns().map(|entry| ColumnPath::new(&entry.column)).collect();
        let used: HashSet<&str> = paths.iter().filter_map(|path| path.root(&known)).collect();
        let is_free = |entry: &MapEntry| {
            (entry.constant || !used.contains(entry.column.as_str()))
                && !self.entries.iter().any(|own| own.covers(entry))
        };
        let found = self.pairs(columns, chosen_is_a_conversation)?.unwrap_or_else(|| Self::from_columns(columns));
        let free = found.entries.into_iter().filter(is_free);
        Ok(Self { entries: free.chain(self.entries.iter().cloned()).collect() })
    }

    /// The columns mapped by the user.
    fn columns(&self) -> impl Iterator<Item = &MapEntry> {
        self.entries.iter().filter(|entry| !entry.constant && !matches!(entry.field, Field::PreferenceValue(_)))
    }

    /// The mapping for preference training data, if the columns have that form and the user maps neither candidates nor
    /// a preference.
    fn pairs(&self, columns: &[String], chosen_is_a_conversation: bool) -> Result<Option<Self>, UnfitMapping> {
        let has = |name: &str| columns.iter().any(|column| column == name);
        let maps = |is: fn(&Field) -> bool| self.entries.iter().any(|entry| is(&entry.field));
        let is_answer = |field: &Field| {
            matches!(field, Field::Candidate(_) | Field::CandidateId | Field::Preference | Field::PreferenceValue(_))
        };
        // The native form takes precedence over preference columns.
        if !has("chosen") || !has("rejected") || has("candidates") || maps(is_answer) {
            return Ok(None);
        }
        let has_prompt = self.columns().any(|entry| entry.field.is_joined());
        let known = preferences::mapping(has, chosen_is_a_conversation || has_prompt);
        let Self { mut entries } = known.ok_or(UnfitMapping::NoPrompt)?;
        let is_beside = |field: &Field| matches!(field, Field::Reference | Field::Text(_) | Field::Score(_));
        entries.extend(Self::from_columns(columns).entries.into_iter().filter(|entry| is_beside(&entry.field)));
        Ok(Some(Self { entries }))
    }

    /// The mapping of columns that are named after fields.
    fn from_columns(columns: &[String]) -> Self {
        // The first of two spellings of one field is used. The set is only tested for membership, so its order does not
        // matter.
        let mut seen = HashSet::new();
        let fields = columns.iter().filter_map(|column| Some((own_field(column)?, column)));
        let first = fields.filter(|(field, _)| field.takes_several() || seen.insert(field.to_string()));
        Self {
            entries: first.map(|(field, column)| MapEntry { field, constant: false, column: column.clone() }).collect(),
        }
    }
}

impl Mapping {
    /// Whether the mapping names no column: it is empty or has only values, such as `context:=`.
    pub(crate) fn names_no_column(&self) -> bool {
        self.entries.iter().all(|entry| entry.constant)
    }
}

impl MapEntry {
    /// Whether this entry of the user overrides an automatic one.
    fn covers(&self, automatic: &Self) -> bool {
        let are_candidates = |entry: &Self| matches!(entry.field, Field::Candidate(_));
        self.field == automatic.field || are_candidates(self) && are_candidates(automatic)
    }
}

/// Prefixes of column names that are field names.
const STEMS: [&str; 8] = ["id", "context", "instruction", "text.", "candidate", "reference", "score.", "preference"];

/// Whether a column name is a field name.
pub(crate) fn is_own_name(column: &str) -> bool {
    own_field(column).is_some()
}

/// The field that a column name denotes.
fn own_field(column: &str) -> Option<Field> {
    let numbered = |stem: &str| {
        let rest = column.strip_prefix(stem)?;
        // Accepts `candidate_1` and `reference 2`, but not `candidates_source`.
        rest.starts_with(|c: char| c.is_ascii_digit() || "_- .".contains(c)).then_some(())
    };
    // Cheap filter: names are tried in each row, and a name that is no field triggers a search for the nearest one.
    if !STEMS.iter().any(|stem| column.starts_with(stem)) {
        return None;
    }
    match column {
        "candidate_id" => Some(Field::CandidateId),
        "candidates" => Some(Field::Candidate(None)),
        "references" => Some(Field::Reference),
        _ => match column.parse() {
            // A column holds a preference, never the meaning of another column's value.
            Ok(Field::PreferenceValue(_)) => None,
            Ok(field) => Some(field),
            Err(_) if numbered("candidate").is_some() => Some(Field::Candidate(None)),
            Err(_) if numbered("reference").is_some() => Some(Field::Reference),
            Err(_) => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(map: &[&str], columns: &[&str]) -> Vec<String> {
        let map = Mapping::new(map.iter().map(|entry| entry.parse().expect("an entry"))).expect("a mapping");
        let columns: Vec<String> = columns.iter().map(|name| (*name).to_owned()).collect();
        let all = map.completed(&columns, false).expect("complete");
        all.entries().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn columns_with_our_names_map_by_themselves() {
        let columns = [
            "", "id", "context", "candidate_a", "candidate2", "candidate.x", "candidature", "reference 1",
            "references", "gold",
        ];
        assert_eq!(
            completed(&[], &columns),
            [
                "id=id", "context=context", "candidate=candidate_a", "candidate=candidate2", "candidate.x=candidate.x",
                "reference=reference 1", "reference=references",
            ]
        );
        assert_eq!(own_field("candidate_id"), Some(Field::CandidateId));
        assert_eq!(own_field("score.fluency"), Some(Field::Score("fluency".into())));
    }

    #[test]
    fn fields_that_the_user_does_not_map_keep_their_columns() {
        let columns = ["id", "article", "a", "candidate", "preference", "reference", "score.a.fluency"];
        let map = ["context=article", "candidate=a"];
        let expected = ["id=id", "preference=preference", "reference=reference", "score.a.fluency=score.a.fluency"];
        assert_eq!(completed(&map, &columns), [&expected[..], &map].concat());
        // A column has one field: the user's, even if the user maps a path into the column.
        assert_eq!(
            completed(&["context=instruction", "candidate=a[0]"], &["a", "instruction", "context"]),
            ["context=instruction", "candidate=a[0]"]
        );
        assert_eq!(
            completed(&["id:=", "context:="], &["id", "candidate"]),
            ["candidate=candidate", "id:=", "context:="]
        );
    }

    #[test]
    fn pairs_for_training_are_known_beside_a_mapped_prompt() {
        let pair = ["candidate.chosen=chosen", "candidate.rejected=rejected", "preference:=chosen"];
        let own = ["context:=", "instruction=q"];
        assert_eq!(completed(&["instruction=q"], &["q", "chosen", "rejected"]), [&pair[..], &own].concat());
        let beside = ["reference=reference", "text.plan=text.plan", "score.chosen.flu=score.chosen.flu"];
        let columns = ["q", "chosen", "rejected", "reference", "text.plan", "score.chosen.flu"];
        let all = [&pair[..], &own[..1], &beside, &own[1..]].concat();
        assert_eq!(completed(&["instruction=q"], &columns), all);
        let mapped = ["context=q", "candidate=chosen", "candidate=rejected"];
        assert_eq!(completed(&mapped, &["q", "chosen", "rejected"]), mapped);
    }
}

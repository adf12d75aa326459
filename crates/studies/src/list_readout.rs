//! Generated lists as answers of a stage, one row per entry.

use probity_data::from_value;
use probity_lm::{GenerateRequest, GenerateResult};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::figures::TokenCounts;
use crate::listed::{ListedOutcome, list_text, listed, whole_lines};
use crate::query::Readout;
use crate::written::{WrittenOutcome, dry_text};
use crate::{MethodError, RowError, row};

/// Tokens of a short entry with its line end; stand-ins are no shorter.
const SHORT_ENTRY: usize = 8;

/// The entries of a list, or why there are none.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct List {
    pub(crate) entries: Vec<String>,
    pub(crate) ended: ListedOutcome,
    /// Duplicate lines, which count once.
    pub(crate) repeated: usize,
    pub(crate) counts: TokenCounts,
}

/// Reads a list, one entry per line.
pub(crate) struct ListReadout {
    /// The field of a row that holds its entry.
    pub(crate) field: &'static str,
    /// The outcome of a text without entries.
    pub(crate) nothing: &'static str,
    /// The token limit.
    pub(crate) tokens: usize,
    /// The maximum number of entries. A longer list counts as truncated.
    pub(crate) most: usize,
    /// The option that sets it.
    pub(crate) most_option: &'static str,
}

/// A row written before or provided by the user, without its entry; the entry alone is enough.
#[derive(Deserialize)]
struct GivenEntry {
    number: Option<usize>,
    repeated: Option<usize>,
}

impl List {
    /// A list from another source.
    pub(crate) fn from_entries(entries: Vec<String>, nothing: &'static str) -> Self {
        let ended = ListedOutcome::new(WrittenOutcome::Written, entries.len(), nothing);
        Self { entries, ended, repeated: 0, counts: TokenCounts::default() }
    }
}

impl ListReadout {
    /// Reads the entry of a row; `None` if the list has none.
    fn entry(&self, row: &Value) -> Result<Option<String>, RowError> {
        let field = self.field;
        match &row[field] {
            Value::Null => Ok(None),
            Value::String(text) if text.trim().is_empty() => Err(format!("`{field}` is empty").into()),
            Value::String(text) => Ok(Some(text.trim().to_owned())),
            other => Err(format!("`{field}` is {other}; expected a text").into()),
        }
    }
}

impl Readout for ListReadout {
    type Answer = List;
    const ONE_ROW: bool = false;

    fn request(&self, _: usize, request: GenerateRequest) -> GenerateRequest {
        GenerateRequest { max_tokens: self.tokens, ..request }
    }

    /// The last line of a truncated text is incomplete.
    fn read_text(&self, _: usize, result: &GenerateResult) -> List {
        let written = WrittenOutcome::from_result(result);
        let is_cut = written == WrittenOutcome::Truncated;
        let (mut entries, repeated) = listed(whole_lines(&list_text(result), is_cut));
        let written = if entries.len() > self.most { WrittenOutcome::Truncated } else { written };
        let ended = ListedOutcome::new(written, entries.len(), self.nothing);
        entries.truncate(self.most);
        List { entries, ended, repeated, counts: result.into() }
    }

    fn unasked(&self, _: usize, _: bool) -> Result<Option<List>, MethodError> {
        let ended = ListedOutcome::Text(WrittenOutcome::Empty);
        Ok(Some(List { ended, ..List::from_entries(Vec::new(), self.nothing) }))
    }

    /// A list without entries has one row with the reason.
    fn rows(&self, _: usize, list: &List) -> Vec<Value> {
        let row = |place: usize, entry: Option<&String>| {
            let own = json!({ (self.field): entry });
            row! { "number": place, ..own, ..list.ended.fields(), "repeated": list.repeated, ..list.counts }
        };
        if list.entries.is_empty() {
            return vec![row(0, None)];
        }
        list.entries.iter().enumerate().map(|(place, entry)| row(place, Some(entry))).collect()
    }

    fn read(&self, _: usize, rows: &[Value]) -> Result<List, RowError> {
        let Some(first) = rows.first() else {
            return Err("a row is missing before this line".into());
        };
        let given: GivenEntry = from_value(first)?;
        let mut entries = Vec::with_capacity(rows.len());
        for row in rows {
            let place = from_value::<GivenEntry>(row)?.number;
            if place.is_some_and(|place| place != entries.len()) {
                return Err(format!("`number` is {}, but this is entry {}", row["number"], entries.len()).into());
            }
            match self.entry(row)? {
                Some(entry) => entries.push(entry),
                None if rows.len() > 1 => return Err(format!("`{}` is missing", self.field).into()),
                None => {}
            }
        }
        let ended = ListedOutcome::read(first, self.field, entries.len(), self.nothing)?;
        if entries.len() > self.most {
            return Err(format!("{} entries, but {} is {}", entries.len(), self.most_option, self.most).into());
        }
        Ok(List { entries, ended, repeated: given.repeated.unwrap_or(0), counts: from_value(first)? })
    }

    fn stand_in(&self, number: usize) -> List {
        let count = self.most.min((self.tokens / SHORT_ENTRY).max(1));
        let words = (self.tokens / count).saturating_sub(2).max(1);
        let entry = |place: usize| dry_text(format_args!("{number}.{place}"), words);
        List::from_entries((0..count).map(entry).collect(), self.nothing)
    }
}

#[cfg(test)]
mod tests {
    use probity_lm::Finish;

    use super::*;
    use crate::testing::generated;

    fn read(text: &str, is_cut: bool, most: usize) -> List {
        let finish = if is_cut { Finish::Length } else { Finish::EndOfTurn };
        let readout = ListReadout { field: "aiu", nothing: "no_aius", tokens: 9, most, most_option: "--most-aius" };
        readout.read_text(0, &GenerateResult { finish: Some(finish), ..generated(text) })
    }

    #[test]
    fn a_list_without_entries_or_with_too_many_says_so() {
        assert_eq!(read("  \n", false, 9).ended.name(), "empty");
        assert_eq!(read("---", false, 9).ended.name(), "no_aius");
        let cut = read("One.\nTwo.\nThr", true, 9);
        assert_eq!((cut.entries.len(), cut.ended.name()), (2, "truncated"));
        let many = read("One.\nTwo.\nThree.", false, 2);
        assert_eq!((many.entries.len(), many.ended.name()), (2, "truncated"));
    }
}

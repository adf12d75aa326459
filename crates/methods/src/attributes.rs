//! The attributes that texts are judged by, and their word forms in prompts.

use std::sync::LazyLock;

use probity_analysis::Table;
use probity_analysis::gold::GoldUse;
use serde::Deserialize;

use crate::builtin::built_in_rows;

/// An attribute with its word forms and a definition for the judge.
#[derive(Debug, Clone, Deserialize)]
pub struct KnownAttribute {
    /// As the user writes it.
    pub name: String,
    adjective: String,
    comparative: String,
    /// Its meaning in one or two sentences.
    pub definition: String,
}

/// Sorted by name.
pub static KNOWN: LazyLock<Vec<KnownAttribute>> = LazyLock::new(|| built_in_rows(include_str!("attributes.jsonl")));

/// The words for one attribute in a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttributeWords {
    /// `coherence`.
    pub attribute: String,
    /// `coherent`.
    pub adjective: String,
    /// `more coherent`.
    pub comparative: String,
}

/// The normalised form of an attribute for comparisons: lower case, with `-` for `_` and spaces.
pub fn plain(attribute: &str) -> String {
    attribute
        .to_lowercase()
        .split(|c: char| c == '_' || c == '-' || c.is_whitespace())
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join("-")
}

/// The entry of an attribute, by noun or adjective in its [`plain`] form.
pub fn lookup(attribute: &str) -> Option<&'static KnownAttribute> {
    let plain = plain(attribute);
    let name = match plain.as_str() {
        "overall" | "overall-quality" => "quality",
        "engagement" => "engagingness",
        "faithfulness" | "factuality" => "consistency",
        other => other,
    };
    KNOWN.iter().find(|known| known.name == name || known.adjective == name)
}

/// The known attribute that `attribute` is probably a misspelling of. `None` for known and unrelated words. The first
/// letter must match, so that `truthfulness` does not suggest `helpfulness`.
pub fn near_known_attribute(attribute: &str) -> Option<&'static str> {
    let first = |name: &str| name.trim_start().chars().next().map(|first| first.to_ascii_lowercase());
    let alike = KNOWN.iter().map(|known| known.name.as_str()).filter(|name| first(name) == first(attribute));
    probity_lm::nearest(attribute, alike).filter(|_| lookup(attribute).is_none())
}

/// Notes which attributes lack the gold scores that were requested, with the known attribute that may be meant.
pub fn note_absent_gold(uses: &[GoldUse<'_>], table: &mut Table) {
    let absent = uses.iter().filter(|one| one.wanted && !one.present).map(|GoldUse { attribute, .. }| {
        let meant = near_known_attribute(attribute);
        meant.map_or_else(|| (*attribute).to_owned(), |known| format!("{attribute} (did you mean {known}?)"))
    });
    let absent: Vec<String> = absent.collect();
    if !absent.is_empty() {
        table.note(format!("the data have no gold scores for {}", absent.join(", ")));
    }
}

/// The words for `attribute`. An unknown one without `adjective` is used unchanged, in a phrase that suits any noun.
pub fn attribute_words(attribute: &str, adjective: Option<&str>) -> AttributeWords {
    let attribute = attribute.trim().to_owned();
    if let Some(adjective) = adjective {
        return AttributeWords { attribute, adjective: adjective.to_owned(), comparative: format!("more {adjective}") };
    }
    match lookup(&attribute) {
        Some(KnownAttribute { adjective, comparative, .. }) => {
            AttributeWords { attribute, adjective: adjective.clone(), comparative: comparative.clone() }
        }
        None => AttributeWords {
            adjective: format!("good in terms of {attribute}"),
            comparative: format!("better in terms of {attribute}"),
            attribute,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nouns_and_adjectives_of_known_attributes_find_the_same_words() {
        for name in ["coherence", "Coherent", " coherence "] {
            let words = attribute_words(name, None);
            assert_eq!((words.adjective.as_str(), words.comparative.as_str()), ("coherent", "more coherent"));
        }
        assert_eq!(attribute_words("overall quality", None).comparative, "better");
        assert_eq!(attribute_words("instruction_following", None).comparative, "better at following the instruction");
    }

    #[test]
    fn an_unknown_attribute_is_used_in_a_grammatical_phrase() {
        assert_eq!(attribute_words("tone of voice", None).comparative, "better in terms of tone of voice");
        assert_eq!(attribute_words("tone of voice", Some("polite")).comparative, "more polite");
    }

    #[test]
    fn known_attributes_are_sorted_and_unique() {
        assert!(KNOWN.windows(2).all(|pair| pair[0].name < pair[1].name));
    }

    #[test]
    fn a_note_names_what_has_no_gold_with_the_nearest_attribute_and_only_where_gold_is_wanted() {
        let noted = |wanted| {
            let mut table = Table::new("t", ["c"]);
            note_absent_gold(&[GoldUse { attribute: "qualty", present: false, wanted }], &mut table);
            table.notes
        };
        assert_eq!(noted(true), ["the data have no gold scores for qualty (did you mean quality?)"]);
        assert!(noted(false).is_empty(), "with --no-gold the data may well have them");
    }
}

//! The indefinite article before a noun in prompts.

/// `a` or `an`, by the sound of the noun.
pub(crate) fn article(noun: &str) -> &'static str {
    // Vowel letters with a consonant sound, and the reverse.
    const SPOKEN_YOU_OR_ONE: [&str; 7] = ["eu", "one", "once", "unit", "univers", "usage", "use"];
    const SILENT_H: [&str; 3] = ["honest", "honour", "hour"];
    let noun = noun.trim_start().to_lowercase();
    let begins_with = |words: &[&str]| words.iter().any(|word| noun.starts_with(word));
    let is_vowel = noun.starts_with(['a', 'e', 'i', 'o', 'u']) && !begins_with(&SPOKEN_YOU_OR_ONE);
    if is_vowel || begins_with(&SILENT_H) { "an" } else { "a" }
}

/// A template's source with `a {{ noun }}` changed to `an {{ noun }}` if the noun needs it.
pub(crate) fn with_articles(source: &str, noun: &str) -> String {
    if article(noun) == "a" {
        return source.to_owned();
    }
    let (mut out, mut from) = (source.to_owned(), 0);
    while let Some(at) = out[from..].find("{{").map(|at| from + at) {
        let is_noun = out[at + 2..].trim_start_matches(['-', ' ']).starts_with("noun");
        let before = out[..at].strip_suffix(' ').and_then(|text| text.strip_suffix(['a', 'A']));
        let is_article = before.is_some_and(|text| !text.ends_with(char::is_alphanumeric));
        from = at + 2;
        if is_noun && is_article {
            out.insert(at - 1, 'n');
            from += 1;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_noun_that_begins_with_a_vowel_has_its_article() {
        for noun in ["answer", "Essay", "hour-long talk", "update"] {
            assert_eq!(article(noun), "an", "{noun}");
        }
        for noun in ["summary", "user story", "unit test", "one-liner", "EU law", "headline"] {
            assert_eq!(article(noun), "a", "{noun}");
        }
        let source = "A {{ noun }} is a {{noun}}, no extra {{ noun }}; a {{ comparative }} {{ noun }}";
        assert_eq!(with_articles(source, "summary"), source);
        let expected = "An {{ noun }} is an {{noun}}, no extra {{ noun }}; a {{ comparative }} {{ noun }}";
        assert_eq!(with_articles(source, "answer"), expected);
        assert_eq!(with_articles("a {{- noun }}{{", "answer"), "an {{- noun }}{{");
    }
}

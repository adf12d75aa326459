//! Name similarity for "did you mean" hints.

/// The most similar name in `names`, if similar enough.
pub fn nearest<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const LEAST: f64 = 0.6;
    // Wrong case (`Candidate`) is the most common typo and must not count as distance.
    let folded = name.to_lowercase();
    let characters = folded.chars().count() as f64;
    // The similarity is bounded by the ratio of the lengths, so very long names are skipped.
    let near = |n: &&str| {
        let other = n.chars().count() as f64;
        characters.min(other) >= LEAST * characters.max(other)
    };
    let scored =
        names.into_iter().filter(near).map(|n| (strsim::normalized_damerau_levenshtein(&folded, &n.to_lowercase()), n));
    // Ties go to the first in alphabetical order, so that the hint does not depend on the list's order.
    scored.filter(|(s, _)| *s >= LEAST).max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(a.1))).map(|(_, n)| n)
}

/// Suffix for an error about an unknown name: `; did you mean …?`, or empty without a similar name.
pub fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_name_needs_likeness() {
        assert_eq!(nearest("contxt", ["id", "context", "candidates"]), Some("context"));
        assert_eq!(nearest("Candidate", ["id", "context", "candidates"]), Some("candidates"));
        assert_eq!(nearest("zebra", ["id", "context", "candidates"]), None);
    }
}

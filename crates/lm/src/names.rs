//! The one measure of likeness behind every "did you mean".

/// The name among `names` that is most like `name`, where one is near enough to be meant.
pub fn nearest<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const LEAST: f64 = 0.6;
    // A wrong case alone (`Candidate`) is the commonest slip, and must not count as distance.
    let folded = name.to_lowercase();
    let characters = folded.chars().count() as f64;
    // The measure is never above the shorter one's share in the longer: a name of megabytes is not looked at.
    let near = |n: &&str| {
        let other = n.chars().count() as f64;
        characters.min(other) >= LEAST * characters.max(other)
    };
    let scored =
        names.into_iter().filter(near).map(|n| (strsim::normalized_damerau_levenshtein(&folded, &n.to_lowercase()), n));
    // Of equally near names the first by alphabet, so that the hint does not depend on the order of the list.
    scored.filter(|(s, _)| *s >= LEAST).max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(a.1))).map(|(_, n)| n)
}

/// What an error about an unknown name says next: `; did you mean …?`, or nothing where no name is near.
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

//! Porter's stemmer as in nltk, for ROUGE with stemming and METEOR.
//!
//! Porter, "An algorithm for suffix stripping", Program 14(3), 1980, with the additions of nltk's default mode
//! (`NLTK_EXTENSIONS`): a table of irregular words, `-ies`/`-ied` of short words, `-y` after a consonant only,
//! `-fulli`, `-logi`, and a two-letter vowel-consonant stem counting as *cvc*. The original algorithm of 1980 and
//! Snowball's English stemmer give other stems.

/// Irregular words, which are mapped to their stem first.
const IRREGULAR: &[(&str, &str)] = &[
    ("sky", "sky"),
    ("skies", "sky"),
    ("dying", "die"),
    ("lying", "lie"),
    ("tying", "tie"),
    ("news", "news"),
    ("innings", "inning"),
    ("inning", "inning"),
    ("outings", "outing"),
    ("outing", "outing"),
    ("cannings", "canning"),
    ("canning", "canning"),
    ("howe", "howe"),
    ("proceed", "proceed"),
    ("exceed", "exceed"),
    ("succeed", "succeed"),
];

/// Step 2: suffixes replaced if the part before them has a measure above zero.
const STEP2: &[(&str, &str)] = &[
    ("ational", "ate"),
    ("tional", "tion"),
    ("enci", "ence"),
    ("anci", "ance"),
    ("izer", "ize"),
    ("bli", "ble"),
    ("alli", "al"),
    ("entli", "ent"),
    ("eli", "e"),
    ("ousli", "ous"),
    ("ization", "ize"),
    ("ation", "ate"),
    ("ator", "ate"),
    ("alism", "al"),
    ("iveness", "ive"),
    ("fulness", "ful"),
    ("ousness", "ous"),
    ("aliti", "al"),
    ("iviti", "ive"),
    ("biliti", "ble"),
    ("fulli", "ful"),
];

/// Step 3, with the same condition.
const STEP3: &[(&str, &str)] =
    &[("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""), ("ness", "")];

/// Step 4: suffixes dropped if the part before them has a measure above one (`ion`: and ends in s or t).
const STEP4: &[&str] = &[
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism", "ate", "iti",
    "ous", "ive", "ize",
];

/// The stem of one word, in lower case. Characters outside a–z count as consonants; words of one or two characters are
/// only lower-cased.
pub(crate) fn porter(word: &str) -> String {
    let lower = word.to_lowercase();
    // Before the exception for short words, as in nltk.
    if let Some((_, stem)) = IRREGULAR.iter().find(|(irregular, _)| *irregular == lower) {
        return (*stem).to_owned();
    }
    if word.chars().nth(2).is_none() {
        return lower;
    }
    let mut word = Word(lower.chars().collect());
    word.plurals();
    word.past_and_gerund();
    word.final_y();
    word.step2();
    if let Some((stem, replacement)) = word.rule(STEP3) {
        word.replace_if(measure(&word.0[..stem]) > 0, stem, replacement);
    }
    word.step4();
    word.step5();
    word.0.into_iter().collect()
}

struct Word(Vec<char>);

impl Word {
    /// Step 1a.
    fn plurals(&mut self) {
        // nltk's addition: `dies` becomes `die` instead of `di`; `died` likewise below.
        if self.ends("ies") && self.0.len() == 4 {
            self.0.pop();
        } else if self.ends("sses") || self.ends("ies") {
            self.0.truncate(self.0.len() - 2);
        } else if self.ends("s") && !self.ends("ss") {
            self.0.pop();
        }
    }

    /// Step 1b.
    fn past_and_gerund(&mut self) {
        if let Some(stem) = self.before("ied") {
            self.0.truncate(if stem == 1 { stem + 2 } else { stem + 1 });
        } else if let Some(stem) = self.before("eed") {
            self.replace_if(measure(&self.0[..stem]) > 0, stem, "ee");
        } else if let Some(stem) = self.before("ed").or_else(|| self.before("ing"))
            && consonants(&self.0[..stem]).any(|consonant| !consonant)
        {
            self.0.truncate(stem);
            self.restore_ending();
        }
    }

    /// After a dropped `-ed` or `-ing`: restores a lost e, and reduces a doubled consonant.
    fn restore_ending(&mut self) {
        let length = self.0.len();
        if self.ends("at") || self.ends("bl") || self.ends("iz") {
            self.0.push('e');
        } else if self.ends_double_consonant() {
            if !self.0.last().is_some_and(|last| matches!(last, 'l' | 's' | 'z')) {
                self.0.pop();
            }
        } else if self.ends("*d") {
            // nltk writes the rule of doubled consonants as the pseudo-suffix `*d`, and also treats it as a real one.
            self.0.remove(length - 2);
        } else if measure(&self.0) == 1 && ends_cvc(&self.0) {
            self.0.push('e');
        }
    }

    /// Step 1c.
    fn final_y(&mut self) {
        if let Some(stem) = self.before("y")
            && stem > 1
            && consonants(&self.0[..stem]).last() == Some(true)
        {
            self.0[stem] = 'i';
        }
    }

    fn step2(&mut self) {
        // nltk's addition: -alli is cut first, and the rest goes through this step again.
        if let Some(stem) = self.before("alli")
            && measure(&self.0[..stem]) > 0
        {
            self.0.truncate(stem + 2);
        }
        if let Some((stem, replacement)) = self.rule(STEP2) {
            self.replace_if(measure(&self.0[..stem]) > 0, stem, replacement);
        } else if let Some(stem) = self.before("logi") {
            // The l counts as part of the stem, so that `geologi` and `theologi` lose their i too.
            self.replace_if(measure(&self.0[..=stem]) > 0, stem, "log");
        }
    }

    fn step4(&mut self) {
        let Some((suffix, stem)) = STEP4.iter().find_map(|suffix| Some((*suffix, self.before(suffix)?))) else {
            return;
        };
        let ending = suffix != "ion" || stem.checked_sub(1).is_some_and(|last| matches!(self.0[last], 's' | 't'));
        self.replace_if(ending && measure(&self.0[..stem]) > 1, stem, "");
    }

    fn step5(&mut self) {
        if let Some(stem) = self.before("e") {
            let before = &self.0[..stem];
            let measure = measure(before);
            self.replace_if(measure > 1 || (measure == 1 && !ends_cvc(before)), stem, "");
        }
        if self.ends("ll") && measure(&self.0[..self.0.len() - 1]) > 1 {
            self.0.pop();
        }
    }

    fn ends(&self, suffix: &str) -> bool {
        self.before(suffix).is_some()
    }

    /// Number of characters before the suffix, if the word ends with it. Suffixes are ASCII.
    fn before(&self, suffix: &str) -> Option<usize> {
        let stem = self.0.len().checked_sub(suffix.len())?;
        self.0[stem..].iter().rev().copied().eq(suffix.chars().rev()).then_some(stem)
    }

    /// The first rule with a matching suffix: no other rule is tried, even if its condition fails.
    fn rule(&self, rules: &[(&str, &'static str)]) -> Option<(usize, &'static str)> {
        rules.iter().find_map(|(suffix, replacement)| Some((self.before(suffix)?, *replacement)))
    }

    fn replace_if(&mut self, condition: bool, stem: usize, replacement: &str) {
        if condition {
            self.0.truncate(stem);
            self.0.extend(replacement.chars());
        }
    }

    fn ends_double_consonant(&self) -> bool {
        matches!(self.0.as_slice(), [.., a, b] if a == b) && consonants(&self.0).last() == Some(true)
    }
}

/// For each character, whether it is a consonant: not a, e, i, o, u, or y after a consonant.
fn consonants(word: &[char]) -> impl Iterator<Item = bool> + '_ {
    word.iter().scan(false, |previous, letter| {
        *previous = match letter {
            'a' | 'e' | 'i' | 'o' | 'u' => false,
            'y' => !*previous,
            _ => true,
        };
        Some(*previous)
    })
}

/// Porter's m: the number of vowel-consonant sequences.
fn measure(stem: &[char]) -> usize {
    let mut previous = true;
    consonants(stem).filter(|consonant| !std::mem::replace(&mut previous, *consonant) && *consonant).count()
}

/// Ends in consonant, vowel, consonant other than w, x, y; or is a vowel and a consonant.
fn ends_cvc(stem: &[char]) -> bool {
    let kinds: Vec<bool> = consonants(stem).collect();
    match kinds.as_slice() {
        [false, true] => true,
        [.., true, false, true] => !stem.last().is_some_and(|last| matches!(last, 'w' | 'x' | 'y')),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::porter;

    #[test]
    fn stems_are_those_of_nltk() {
        let golden: serde_json::Value =
            serde_json::from_str(include_str!("../../../tests/goldens/metrics/stems.json")).expect("JSON");
        let stems: Vec<(String, String)> = serde_json::from_value(golden["stems"].clone()).expect("pairs");
        assert!(stems.len() > 2000);
        let wrong: Vec<_> = stems
            .iter()
            .filter(|(word, stem)| porter(word) != *stem)
            .map(|(word, stem)| (word, stem, porter(word)))
            .collect();
        assert!(wrong.is_empty(), "word, nltk's stem, ours: {wrong:?}");
    }
}

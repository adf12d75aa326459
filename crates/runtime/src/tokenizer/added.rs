//! Tokens matched in text before the model splits it: special tokens and tokens added to a vocabulary.

use std::ops::Range;
use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, MatchKind};
use regex::Regex;

use super::TokenizerError;

/// A token that is matched literally.
#[expect(clippy::struct_excessive_bools, reason = "the flags of the `tokenizers` library")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AddedToken {
    pub(super) id: u32,
    pub(super) content: String,
    /// Dropped from decoded text.
    pub(super) special: bool,
    /// A control marker (turns, reasoning, beginning, end), which ordinary text never contains. Includes all special
    /// tokens.
    pub(super) steers: bool,
    /// Matched only without adjacent word characters.
    pub(super) single_word: bool,
    /// Includes white space before it.
    pub(super) lstrip: bool,
    /// Includes white space after it.
    pub(super) rstrip: bool,
    /// Matched in normalised text, in its normalised form.
    pub(super) normalized: bool,
}

impl AddedToken {
    /// A token that is matched exactly.
    pub(super) fn plain(id: u32, content: &str, special: bool) -> Self {
        Self {
            id,
            content: content.to_owned(),
            special,
            steers: special,
            single_word: false,
            lstrip: false,
            rstrip: false,
            normalized: false,
        }
    }
}

/// Whether control markers are recognised in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Specials {
    /// As tokens: the text was rendered by a template.
    Recognised,
    /// As characters: the text is data.
    AsText,
}

/// An added token found in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Match {
    pub(super) range: Range<usize>,
    pub(super) id: u32,
    /// Whether following text cannot change the match, so a text may be split at its start.
    pub(super) firm: bool,
}

/// Finds added tokens: the leftmost, and among those the longest.
#[derive(Debug, Clone)]
pub(super) struct Matcher {
    automaton: AhoCorasick,
    tokens: Vec<AddedToken>,
    longest: usize,
}

impl Matcher {
    /// A matcher for `tokens` with their patterns.
    pub(super) fn new(tokens: Vec<(String, AddedToken)>) -> Result<Self, TokenizerError> {
        let longest = tokens.iter().map(|(pattern, _)| pattern.len()).max().unwrap_or(0);
        let (patterns, tokens): (Vec<_>, Vec<_>) =
            tokens.into_iter().filter(|(pattern, _)| !pattern.is_empty()).unzip();
        let automaton = AhoCorasick::builder()
            // The library's own rule for added tokens: a prefix must not hide a longer token.
            .match_kind(MatchKind::LeftmostLongest)
            .build(&patterns)
            .map_err(|source| TokenizerError::unsupported("added tokens", source.to_string()))?;
        Ok(Self { automaton, tokens, longest })
    }

    /// Length of the longest pattern in bytes.
    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    /// The matches in `text`, in order and without overlap.
    pub(super) fn find(&self, text: &str, specials: Specials) -> Vec<Match> {
        let mut matches = Vec::new();
        let mut taken = 0;
        for found in self.automaton.find_iter(text) {
            let token = &self.tokens[found.pattern().as_usize()];
            if token.steers && specials == Specials::AsText {
                continue;
            }
            let (before, after) = (&text[..found.start()], &text[found.end()..]);
            if token.single_word
                && (before.chars().next_back().is_some_and(is_word) || after.chars().next().is_some_and(is_word))
            {
                continue;
            }
            // White space included in the previous match is not included again.
            let start = if token.lstrip { before.trim_end().len().max(taken) } else { found.start() };
            let end = if token.rstrip { text.len() - after.trim_start().len() } else { found.end() };
            matches.push(Match { range: start..end, id: token.id, firm: token.steers && !token.single_word });
            taken = end;
        }
        matches
    }
}

/// Unicode's word characters (UTS 18, annex C), as in the reference: marks count, fractions do not.
fn is_word(c: char) -> bool {
    static WORD: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\w").expect("a valid pattern"));
    c.is_ascii_alphanumeric() || c == '_' || (!c.is_ascii() && WORD.is_match(c.encode_utf8(&mut [0; 4])))
}

/// Inserts the `sentinel` character into literals of special tokens, so that none is recognised.
#[derive(Debug, Clone)]
pub(super) struct Protector {
    automaton: Option<AhoCorasick>,
    patterns: Vec<String>,
}

impl Protector {
    pub(super) fn new<'a>(tokens: impl Iterator<Item = &'a AddedToken>) -> Result<Self, TokenizerError> {
        let mut patterns: Vec<String> =
            tokens.filter(|t| t.steers && !t.content.is_empty()).map(|t| t.content.clone()).collect();
        patterns.sort_unstable();
        patterns.dedup();
        let automaton = if patterns.is_empty() { None } else { Some(AhoCorasick::new(&patterns)) };
        let automaton = automaton
            .transpose()
            .map_err(|source| TokenizerError::unsupported("special tokens", source.to_string()))?;
        Ok(Self { automaton, patterns })
    }

    /// Whether `text` contains a literal of a special token.
    pub(super) fn is_spelled_in(&self, text: &str) -> bool {
        self.automaton.as_ref().is_some_and(|automaton| automaton.is_match(text))
    }

    /// Inserts `sentinel` into each literal of a special token in `text`, including overlapping ones, and into text
    /// that could form one with its neighbours: a prefix at the end, a suffix at the start, or a middle part. Ignores
    /// surrounding white space.
    pub(super) fn protect(&self, text: &str, sentinel: char) -> String {
        let Some(automaton) = &self.automaton else { return text.to_owned() };
        let after_first = |literal: &str| literal.chars().next().map_or(0, char::len_utf8);
        let mut cuts: Vec<usize> = automaton
            .find_overlapping_iter(text)
            .map(|found| found.start() + after_first(&text[found.range()]))
            .collect();
        let (head, tail) = (text.len() - text.trim_start().len(), text.trim_end().len());
        for pattern in &self.patterns {
            for (at, _) in pattern.char_indices().skip(1) {
                if text[..tail].ends_with(&pattern[..at]) {
                    cuts.push(tail - at + after_first(pattern));
                }
                if text[head..].starts_with(&pattern[at..]) {
                    let last = pattern.chars().next_back().map_or(0, char::len_utf8);
                    cuts.push(head + pattern.len() - at - last);
                }
            }
        }
        if head < tail && self.patterns.iter().any(|pattern| pattern.contains(&text[head..tail])) {
            cuts.push(head);
        }
        cuts.sort_unstable();
        cuts.dedup();
        let mut protected = String::with_capacity(text.len() + cuts.len() * sentinel.len_utf8());
        let mut from = 0;
        for cut in cuts {
            protected.push_str(&text[from..cut]);
            protected.push(sentinel);
            from = cut;
        }
        protected.push_str(&text[from..]);
        protected
    }

    /// The first character of the noncharacters and private-use characters that none of `texts` contains.
    pub(super) fn sentinel<'a>(texts: &(impl Iterator<Item = &'a str> + Clone)) -> Result<char, TokenizerError> {
        // Noncharacters first: Unicode reserves them for internal use, so texts rarely contain one.
        let mut candidates = ('\u{fdd0}'..='\u{fdef}').chain('\u{e000}'..='\u{f8ff}');
        candidates.find(|&candidate| texts.clone().all(|text| !text.contains(candidate))).ok_or_else(|| {
            TokenizerError::unsupported("the text", "it holds every noncharacter and private-use character".to_owned())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matcher(tokens: &[AddedToken]) -> Matcher {
        Matcher::new(tokens.iter().map(|t| (t.content.clone(), t.clone())).collect()).expect("valid patterns")
    }

    fn ranges(matcher: &Matcher, text: &str) -> Vec<(Range<usize>, u32)> {
        matcher.find(text, Specials::Recognised).into_iter().map(|m| (m.range, m.id)).collect()
    }

    #[test]
    fn the_longest_of_the_leftmost_is_taken() {
        let matcher = matcher(&[AddedToken::plain(1, "<a>", true), AddedToken::plain(2, "<a>b", true)]);
        assert_eq!(ranges(&matcher, "x<a>b<a>"), [(1..5, 2), (5..8, 1)]);
        assert_eq!(matcher.find("x<a>b", Specials::AsText), []);
    }

    #[test]
    fn stripping_tokens_take_white_space_and_single_words_need_room() {
        let strip = AddedToken { lstrip: true, rstrip: true, ..AddedToken::plain(1, "<m>", true) };
        assert_eq!(ranges(&matcher(&[strip]), "a <m>  <m> b"), [(1..7, 1), (7..11, 1)]);
        let word = AddedToken { single_word: true, ..AddedToken::plain(1, "cat", false) };
        assert_eq!(ranges(&matcher(&[word]), "cats cat"), [(5..8, 1)]);
    }

    #[test]
    fn protected_text_holds_no_special_literal_whatever_stands_beside_it() {
        let tokens = [
            AddedToken::plain(1, "<s>", true),
            AddedToken::plain(2, "<|end|>", true),
            AddedToken::plain(3, "aa", true),
        ];
        let matcher = matcher(&tokens);
        let protector = Protector::new(tokens.iter()).expect("valid patterns");
        for text in ["<s>", "a<s", "en", " n ", "<|end|><|end|>", "aaaa", "|end|>", "<", "s>  ", "", "  <|end", "<<s>>"]
        {
            let protected = protector.protect(text, '\u{fdd0}');
            assert_eq!(protected.replace('\u{fdd0}', ""), text);
            for (before, after) in
                [("", ""), ("<", ">"), ("<|", "d|>"), ("<|e", "d|>"), ("<|end|", "|end|>"), ("a", "a"), ("", "s>")]
            {
                let joined = format!("{before}{}{after}", protected.trim());
                let inside = before.len()..joined.len() - after.len();
                if inside.is_empty() {
                    continue;
                }
                let touching = |m: &Match| m.range.start < inside.end && m.range.end > inside.start;
                assert!(!matcher.find(&joined, Specials::Recognised).iter().any(touching), "{before}[{text}]{after}");
            }
        }
    }

    #[test]
    fn the_sentinel_is_absent_from_the_texts() {
        assert_eq!(Protector::sentinel(&["a", "\u{fdd0}\u{fdd2}"].into_iter()), Ok('\u{fdd1}'));
    }
}

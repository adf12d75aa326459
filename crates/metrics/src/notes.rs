//! Notes on the limitations of scores. The scores themselves equal those of the tool.

use std::sync::LazyLock;

use regex::Regex;

use crate::MetricError;
use crate::metric::{Metric, MetricItem, MetricScores, MetricSettings, Score, Watch};

const ALL_BLANK: &str = "the candidate and all references are blank";
const BLANK_REFERENCES: &str = "all references are blank, so there is nothing to compare with";

/// A metric's note for texts in scripts without spaces, with a suggested fix.
macro_rules! no_spaces {
    ($advice:literal) => {
        concat!(
            "the texts are in a script without spaces between words, and the metric cuts words at spaces; ",
            $advice
        )
    };
}
pub(crate) use no_spaces;

/// A metric with the notes that apply to all metrics.
pub(crate) struct Noted {
    pub(crate) metric: Box<dyn Metric>,
    /// Whether it uses references.
    pub(crate) has_references: bool,
}

impl Metric for Noted {
    fn settings(&self) -> MetricSettings {
        self.metric.settings()
    }

    fn item_settings(&self) -> MetricSettings {
        self.metric.item_settings()
    }

    fn note_without_spaces(&self) -> Option<&'static str> {
        self.metric.note_without_spaces()
    }

    fn score(&self, items: &[MetricItem<'_>], watch: Watch<'_>) -> Result<MetricScores, MetricError> {
        let mut scores = self.metric.score(items, watch)?;
        let notes: Vec<Option<&str>> = items.iter().map(|item| self.note(item)).collect();
        for (row, note) in scores.items.iter_mut().zip(&notes) {
            add_note(row, *note);
        }
        // A note on every item also applies to the corpus.
        if notes.windows(2).all(|pair| pair[0] == pair[1]) {
            add_note(&mut scores.corpus, notes.first().copied().flatten());
        }
        Ok(scores)
    }
}

impl Noted {
    fn note(&self, item: &MetricItem<'_>) -> Option<&'static str> {
        let is_blank = |text: &str| text.trim().is_empty();
        if self.has_references && item.references.iter().all(|reference| is_blank(reference)) {
            return Some(if is_blank(item.candidate) { ALL_BLANK } else { BLANK_REFERENCES });
        }
        self.note_without_spaces().filter(|_| lacks_spaces(item))
    }
}

/// Adds a note to the numbers of a row. It replaces the metric's own note, which is a consequence.
fn add_note(row: &mut [Score], note: Option<&'static str>) {
    for score in row {
        if let (Some(value), Some(note)) = (score.value(), note) {
            *score = Score::Noted(value, note);
        }
    }
}

/// Whether the candidate or a reference has a run of characters that must be several words.
fn lacks_spaces(item: &MetricItem<'_>) -> bool {
    // Chinese and Japanese words rarely have five characters; those of the others may have ten.
    static RUN: LazyLock<Regex> = LazyLock::new(|| {
        let rule = r"[\p{Han}\p{Hiragana}\p{Katakana}]{5}|[\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]{16}";
        Regex::new(rule).expect("a valid pattern")
    });
    // A whole text without a space is rarely one word: 猫坐垫, ภาษาไทย.
    static WHOLE: LazyLock<Regex> = LazyLock::new(|| {
        let rule = r"[\p{Han}\p{Hiragana}\p{Katakana}]{3}|[\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]{6}";
        Regex::new(rule).expect("a valid pattern")
    });
    let is_whole = |text: &str| !text.trim().contains(char::is_whitespace) && WHOLE.is_match(text);
    let lacks = |text: &&&str| !text.is_ascii() && (RUN.is_match(text) || is_whole(text));
    [item.candidate].iter().chain(&item.references).any(|text| lacks(&text))
}

#[cfg(test)]
mod tests {
    use crate::{MetricItem, MetricModels, Score, choose};

    fn scores(metric: &str, candidate: &str, reference: &str) -> [Score; 2] {
        let items = [MetricItem { candidate, references: vec![reference], source: Some(candidate) }];
        let metric = choose(metric).expect("registered")[0].build(&MetricModels::default()).expect("options suit");
        let scores = metric.score(&items, &|_| Ok(())).expect("scored");
        [scores.items[0][0], scores.corpus[0]]
    }

    /// The scores of the item and of the corpus, and parts of their notes.
    fn check(metric: &str, [candidate, reference]: [&str; 2], expected: [f64; 2], notes: [&str; 2]) {
        for ((score, expected), note) in scores(metric, candidate, reference).into_iter().zip(expected).zip(notes) {
            let text = score.why().unwrap_or_default();
            let is_near = score.value().is_some_and(|value| (value - expected).abs() < 1e-9);
            assert!(is_near && text.contains(note) && text.is_empty() == note.is_empty(), "{metric}: {score:?}");
        }
    }

    #[test]
    fn blank_texts_keep_the_number_of_the_tool_and_say_so() {
        let (text, blank) = (["Blue Harbor is open", " "], ["", ""]);
        // sacrebleu 2.6.0
        check("bleu", text, [0.0; 2], ["all references are blank"; 2]);
        check("bleu", blank, [0.0; 2], ["the candidate and all references are blank"; 2]);
        check("ter", text, [100.0; 2], ["all references are blank"; 2]);
        check("ter", blank, [0.0; 2], ["the candidate and all references are blank"; 2]);
        check("chrf", text, [0.0; 2], ["all references are blank"; 2]);
        check("chrf", blank, [0.0; 2], ["the candidate and all references are blank"; 2]);
        // rouge_score 0.1.2
        check("rouge-l", text, [0.0; 2], ["all references are blank"; 2]);
        check("rouge-l", blank, [0.0; 2], ["the candidate and all references are blank"; 2]);
        check("token-f1", blank, [1.0; 2], ["the candidate and all references are blank"; 2]);
        // An empty candidate is wrong, and its score shows it.
        check("bleu", ["", "Blue Harbor is open"], [0.0; 2], [""; 2]);
        check("ter", ["", "Blue Harbor is open"], [100.0; 2], [""; 2]);
        check("rouge-l", ["", "Blue Harbor is open"], [0.0; 2], [""; 2]);
    }

    #[test]
    fn short_texts_say_what_is_not_counted() {
        let same = ["Blue Harbor"; 2];
        check("bleu", same, [100.0, 0.0], ["counts only the shorter ones, and so does the mean", "so the score is 0"]);
        check("bleu:eff=yes", same, [100.0; 2], ["counts only the shorter ones"; 2]);
        check("bleu:eff=no", same, [0.0; 2], ["so the score is 0"; 2]);
        check("bleu:order=2", same, [100.0; 2], [""; 2]);
        check("bleu", ["Blue Harbor is open"; 2], [100.0; 2], [""; 2]);
        check("rouge-2", ["Harbor"; 2], [0.0; 2], ["fewer words than the n-grams"; 2]);
        check("gleu-napoles", same, [1.0, 0.0], ["", "so the score is 0"]);
        check("gleu-napoles", ["", "Blue Harbor is open"], [(-3_f64).exp(), 0.0], ["counts zeros as ones", ""]);
        check("meteor", ["Harbor"; 2], [0.5; 2], ["a single word"; 2]);
        check("meteor", same, [0.9375; 2], [""; 2]);
    }

    #[test]
    fn scripts_without_spaces_are_named_where_words_are_cut_at_spaces() {
        let (chinese, thai) = (["会议改到周二", "会议改到周三"], ["การประชุมเลื่อนไปเป็นวันอังคาร"; 2]);
        check("bleu", chinese, [0.0; 2], ["without spaces"; 2]);
        check("meteor", chinese, [0.0; 2], ["without spaces"; 2]);
        check("gleu-google", chinese, [0.0; 2], ["without spaces"; 2]);
        check("token-f1", thai, [1.0; 2], ["without spaces"; 2]);
        check("ter", chinese, [100.0; 2], ["without spaces"; 2]);
        for text in ["猫坐垫", "ภาษาไทย"] {
            check("bleu", [text; 2], [100.0, 0.0], ["tok=char"; 2]);
            check(
                "bleu:tok=char",
                [text; 2],
                [100.0, if text == "猫坐垫" { 0.0 } else { 100.0 }],
                if text == "猫坐垫" { ["counts only the shorter", "so the score is 0"] } else { [""; 2] },
            );
            check("ter", [text; 2], [0.0; 2], ["asian=yes,normalized=yes"; 2]);
            // A metric suggests only its own options.
            assert!(scores("ter", text, text)[0].why().is_some_and(|why| !why.contains("tok=char")), "{text}");
        }
        // One word.
        check("bleu", ["猫"; 2], [100.0, 0.0], ["counts only the shorter", "so the score is 0"]);
        check("ter", ["猫"; 2], [0.0; 2], [""; 2]);
        check("ter:asian=yes,normalized=yes", chinese, [100.0 / 6.0; 2], [""; 2]);
        assert!(
            scores("sari-easse", chinese[0], chinese[1])[0].why().is_some_and(|why| why.contains("without spaces"))
        );
        // sacrebleu 2.6.0: 75.98, from 5/6, 4/5, 3/4 and 2/3 n-grams in common
        let bleu = 100.0 * (5.0 / 6.0 * 4.0 / 5.0 * 3.0 / 4.0 * 2.0 / 3.0_f64).powf(0.25);
        check("bleu", [chinese[0]; 2], [100.0, 0.0], ["without spaces"; 2]);
        check("bleu:tok=zh", chinese, [bleu; 2], [""; 2]);
        check("bleu:tok=char", chinese, [bleu; 2], [""; 2]);
        check("bleu", ["会议 改到 周二 下午"; 2], [100.0; 2], [""; 2]);
        assert_eq!(scores("chrf", chinese[0], chinese[0]), [Score::Value(100.0); 2]);
    }

    #[test]
    fn rouge_is_undefined_for_texts_that_it_cannot_read() {
        for text in ["会议改到周二", "การประชุม", "اجتماع يوم الثلاثاء", "Встреча во вторник", "😀👍"]
        {
            for metric in ["rouge-1", "rouge-2", "rouge-l", "rouge-lsum", "rouge-l:stem=yes"] {
                let [item, corpus] = scores(metric, text, text);
                assert!(item.value().is_none() && corpus.value().is_none(), "{metric} of {text}: {item:?} {corpus:?}");
                assert!(item.why().is_some_and(|why| why.contains("tok=unicode")), "{item:?}");
            }
            for metric in ["rouge-1:tok=unicode", "rouge-l:tok=unicode", "rouge-lsum:tok=unicode,stem=yes"] {
                assert_eq!(scores(metric, text, text)[0], Score::Value(1.0), "{metric} of {text}");
            }
        }
        // A text in another script than the reference shares nothing with it.
        check("rouge-l", ["会议改到周二", "The meeting is on Tuesday"], [0.0; 2], [""; 2]);
        check("rouge-l", ["", "会议改到周二"], [0.0; 2], [""; 2]);
        check("rouge-1", ["会议 2024", "天气 2024"], [1.0; 2], ["most letters"; 2]);
        // rouge_score 0.1.2 with a tokenizer that splits at UAX #29's word boundaries
        check("rouge-l:tok=unicode", ["会议改到周二", "会议改到周三"], [5.0 / 6.0; 2], [""; 2]);
        check("rouge-1", ["The café is open", "The café is open"], [1.0; 2], [""; 2]);
    }
}

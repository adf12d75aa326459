//! The usual form of preference training data: `prompt`, `chosen`, `rejected`.

use std::fmt;

use crate::conversation::before_the_answer;
use crate::mapping::{Field, MapEntry, Mapping};
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Possible names of the prompt column, in order of precedence.
const PROMPTS: [&str; 3] = ["prompt", "question", "instruction"];

/// The mapping of preference columns. Without a prompt column the prompt must come from the conversations or the user's
/// mapping: an answer cannot be judged without its question.
pub(crate) fn mapping(has: impl Fn(&str) -> bool, prompt_is_known: bool) -> Option<Mapping> {
    let prompt = PROMPTS.into_iter().find(|name| has(name));
    if !has("chosen") || !has("rejected") || (prompt.is_none() && !prompt_is_known) {
        return None;
    }
    let context = ["context", "input"].into_iter().find(|name| has(name));
    let context =
        MapEntry { field: Field::Context, constant: context.is_none(), column: context.unwrap_or_default().to_owned() };
    let id = has("id").then(|| "id=id".to_owned());
    let prompt = prompt.map(|name| format!("instruction={name}"));
    let answers = ["candidate.chosen=chosen", "candidate.rejected=rejected", "preference:=chosen"].map(str::to_owned);
    let entries = id.into_iter().chain(prompt).chain(answers);
    let entries = entries.map(|entry| entry.parse().expect("an entry")).chain([context]);
    Some(Mapping::new(entries).expect("each field once"))
}

/// What the first row of JSON lines or of an array shows about all rows.
#[derive(Default)]
pub(crate) struct FirstRow {
    pub(crate) keys: Vec<String>,
    pub(crate) chosen_is_a_conversation: bool,
}

impl FirstRow {
    /// Parses the first row at the beginning of a file; `start` may be truncated.
    pub(crate) fn read(start: &[u8]) -> Self {
        let mut first = Self::default();
        // Errors are reported by the row reader; a truncated row has shown its keys up to that point.
        let _ = serde_json::Deserializer::from_slice(start).deserialize_any(&mut first);
        first
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.keys.iter().any(|key| key == name)
    }
}

impl<'de> Visitor<'de> for &mut FirstRow {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a row or a list of rows")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut row: A) -> Result<(), A::Error> {
        while let Some(key) = row.next_key::<String>()? {
            let is_chosen = key == "chosen";
            self.keys.push(key);
            if is_chosen {
                self.chosen_is_a_conversation = before_the_answer(&row.next_value()?).is_some();
            } else {
                // Skipped without being built: a row may hold megabytes.
                row.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut rows: A) -> Result<(), A::Error> {
        rows.next_element_seed(self).map(drop)
    }
}

impl<'de> serde::de::DeserializeSeed<'de> for &mut FirstRow {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, row: D) -> Result<(), D::Error> {
        row.deserialize_any(self)
    }
}

#[cfg(test)]
mod tests {
    use crate::error::hint_of;
    use crate::{Preference, Sample, SampleSource};

    fn samples(name: &str, content: &str) -> Vec<Sample> {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join(name);
        std::fs::write(&path, content).expect("written");
        SampleSource::new(path).samples().unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn pairs_for_training_are_samples_as_they_are_published() {
        let plain = r#"{"prompt": "Why?", "chosen": "Because.", "rejected": "No."}"#;
        let messages = r#"{"prompt": [{"role": "user", "content": "Why?"}], "chosen": [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "Because."}], "rejected": [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "No."}]}"#;
        let without = r#"{"chosen": [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "Because."}], "rejected": [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "No."}]}"#;
        let array = format!("[{plain},\n {plain}]");
        for (name, content) in [
            ("p.jsonl", plain),
            ("m.jsonl", messages),
            ("w.jsonl", without),
            ("a.json", &array),
            ("t.csv", "prompt,chosen,rejected\nWhy?,Because.,No.\n"),
        ] {
            let all = samples(name, content);
            let one = &all[0];
            assert_eq!(
                (one.instruction.as_deref(), &*one.candidates[0].text, &*one.candidates[1].text),
                (Some("Why?"), "Because.", "No."),
                "{name}"
            );
            assert_eq!((&one.preference, &*one.context), (&Some(Preference::Candidate("chosen".into())), ""), "{name}");
        }
        assert_eq!(samples("a.json", &array).len(), 2);
    }

    #[test]
    fn an_answer_without_its_question_is_refused_and_other_names_of_it_are_found() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("p.jsonl");
        std::fs::write(&path, r#"{"chosen": "Because.", "rejected": "No."}"#).expect("written");
        let told = SampleSource::new(&path).samples().expect_err("refused");
        assert!(told.to_string().contains("`chosen` and `rejected` but no prompt"), "{told}");
        assert!(hint_of(&told).contains("--map instruction=COLUMN"), "{told:?}");
        let columns = samples("t.csv", "id,question,chosen,rejected\nq-7,Why?,Because.,No.\n");
        assert_eq!((columns[0].id.as_str(), columns[0].instruction.as_deref()), ("q-7", Some("Why?")));
        let named = r#"{"id": "q-7", "instruction": "Sum up", "input": "A text.", "chosen": "a", "rejected": "b"}"#;
        let one = &samples("n.jsonl", named)[0];
        assert_eq!((one.id.as_str(), one.instruction.as_deref(), &*one.context), ("q-7", Some("Sum up"), "A text."));
        for (name, content) in [
            ("r.csv", "prompt,chosen,rejected,reference\nWhy?,Because.,No.,So it is.\n"),
            ("r.jsonl", r#"{"prompt": "Why?", "chosen": "Because.", "rejected": "No.", "reference": "So it is."}"#),
        ] {
            assert_eq!(samples(name, content)[0].references.len(), 1, "{name}");
        }
        // The word "chosen" inside a text does not make a preference file.
        let own =
            r#"{"id": "1", "context": "\"chosen\" \"rejected\" \"prompt\"", "candidates": [{"id": "a", "text": "b"}]}"#;
        assert_eq!(samples("o.jsonl", own)[0].candidates.len(), 1);
    }

    #[test]
    fn the_chosen_answer_stands_first_in_every_other_sample_and_a_long_first_row_is_read_whole() {
        let row = |text: &str| format!("{{\"chosen\": \"{text}\", \"rejected\": \"No.\", \"prompt\": \"Why?\"}}\n");
        let long = "x".repeat(300_000);
        let all = samples("p.jsonl", &[row(&long), row("Because."), row("Because.")].concat());
        assert_eq!(all[0].candidates[0].text.len(), 300_000);
        let first: Vec<&str> = all.iter().map(|sample| sample.candidates[0].id.as_str()).collect();
        assert_eq!(first, ["chosen", "rejected", "chosen"]);
    }

    #[test]
    fn of_several_turns_the_prompt_has_all_that_was_said_before_the_answer() {
        let turns = r#"{"chosen": [{"role": "user", "content": "A?"}, {"role": "assistant", "content": "B."}, {"role": "user", "content": "C?"}, {"role": "assistant", "content": "D."}], "rejected": [{"role": "user", "content": "A?"}, {"role": "assistant", "content": "B."}, {"role": "user", "content": "C?"}, {"role": "assistant", "content": "E."}]}"#;
        let one = &samples("t.jsonl", turns)[0];
        assert_eq!(one.instruction.as_deref(), Some("user: A?\n\nassistant: B.\n\nuser: C?"));
        assert_eq!(one.candidates[0].text, "D.");
    }

    #[test]
    fn conversations_that_do_not_answer_one_question_are_refused() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("p.jsonl");
        let turn = |role: &str, content: &str| format!("{{\"role\": \"{role}\", \"content\": \"{content}\"}}");
        let talk = |turns: &[(&str, &str)]| {
            format!("[{}]", turns.iter().map(|(r, c)| turn(r, c)).collect::<Vec<_>>().join(", "))
        };
        let read = |prompt: &str, chosen: &[(&str, &str)], rejected: &[(&str, &str)]| {
            let prompt = if prompt.is_empty() { String::new() } else { format!("\"prompt\": \"{prompt}\", ") };
            std::fs::write(
                &path,
                format!("{{{prompt}\"chosen\": {}, \"rejected\": {}}}", talk(chosen), talk(rejected)),
            )
            .expect("written");
            SampleSource::new(&path).samples().map_err(|error| error.to_string())
        };
        let (u, a) = ("user", "assistant");
        let whole = read("q", &[(u, "q"), (a, "a1"), (u, "q2"), (a, "x")], &[(u, "q"), (a, "a1"), (u, "q2"), (a, "y")])
            .expect("read");
        assert_eq!(whole[0].instruction.as_deref(), Some("user: q\n\nassistant: a1\n\nuser: q2"), "no turn is lost");
        let told = read("q", &[(u, "q"), (a, "x"), (u, "more?")], &[(u, "q"), (a, "y")]).expect_err("refused");
        assert!(told.contains("its last message is from the user"), "{told}");
        let told = read("", &[(u, "q"), (a, "x")], &[(u, "q2"), (a, "y")]).expect_err("refused");
        assert!(told.contains("differs from that in `chosen`"), "{told}");
        let told = read("other", &[(u, "q"), (a, "x")], &[(u, "q"), (a, "y")]).expect_err("refused");
        assert!(told.contains("does not contain the row's prompt"), "{told}");
    }

    #[test]
    fn what_a_value_means_may_be_a_place_among_candidates_with_names() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("r.jsonl");
        let row = r#"{"prompt": "q", "responses": [{"text": "x", "model": "gpt"}, {"text": "y", "model": "llama"}], "label": 1}"#;
        std::fs::write(&path, row).expect("written");
        let map = [
            "context=prompt", "candidate=responses[].text", "candidate-id=responses[].model", "preference=label",
            "preference.0=1", "preference.1=2",
        ];
        let map = crate::Mapping::new(map.iter().map(|entry| entry.parse().expect("an entry"))).expect("a mapping");
        let read = SampleSource { map, ..SampleSource::new(path) }.samples().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(read[0].preference, Some(Preference::Candidate("llama".into())));
    }

    #[test]
    fn a_path_that_leads_to_nothing_in_any_row_is_told() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("r.jsonl");
        std::fs::write(
            &path,
            "{\"q\": \"a\", \"t\": [\"x\"], \"o\": \"y\"}\n{\"q\": \"a\", \"t\": [\"x\", \"z\"], \"o\": \"y\"}\n",
        )
        .expect("written");
        let read = |second: &str| {
            let map = ["context=q", &format!("candidate.first={second}"), "candidate=o"]
                .map(|entry| entry.parse().expect("an entry"));
            SampleSource { map: crate::Mapping::new(map).expect("a mapping"), ..SampleSource::new(&path) }.samples()
        };
        let told = read("t[-9]").expect_err("refused").to_string();
        assert!(told.contains("column `t[-9]` (candidate.first): it has no value in any row"), "{told}");
        assert_eq!(read("t[1]").expect("there in one row").len(), 2);
    }

    #[test]
    fn an_excel_workbook_is_told_as_what_it_is_and_a_decimal_comma_too() {
        let folder = tempfile::tempdir().expect("folder");
        let refused = |name: &str, content: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, content).expect("written");
            SampleSource::new(path).samples().expect_err("refused")
        };
        let told = refused("s.xlsx", b"PK\x03\x04rest");
        assert!(told.to_string().contains("an Excel workbook (.xlsx)"), "{told}");
        for start in [&b"\xff\xfei\0d\0"[..], b"\xfe\xff\0i\0d", b"i\0d\0\n\0", b"\0i\0d\0\n"] {
            assert!(refused("s.csv", start).to_string().contains("UTF-16 text"));
        }
        assert!(hint_of(&told).contains("save the sheet as CSV"), "{told:?}");
        let told = refused("s.csv", b"context;candidate;score.flu\na;b;0,5\n");
        assert_eq!(hint_of(&told), "write a decimal point instead of a comma: 0.5, not 0,5");
    }
}

//! The form in which preferences are published for training: `prompt`, `chosen`, `rejected`.

use serde_json::Value;

use crate::mapping::{Field, MapEntry, Mapping};

/// What the rows of a file of JSON lines, or an array, are as samples, where the first of them has that form.
pub(crate) fn mapping_of(start: &[u8]) -> Option<Mapping> {
    let has = |name: &str| {
        let quoted = format!("\"{name}\"");
        start.windows(quoted.len()).any(|window| window == quoted.as_bytes())
    };
    (!has("candidates")).then(|| mapping(has)).flatten()
}

/// The same of columns.
pub(crate) fn mapping(has: impl Fn(&str) -> bool) -> Option<Mapping> {
    if !has("chosen") || !has("rejected") {
        return None;
    }
    // Where the prompt is a part of the conversations it is found there.
    let context = MapEntry { field: Field::Context, constant: true, column: String::new() };
    let prompt: &[&str] = if has("prompt") { &["instruction=prompt"] } else { &[] };
    let entries = prompt.iter().chain(&["candidate.chosen=chosen", "candidate.rejected=rejected", "preference:=chosen"]);
    let entries = entries.map(|entry| entry.parse().expect("an entry")).chain([context]);
    Some(Mapping::new(entries).expect("each field once"))
}

/// Messages as one text: of one, or of an answer, its content; else every turn with who says it. `None` of what is no list of messages.
pub(crate) fn conversation(value: &Value, last_alone: bool) -> Option<String> {
    let messages = value.as_array().filter(|messages| !messages.is_empty())?;
    let turn = |message: &Value| Some((message["role"].as_str()?.to_owned(), message["content"].as_str()?.to_owned()));
    let turns: Vec<(String, String)> = messages.iter().map(turn).collect::<Option<_>>()?;
    match (&turns[..], last_alone) {
        ([.., (_, content)], true) | ([(_, content)], _) => Some(content.clone()),
        _ => Some(turns.iter().map(|(role, content)| format!("{role}: {content}")).collect::<Vec<_>>().join("\n\n")),
    }
}

/// What was said before the answer that a list of messages ends in.
pub(crate) fn before_the_answer(value: &Value) -> Option<String> {
    let messages = value.as_array()?;
    let (_, before) = messages.split_last()?;
    conversation(&Value::Array(before.to_vec()), false)
}

#[cfg(test)]
mod tests {
    use crate::{Preference, Sample, Source};

    fn samples(name: &str, content: &str) -> Vec<Sample> {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join(name);
        std::fs::write(&path, content).expect("written");
        Source::new(path).samples().unwrap_or_else(|error| panic!("{error}"))
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
                (one.instruction.as_deref(), one.candidates[0].text.as_str(), one.candidates[1].text.as_str()),
                (Some("Why?"), "Because.", "No."),
                "{name}"
            );
            assert_eq!((&one.preference, one.context.as_str()), (&Some(Preference::Candidate("chosen".into())), ""), "{name}");
        }
        assert_eq!(samples("a.json", &array).len(), 2);
    }

    #[test]
    fn of_several_turns_the_prompt_has_all_that_was_said_before_the_answer() {
        let turns = r#"{"chosen": [{"role": "user", "content": "A?"}, {"role": "assistant", "content": "B."}, {"role": "user", "content": "C?"}, {"role": "assistant", "content": "D."}], "rejected": [{"role": "user", "content": "A?"}, {"role": "assistant", "content": "E."}]}"#;
        let one = &samples("t.jsonl", turns)[0];
        assert_eq!(one.instruction.as_deref(), Some("user: A?\n\nassistant: B.\n\nuser: C?"));
        assert_eq!(one.candidates[0].text, "D.");
    }

    #[test]
    fn what_a_value_means_may_be_a_place_among_candidates_with_names() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("r.jsonl");
        let row = r#"{"prompt": "q", "responses": [{"text": "x", "model": "gpt"}, {"text": "y", "model": "llama"}], "label": 1}"#;
        std::fs::write(&path, row).expect("written");
        let map = [
            "context=prompt",
            "candidate=responses[].text",
            "candidate-id=responses[].model",
            "preference=label",
            "preference.0=1",
            "preference.1=2",
        ];
        let map = crate::Mapping::new(map.iter().map(|entry| entry.parse().expect("an entry"))).expect("a mapping");
        let read = Source { map, ..Source::new(path) }.samples().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(read[0].preference, Some(Preference::Candidate("llama".into())));
    }

    #[test]
    fn an_excel_workbook_is_told_as_what_it_is_and_a_decimal_comma_too() {
        let folder = tempfile::tempdir().expect("folder");
        let refused = |name: &str, content: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, content).expect("written");
            Source::new(path).samples().expect_err("refused").to_string()
        };
        let told = refused("s.xlsx", b"PK\x03\x04rest");
        assert!(told.contains("an Excel workbook (.xlsx)") && told.contains("save the sheet as CSV"), "{told}");
        let told = refused("s.csv", b"context;candidate;score.flu\na;b;0,5\n");
        assert!(told.contains("numbers have a point: write 0.5"), "{told}");
    }
}

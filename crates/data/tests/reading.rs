//! Files and mappings as new users write them.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use miette::Diagnostic;
use probity_data::{
    DataError, Importer, LabelAppender, Mapping, Preference, Sample, SampleSource, importer, open, read_documents,
    read_label_tasks, read_labels, read_scores,
};
use tempfile::TempDir;

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("temporary folder"))
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, content).expect("written");
        path
    }

    fn read(&self, name: &str, content: impl AsRef<[u8]>, map: &[&str]) -> Result<Vec<Sample>, DataError> {
        mapped(&self.file(name, content), map).samples()
    }
}

fn mapped(path: &Path, map: &[&str]) -> SampleSource {
    let entries = map.iter().map(|entry| entry.parse().expect("an entry"));
    SampleSource { map: Mapping::new(entries).expect("a mapping"), ..SampleSource::new(path) }
}

/// The message and hints of an error and its causes.
fn error_text(error: &dyn Diagnostic) -> String {
    let hint = error.help().map(|hint| hint.to_string()).unwrap_or_default();
    let cause = error.diagnostic_source().map(error_text).unwrap_or_default();
    format!("{error}\n{hint}\n{cause}")
}

fn refused(read: Result<Vec<Sample>, DataError>) -> String {
    error_text(&read.expect_err("refused"))
}

const OWN: &str = r#"{"id":"1","context":"c","candidates":[{"id":"a","text":"x"},{"id":"b","text":"y"}]}"#;
const CSV: &str = "\"id\",context,candidate\n1,c,x\n";

#[test]
fn a_byte_order_mark_is_no_text_in_any_file() {
    let folder = Folder::new();
    let marked = |text: &str| format!("\u{feff}{text}");
    for (name, text) in [
        ("own.jsonl", OWN.to_owned()),
        ("list.json", format!("[{OWN}]")),
        ("pairs.jsonl", r#"{"prompt": "p", "chosen": "a", "rejected": "b"}"#.to_owned()),
        ("table.csv", CSV.to_owned()),
        ("table.tsv", CSV.replace(',', "\t")),
        ("nameless", CSV.to_owned()),
        ("nameless", CSV.replace(',', ";")),
    ] {
        let plain = folder.read(name, &text, &[]).expect("readable");
        assert_eq!(folder.read(name, marked(&text), &[]).expect("readable"), plain, "{name}");
        let packed = zstd::encode_all(marked(&text).as_bytes(), 3).expect("packed");
        assert_eq!(folder.read(name, packed, &[]).expect("readable"), plain, "packed {name}");
    }
    // Concatenated files may begin with two byte order marks.
    let twice = folder.read("t.csv", marked("\u{feff}id,context,candidate\n7,c,x\n"), &[]).expect("readable");
    assert_eq!(twice[0].id, "7");

    let documents = [folder.file("a.txt", marked("text")), folder.file("d.jsonl", marked(r#"{"text": "line"}"#))];
    let read: Vec<String> = read_documents(&documents).expect("readable").into_iter().map(|one| one.text).collect();
    assert_eq!(read, ["text", "line"]);
    let scores = "item,candidate,metric,score\n1,a,bleu,0.5\n";
    assert_eq!(read_scores(&folder.file("s.csv", marked(scores))).expect("readable").rows.len(), 1);
    let samples = folder.read("own.jsonl", OWN, &[]).expect("readable");
    let task = r#"{"item": "1", "attribute": "coherence", "candidate_i": "a", "candidate_j": "b"}"#;
    assert_eq!(read_label_tasks(&folder.file("t.jsonl", marked(task)), &samples).expect("readable").len(), 1);
    let label = r#"{"item":"1","attribute":"coherence","candidate_i":"a","candidate_j":"b","preferred":"a"}"#;
    let labels = folder.file("l.jsonl", marked(label));
    assert_eq!(read_labels(&labels).expect("readable").rows.len(), 1);
    assert_eq!(LabelAppender::open(&labels).expect("readable").1.rows.len(), 1);
    let llmbar: &Importer = importer("llmbar").expect("known");
    let set = r#"[{"input": "i", "output_1": "a", "output_2": "b", "label": 1}]"#;
    assert_eq!(llmbar.import(&folder.file("i.json", marked(set))).expect("readable").len(), 1);
}

#[test]
fn a_text_in_utf_16_is_refused_with_a_hint_wherever_a_text_is_read() {
    let folder = Folder::new();
    let utf_16: Vec<u8> = "\u{feff}id,context\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let wrong = [
        folder.read("s.csv", &utf_16, &[]).expect_err("refused"),
        folder.read("s.jsonl", &utf_16, &[]).expect_err("refused"),
        read_documents(&[folder.file("d.txt", &utf_16)]).expect_err("refused"),
        read_scores(&folder.file("m.csv", &utf_16)).expect_err("refused"),
        open(&folder.file("references.txt", &utf_16)).err().expect("refused"),
    ];
    for error in wrong {
        let told = error_text(&error);
        assert!(told.contains("it is UTF-16 text") && told.contains("iconv -f UTF-16 -t UTF-8"), "{told}");
    }
}

/// Checks `id`, `preference` and `reference`, read by their names beside mapped columns.
fn has_the_unmapped_fields(samples: &[Sample], file: &str) {
    let [first, second] = samples else { panic!("two samples in {file}") };
    assert_eq!((first.id.as_str(), &*first.context), ("q-1", "c"), "{file}");
    assert_eq!((first.preference.as_ref(), first.references.len()), (None, 0), "{file}");
    assert_eq!(second.preference, Some(Preference::Candidate("b".into())), "{file}");
    assert_eq!(second.references.iter().map(|text| &**text).collect::<Vec<_>>(), ["r"], "{file}");
}

#[test]
fn fields_that_are_not_mapped_are_read_from_columns_with_their_names() {
    let folder = Folder::new();
    let map = ["context=article", "candidate=a", "candidate=b"];
    let table = "id,article,a,b,preference,reference,other\nq-1,c,x,y,,,1\nq-2,c,x,y,b,r,2\n";
    // JSON lines name their own columns, so later rows may have more than the first.
    let lines = r#"{"id": "q-1", "article": "c", "a": "x", "b": "y"}
{"id": "q-2", "article": "c", "a": "x", "b": "y", "preference": "b", "reference": "r"}"#;
    for (name, text) in [("t.csv", table), ("t.tsv", &table.replace(',', "\t")), ("l.jsonl", lines)] {
        has_the_unmapped_fields(&folder.read(name, text, &map).expect("readable"), name);
    }
    // An empty value disables the column.
    let without = [&map[..], &["id:=", "preference:=", "reference:="]].concat();
    for (name, text) in [("t.csv", table), ("l.jsonl", lines)] {
        let samples = folder.read(name, text, &without).expect("readable");
        assert_eq!(
            (samples[1].id.as_str(), &samples[1].preference, samples[1].references.len()),
            ("2", &None, 0),
            "{name}"
        );
    }
    let twice = "id,article,a\nq,c,x\nq,c,y\n";
    let told = refused(folder.read("t.csv", twice, &["context=article", "candidate=a"]));
    assert!(told.contains("duplicate sample `q`, first on line 2") && told.contains("--map id:="), "{told}");
    let late = "{\"id\": \"1\", \"article\": \"c\", \"a\": \"x\"}\n{\"id\": \"1\", \"article\": \"c\", \"a\": \"x\", \
                \"candidate_id\": \"z\"}";
    let told = refused(folder.read("l.jsonl", late, &["context=article", "candidate=a"]));
    assert!(
        told.contains("broken line 2") && told.contains("field `candidate_id`: the first row has no such column"),
        "{told}"
    );
}

#[test]
fn a_score_that_would_be_rounded_is_refused_and_others_are_read_exactly() {
    let folder = Folder::new();
    let own = |score: &str| {
        format!(r#"{{"id":"1","context":"c","candidates":[{{"id":"a","text":"x","scores":{{"f":{score}}}}}]}}"#)
    };
    let table = |score: &str| format!("context,candidate,score.f\nc,x,{score}\n");
    for score in ["9007199254740993", "-9007199254740995", "18446744073709551615"] {
        for (name, text) in [("o.jsonl", own(score)), ("t.csv", table(score))] {
            let told = refused(folder.read(name, text, &[]));
            assert!(told.contains("is an integer beyond ±2^53") && told.contains(score), "{told}");
        }
    }
    for (name, texts) in [
        ("o.jsonl", ["9007199254740992", "9007199254740994"].map(own)),
        ("t.csv", ["9007199254740992", "9007199254740994"].map(table)),
    ] {
        let scores = texts.map(|text| folder.read(name, text, &[]).expect("readable")[0].candidates[0].scores["f"]);
        assert!(scores[0] < scores[1], "{name}: {scores:?}");
    }
}

#[test]
fn a_packed_file_that_is_cut_anywhere_is_an_error() {
    let folder = Folder::new();
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(OWN.as_bytes()).expect("packed");
    let gzip = encoder.finish().expect("packed");
    let zst = zstd::encode_all(OWN.as_bytes(), 3).expect("packed");
    for (name, packed) in [("s.jsonl.gz", gzip), ("s.jsonl.zst", zst)] {
        assert_eq!(folder.read(name, &packed, &[]).expect("whole").len(), 1);
        for end in 4..packed.len() {
            let error = refused(folder.read(name, &packed[..end], &[]));
            assert!(!error.contains("holds no"), "{name}, {end} bytes: {error}");
        }
    }
    let error = refused(folder.read("s.jsonl.gz", b"\x1f\x8b", &[]));
    assert!(!error.contains("holds no"), "{error}");
}

#[test]
fn a_table_without_rows_is_not_asked_for_json() {
    let folder = Folder::new();
    for (name, text) in [("h.csv", "id,context,candidate\n"), ("h.tsv", "id\tcontext\tcandidate\n"), ("e.csv", "")] {
        let error = refused(folder.read(name, text, &[]));
        assert!(error.contains("has no rows") && error.contains("id,context,candidate"), "{name}: {error}");
        assert!(!error.contains("JSON"), "{name}: {error}");
    }
    let error = error_text(&read_scores(&folder.file("s.csv", "item,candidate,bleu\n")).expect_err("refused"));
    assert!(error.contains("has no rows") && error.contains("item,candidate,metric,score"), "{error}");
    let error = refused(folder.read("e.jsonl", "\n", &[]));
    assert!(error.contains("write one JSON object per line"), "{error}");
}

#[test]
fn texts_of_lists_and_columns_are_joined() {
    let folder = Folder::new();
    let row = r#"{"q": "Why?", "title": "T", "chunks": ["one", null, "two"], "nested": [["A", ["s1", "s2"]]],
        "objects": [{"text": "o1", "id": 1}, {"text": "o2", "id": 2}], "empty": [], "a": "answer"}"#
        .replace('\n', " ");
    let context = |columns: &[&str]| {
        let map: Vec<String> = columns.iter().map(|column| format!("context={column}")).collect();
        let map: Vec<&str> = map.iter().map(String::as_str).chain(["candidate=a", "instruction=q"]).collect();
        folder.read("r.jsonl", &row, &map).map(|samples| samples[0].context.to_string())
    };
    assert_eq!(context(&["chunks[]"]).expect("joined"), "one\n\ntwo");
    assert_eq!(context(&["nested[]"]).expect("joined"), "A\n\ns1\n\ns2");
    assert_eq!(context(&["objects[].text"]).expect("joined"), "o1\n\no2");
    assert_eq!(context(&["title", "chunks[]", "a"]).expect("joined"), "T\n\none\n\ntwo\n\nanswer");
    assert_eq!(context(&["empty[]"]).expect("joined"), "");
    let hints = [
        ("chunks", "expected a string, found a list", "join its texts: --map context='chunks[]'"),
        ("nested", "expected a string, found a list", "join its texts: --map context='nested[]'"),
        (
            "objects",
            "expected a string, found a list",
            "map a value of its items: --map context='objects[].KEY'; the keys are `text`",
        ),
        (
            "objects[]", "in an item: expected a string, found an object",
            "map one of its values: --map context='objects[].KEY'",
        ),
        ("objects[].id", "in an item: expected a string, found a number", ""),
    ];
    for (column, why, hint) in hints {
        let error = error_text(&context(&[column]).expect_err("refused"));
        assert!(error.contains(why) && error.contains(hint), "{column}: {error}");
        // Following each hint leads to a valid mapping.
        if let Some((_, next)) = error.split_once("--map context='") {
            let next = next.split('\'').next().expect("quoted").replace("KEY", "text");
            assert!(context(&[&next]).is_ok(), "{column} leads to {next}");
        }
    }
}

#[test]
fn values_for_every_row_leave_columns_to_their_names() {
    let folder = Folder::new();
    let texts = |samples: Vec<Sample>| (samples[0].context.to_string(), samples[0].candidates[0].text.to_string());
    let empty = || (String::new(), "x".to_owned());
    let csv = "id,candidate,reference\n1,x,r\n";
    assert_eq!(texts(folder.read("t.csv", csv, &["context:="]).expect("readable")), empty());
    let error = refused(folder.read("t.csv", csv, &[]));
    assert!(error.contains("no column is mapped to the context") && error.contains("--map context:="), "{error}");
    assert_eq!(texts(folder.read("t.csv", CSV, &["context:=all"]).expect("readable")), ("all".into(), "x".into()));
    let own = r#"{"id":"1","candidates":[{"id":"a","text":"x","scores":{"q":1}}],"texts":{"question":"w"}}"#;
    let read = folder.read("o.jsonl", own, &["context:="]).expect("readable");
    assert_eq!((read[0].text("question"), read[0].candidates[0].scores["q"]), (Some("w"), 1.0));
    assert_eq!(texts(read), empty());
    let pairs = r#"{"prompt": "p", "chosen": "x", "rejected": "b"}"#;
    let read = folder.read("p.jsonl", pairs, &["context:=all"]).expect("readable");
    assert_eq!((&*read[0].context, read[0].instruction.as_deref()), ("all", Some("p")));
    let error = refused(folder.read("f.jsonl", r#"{"hyp": "x", "ref": "y"}"#, &["context:="]));
    assert!(error.contains("no column is mapped to a candidate"), "{error}");
}

#[test]
fn a_context_may_be_missing_where_none_is_needed() {
    let folder = Folder::new();
    let optional = |name: &str, text: &str| {
        let path = folder.file(name, text);
        SampleSource { context_optional: true, ..SampleSource::new(path) }.samples()
    };
    for (name, text) in [
        ("t.csv", "candidate,reference\nx,r\n"),
        ("o.jsonl", r#"{"id":"1","candidates":[{"id":"a","text":"x"}],"references":["r"]}"#),
    ] {
        let samples = optional(name, text).unwrap_or_else(|error| panic!("{}", error_text(&error)));
        assert_eq!((&*samples[0].context, &*samples[0].references[0]), ("", "r"), "{name}");
    }
    assert_eq!(&*optional("c.csv", CSV).expect("readable")[0].context, "c");
    assert_eq!(&*optional("c.jsonl", OWN).expect("readable")[0].context, "c");
}

#[test]
fn a_chat_with_tool_calls_is_a_text() {
    let folder = Folder::new();
    let call = r#"{"id": "1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}"#;
    let chat = format!(
        r#"[{{"role": "user", "content": "Rain?"}}, {{"role": "assistant", "content": null, "tool_calls": [{call}]}},
        {{"role": "tool", "content": "sunny"}}, {{"role": "assistant", "content": "No."}}]"#
    );
    let row = format!(r#"{{"chat": {chat}, "a": "b"}}"#).replace('\n', " ");
    let read = folder.read("c.jsonl", &row, &["context=chat", "candidate=a"]).expect("readable");
    let all = "user: Rain?\n\nassistant: weather({})\n\ntool: sunny\n\nassistant: No.";
    assert_eq!(&*read[0].context, all);
    let read = folder.read("c.jsonl", &row, &["context:=", "candidate=chat"]).expect("readable");
    assert_eq!(&*read[0].candidates[0].text, "No.");
    assert_eq!(read[0].instruction.as_deref(), Some("user: Rain?\n\nassistant: weather({})\n\ntool: sunny"));
    let image = row.replace(r#""Rain?""#, r#"[{"type": "image_url", "image_url": "u"}]"#);
    let error = refused(folder.read("c.jsonl", &image, &["context=chat", "candidate=a"]));
    assert!(error.contains("message 1: its content has a part of type `image_url`, which is not text"), "{error}");
}

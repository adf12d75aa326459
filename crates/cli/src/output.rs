//! Output files.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use probity_session::causes;
use probity_store::{MANIFEST, Manifest, write_whole};

use crate::error::OutputError;
use crate::exit::closed_pipe;
use crate::terminal::visible_json;

/// Standard output for JSON lines; on a terminal, control characters are escaped.
pub(crate) struct Stdout {
    terminal: bool,
}

impl Stdout {
    pub(crate) fn new() -> Self {
        Self { terminal: io::stdout().is_terminal() }
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.terminal {
            return io::stdout().write(bytes);
        }
        for line in String::from_utf8_lossy(bytes).split_inclusive('\n') {
            let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
            write!(io::stdout(), "{}{end}", visible_json(line))?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush()
    }
}

/// Whether this name means standard output.
pub(crate) fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// An output that would replace its input.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
#[error("{} is an input and would be overwritten by the output", path.display())]
#[diagnostic(help("choose another name for the output"))]
struct ReplacesInput {
    path: PathBuf,
}

/// Fails if the output is the same file as an input.
pub(crate) fn spare_input(input: &Path, out: &Path) -> miette::Result<()> {
    match (input.canonicalize(), out.canonicalize()) {
        (Ok(input), Ok(found)) if input == found => Err(ReplacesInput { path: out.to_owned() }.into()),
        _ => Ok(()),
    }
}

/// An output that exists.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
#[error("{} already exists", path.display())]
#[diagnostic(help("choose another name, or replace the file with --overwrite"))]
struct Exists {
    path: PathBuf,
}

/// Fails if the file exists and may not be overwritten. Devices and pipes are allowed.
pub(crate) fn spare_existing(out: &Path, overwrite: bool) -> miette::Result<()> {
    if !overwrite && out.is_file() { Err(Exists { path: out.to_owned() }.into()) } else { Ok(()) }
}

/// The folder of a file.
pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// An output that would replace a file of a run.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
#[error("{} belongs to a run", path.display())]
#[diagnostic(help("choose another name for the output"))]
pub(crate) struct FileOfARun {
    pub(crate) path: PathBuf,
}

/// Fails if the output is a file of a run, which is never replaced.
pub(crate) fn spare_run(out: &Path) -> Result<(), FileOfARun> {
    let name = out.file_name().unwrap_or_default();
    let is_of_a_run = Manifest::read(folder_of(out))
        .is_ok_and(|run| name == MANIFEST || run.files.iter().any(|file| name == file.as_str()));
    if is_of_a_run { Err(FileOfARun { path: out.to_owned() }) } else { Ok(()) }
}

/// Writes a file atomically, or to standard output for `-`. A closed pipe is no error, as in
/// [`print`](crate::terminal::print).
pub(crate) fn write_output(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> miette::Result<()>,
) -> miette::Result<()> {
    if !is_stdout(path) {
        return write_whole(path, write);
    }
    let mut out = io::BufWriter::new(Stdout::new());
    // Without an explicit flush, dropping the writer would hide the error of a full disk.
    let written = write(&mut out).and_then(|()| Ok(out.flush().map_err(OutputError::from)?));
    match written {
        Err(error) if causes(error.as_ref()).any(closed_pipe) => Ok(()),
        written => written,
    }
}

/// Writes a text with [`write_output`].
pub(crate) fn write_text(path: &Path, text: &str) -> miette::Result<()> {
    write_output(path, |writer| Ok(writer.write_all(text.as_bytes()).map_err(OutputError::from)?))
}

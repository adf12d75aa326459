//! Files that a command writes.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use anyhow::Context;

use crate::terminal::visible_json;

/// Standard output for lines of JSON: on a terminal, characters that it would obey are escaped.
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

/// Writes a file whole or not at all: beside it first, then renamed over it. What is no regular file is written to directly.
pub(crate) fn write_whole(path: &Path, write: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let cannot = || format!("cannot write {}", path.display());
    let flush = |mut writer: io::BufWriter<&File>| -> anyhow::Result<()> {
        write(&mut writer)?;
        writer.flush().with_context(cannot)
    };
    if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        let file = OpenOptions::new().write(true).open(path).with_context(cannot)?;
        return flush(io::BufWriter::new(&file));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let file = tempfile::NamedTempFile::new_in(folder).with_context(cannot)?;
    flush(io::BufWriter::new(file.as_file()))?;
    // A temporary file is its owner's alone; the result is as readable as any other.
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        file.as_file().set_permissions(std::fs::Permissions::from_mode(0o644)).with_context(cannot)?;
    }
    file.persist(path).map_err(|error| error.error).with_context(cannot)?;
    Ok(())
}

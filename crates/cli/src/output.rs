//! Files that a command writes.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use probity_store::write_whole;

use crate::error::OutputError;
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

/// Writes a file: whole or not at all.
pub(crate) fn write_text(path: &Path, text: &str) -> miette::Result<()> {
    write_whole(path, |writer| Ok(writer.write_all(text.as_bytes()).map_err(OutputError::from)?))
}

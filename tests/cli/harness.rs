//! Runs the binary in an isolated environment.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::roster::{judging, row};

/// A golden llama with random weights: 320 tokens, context of 256, chat template, two shards.
pub(crate) fn tiny() -> PathBuf {
    golden("llama")
}

/// A folder of `tests/goldens/models`.
pub(crate) fn golden(name: &str) -> PathBuf {
    root("tests/goldens/models").join(name)
}

/// A file or folder of the project.
pub(crate) fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// A model for the method.
pub(crate) fn method_model(method: &str) -> String {
    let model = judging().find(|(name, _)| *name == method).and_then(|(_, row)| row.model.as_deref());
    model.map_or_else(tiny, root).display().to_string()
}

/// The options of the method's small run.
pub(crate) fn smallest(method: &str) -> Vec<&'static str> {
    row(method).arguments.split(' ').collect()
}

/// A temporary folder in which the binary runs, with only the test's own models.
pub(crate) struct World {
    folder: TempDir,
}

/// The result of a process.
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl World {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("temporary folder") }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file and returns its path as an argument.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("below the world")).expect("folder");
        std::fs::write(&path, content).expect("written");
        path.display().to_string()
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// The rows of a JSON Lines file.
    pub(crate) fn rows(&self, name: &str) -> Vec<serde_json::Value> {
        self.read(name).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    /// A copy of the tiny llama that can be damaged.
    pub(crate) fn copy_of_tiny(&self) -> PathBuf {
        let copy = self.path("copy");
        std::fs::create_dir_all(&copy).expect("folder");
        for entry in std::fs::read_dir(tiny()).expect("goldens") {
            let entry = entry.expect("entry");
            std::fs::copy(entry.path(), copy.join(entry.file_name())).expect("copied");
        }
        copy
    }

    /// The command in an environment without models and network.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.program(env!("CARGO_BIN_EXE_probity"));
        command.args(arguments);
        command
    }

    /// Any program in that environment.
    pub(crate) fn program(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        command.env("PROBITY_MODELS", self.path("models")).env("HF_HUB_CACHE", self.path("hub"));
        // No server listens on port 9 of this machine.
        command.env("HF_ENDPOINT", "http://127.0.0.1:9").env_remove("HF_TOKEN");
        for proxy in ["HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"] {
            command.env_remove(proxy).env_remove(proxy.to_lowercase());
        }
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        Ran::from(self.command(arguments).output().expect("started"))
    }

    /// All tables of a run with their notes, its cost and its signature.
    #[track_caller]
    pub(crate) fn all_tables(&self, run: &str) -> String {
        self.run(&["show", run, "--all"]).exits(0).stdout
    }

    /// Runs the command with a closed standard output, as with `| true`.
    pub(crate) fn run_unread(&self, arguments: &[&str]) -> Ran {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let child = self.command(arguments).stdout(writer).stderr(Stdio::piped()).spawn().expect("started");
        Ran::from(child.wait_with_output().expect("ended"))
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        let ran = Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) };
        assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
        ran
    }
}

impl Ran {
    /// Asserts the exit code.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    /// Asserts that standard error is an error message with all of `parts`.
    #[track_caller]
    pub(crate) fn fails_with(self, parts: &[&str]) {
        let ran = self.exits(2);
        assert!(ran.stderr.contains("error: "), "{}", ran.stderr);
        for part in parts {
            assert!(ran.stderr.contains(part), "`{part}` is not in\n{}", ran.stderr);
        }
    }
}

/// Requests as lines.
pub(crate) fn lines(requests: &[serde_json::Value]) -> String {
    requests.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Whether child processes ignore Ctrl-C.
#[cfg(unix)]
pub(crate) fn interrupts_are_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & (1 << 1) != 0)
}

/// Sends Ctrl-C to a process.
#[cfg(unix)]
pub(crate) fn interrupt(child: &std::process::Child) {
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill runs");
    assert!(status.success());
}

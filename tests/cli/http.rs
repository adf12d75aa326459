//! Commands that serve HTTP, tested over a socket.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;

use crate::harness::Ran;

/// A running server.
pub(crate) struct Server {
    pub(crate) child: Child,
    stdout: BufReader<ChildStdout>,
    /// The first line of standard output.
    pub(crate) address: String,
    pub(crate) port: u16,
}

/// A response.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Server {
    /// Starts the server and waits for its address.
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut first = String::new();
        stdout.read_line(&mut first).expect("a line");
        let authority = first.trim().strip_prefix("http://").and_then(|rest| rest.split('/').next());
        let port = authority.and_then(|authority| authority.rsplit(':').next()?.parse().ok());
        let port = port.unwrap_or_else(|| {
            let mut told = String::new();
            let _ = child.stderr.take().expect("piped").read_to_string(&mut told);
            panic!("`{first}` is no address\n{told}")
        });
        Self { child, stdout, address: first.trim().to_owned(), port }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.port)).expect("it listens")
    }

    /// Whether it accepts connections at another address of this machine.
    pub(crate) fn listens_at(&self, host: &str) -> bool {
        TcpStream::connect((host, self.port)).is_ok()
    }

    pub(crate) fn send(&self, request: &str) -> Reply {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).expect("sent");
        Reply::read(stream)
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: localhost:{}\r\nConnection: close\r\n\r\n", self.port))
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Reply {
        self.send(&post(path, &body.to_string(), ""))
    }

    pub(crate) fn answer(&self, path: &str, body: &Value) -> Value {
        let reply = self.post(path, body);
        assert_eq!(reply.status, 200, "{body}\n{}", reply.body);
        reply.json()
    }

    /// Terminates it like the system would.
    pub(crate) fn end(self) -> Ran {
        let killed = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().expect("kill runs");
        assert!(killed.success());
        self.wait()
    }

    /// Waits for its end; returns the output after the address.
    pub(crate) fn wait(mut self) -> Ran {
        let (mut stdout, mut stderr) = (String::new(), String::new());
        self.stdout.read_to_string(&mut stdout).expect("UTF-8");
        self.child.stderr.take().expect("piped").read_to_string(&mut stderr).expect("UTF-8");
        Ran { code: self.child.wait().expect("ended").code(), stdout, stderr }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A request with JSON, and additional header lines.
pub(crate) fn post(path: &str, body: &str, more: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n{more}\r\n{body}",
        body.len()
    )
}

impl Reply {
    pub(crate) fn read(mut stream: TcpStream) -> Self {
        let mut bytes = Vec::new();
        // A server that did not read the whole request may reset the connection after its response.
        let _ = stream.read_to_end(&mut bytes);
        let text = String::from_utf8(bytes).expect("UTF-8");
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {text:?}"));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let head = head.to_ascii_lowercase();
        let body = if head.contains("transfer-encoding: chunked") { unchunked(body) } else { body.to_owned() };
        Self { status, head, body }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

fn unchunked(mut body: &str) -> String {
    let mut text = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).expect("a size");
        text.push_str(&rest[..size]);
        body = rest[size..].strip_prefix("\r\n").unwrap_or_default();
    }
    text
}

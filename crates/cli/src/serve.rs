//! `probity serve`: an HTTP server for a model.

use std::path::PathBuf;

use clap::Args;
use probity_session::{ByteSize, ModelOptions};

use crate::options::Typed;

pub(crate) const LONG_ABOUT: &str = "\
Serve one model over HTTP: OpenAI's endpoints for completions and chats, and exact probabilities.

  POST /v1/completions        continuations of prompts, optionally with log-probabilities of all tokens
  POST /v1/chat/completions   answers to chats, optionally constrained by a JSON schema
  POST /v1/score              exact probabilities of labels, of their sum, and of continuations
  GET  /v1/models, /health, /openapi.json

A request with an unsupported field is rejected, and the error names the field. Concurrent requests are computed \
together, and a prefix that they share is computed once. On `cpu`, this does not change a bit of any answer.

The first line of standard output is the address. By default, the server listens only on this machine. An address that \
other machines can reach (--host) requires a token. Ctrl-C stops the server after pending requests are answered.";

pub(crate) const AFTER_HELP: &str = "\
Example:
  probity serve --model smollm2-135m-instruct
  curl -s 127.0.0.1:8080/v1/completions -H 'Content-Type: application/json' \\
      -d '{\"prompt\": \"Once upon a time\", \"max_tokens\": 20}'";

/// Options of `serve`.
#[derive(Debug, Args)]
#[command(mut_arg("think", |option| {
    option
        .value_name("auto|off")
        .help("Thoughts before answers: auto or off")
        .long_help("Thoughts before answers: auto or off\n\n\
            `auto` closes the thought before labels and leaves texts as the chat template begins them; `off` closes \
            it everywhere.")
}))]
#[command(mut_arg("thoughts", |option| option.hide(true)))]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    model: Typed<ModelOptions>,
    /// Address to listen on
    ///
    /// Any address except 127.0.0.1 and `::1` needs a token.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", value_parser = address)]
    host: std::net::IpAddr,
    /// Port; 0 picks a free one
    #[arg(long, value_name = "N", default_value_t = 8080)]
    port: u16,
    /// File with the token that requests must send
    ///
    /// Requests send it as `Authorization: Bearer`. The variable `PROBITY_TOKEN` also sets the token.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Model id in requests [default: the model's own name]
    #[arg(long, value_name = "ID")]
    name: Option<String>,
    /// Maximum size of the body of a request
    #[arg(long, value_name = "SIZE", default_value = "8MB")]
    max_body: ByteSize,
    /// Maximum number of tokens to generate for one text
    #[arg(long, value_name = "N", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(1..))]
    max_tokens: u32,
    /// Maximum time to answer a request
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u32).range(1..))]
    timeout: u32,
    /// Maximum number of simultaneous connections
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    max_connections: u32,
    /// Maximum number of waiting queries; more are rejected
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..))]
    max_waiting: u32,
}

/// An address, or `localhost`.
fn address(text: &str) -> Result<std::net::IpAddr, String> {
    if text == "localhost" {
        return Ok(std::net::IpAddr::from([127, 0, 0, 1]));
    }
    text.parse().map_err(|_| "expected an address such as 127.0.0.1, ::1 or 0.0.0.0".to_owned())
}

/// Without the feature `serve` there is no server.
#[cfg(not(feature = "serve"))]
mod refused {
    use super::ServeArgs;
    use crate::exit::Completed;
    use crate::global::Global;

    #[derive(Debug, thiserror::Error, miette::Diagnostic)]
    #[error("this build has no network code and cannot serve")]
    #[diagnostic(help("use `probity logprobs` and `probity generate`, or build with the default features"))]
    struct NoNetwork;

    impl ServeArgs {
        #[expect(clippy::unused_self, reason = "with the feature it is run")]
        pub(crate) fn run(&self, _: Global) -> miette::Result<Completed> {
            Err(NoNetwork.into())
        }
    }
}

#[cfg(feature = "serve")]
mod served {
    use std::fs::File;
    use std::io::{self, BufReader};
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    use probity_lm::{ThinkMode, skip_byte_order_mark};
    use probity_runtime::{DeviceList, KeptPrefixBytes, LoadOptions, Model};
    use probity_serve::{AccessToken, ServeError, ServeOptions, Server, TokenError};
    use probity_session::{ByteSize, Context, OpenedModel};

    use super::ServeArgs;
    use crate::error::{FileError, OutputError};
    use crate::events::Terminal;
    use crate::exit::Completed;
    use crate::global::Global;
    use crate::interrupt;
    use crate::terminal::print;

    /// Why the server cannot start.
    #[derive(Debug, thiserror::Error, miette::Diagnostic)]
    enum NotServed {
        #[error("{from} does not hold a valid token")]
        Token {
            from: String,
            #[source]
            #[diagnostic_source]
            source: TokenError,
        },
        #[error("a server uses one copy of the model, not {devices}")]
        #[diagnostic(help("use --device {}, and start another server on another --port for each other \
                           copy", devices.one_copy()))]
        Devices { devices: DeviceList },
        #[error("a server does not write thoughts before labels")]
        #[diagnostic(help("omit --think N; texts have thoughts as the chat template begins them"))]
        Thoughts,
        #[error("`{model}` is an encoder-decoder model, which cannot be served")]
        #[diagnostic(help("use `probity logprobs` and `probity generate`"))]
        Encoder { model: String },
    }

    impl ServeArgs {
        pub(crate) fn run(&self, global: Global) -> miette::Result<Completed> {
            // One copy generates texts that arrive one at a time.
            let devices = self.model.computing.load_options().devices;
            if devices.has_copies() {
                return Err(NotServed::Devices { devices }.into());
            }
            if matches!(self.model.computing.think, ThinkMode::AtMost(_)) {
                return Err(NotServed::Thoughts.into());
            }
            // Before loading the model, so that a port in use is reported immediately.
            let server = Server::bind(self.options()?)?;
            let terminal = Arc::new(Terminal::new(global));
            let context = Context::new(terminal.clone(), interrupt::catch(global.progress));
            let model = context.models.language(&OpenedModel::open(&self.model)?)?;
            if model.encoder().has_source() {
                return Err(NotServed::Encoder { model: self.model.model.clone() }.into());
            }
            let address = server.address().map_err(ServeError::Start)?;
            print(&format!("http://{address}"))?;
            std::io::Write::flush(&mut std::io::stdout()).map_err(OutputError::from)?;
            terminal.reporter().say(&format!("serving {}; press Ctrl-C to stop", self.id()));
            // The server keeps only this model, without a pool.
            drop(context.models);
            let model = Arc::into_inner(model).expect("the pool is gone, and nothing else was given the model");
            server.run(Arc::new(share_out(model)?), &|| context.interrupt.check().is_err())?;
            Ok(Completed::Success)
        }

        fn options(&self) -> miette::Result<ServeOptions> {
            let ByteSize(max_body) = self.max_body;
            Ok(ServeOptions {
                host: self.host,
                port: self.port,
                token: self.token()?,
                name: self.id(),
                chat: self.model.computing.chat_options(),
                max_body,
                max_tokens: self.max_tokens as usize,
                timeout: Duration::from_secs(self.timeout.into()),
                max_connections: self.max_connections as usize,
                max_waiting: self.max_waiting as usize,
            })
        }

        /// The model's name in requests; the last component of a path, which does not reveal the folder.
        fn id(&self) -> String {
            let model = &self.model.model;
            let last = Path::new(model).file_name().filter(|_| Path::new(model).exists());
            let own = last.map_or_else(|| model.clone(), |name| name.to_string_lossy().into_owned());
            self.name.clone().unwrap_or(own)
        }

        fn token(&self) -> miette::Result<Option<AccessToken>> {
            let (from, text) = match &self.token_file {
                Some(path) => {
                    let shown = path.display().to_string();
                    let text = File::open(path)
                        .and_then(|file| skip_byte_order_mark(BufReader::new(file)))
                        .and_then(io::read_to_string)
                        .map_err(FileError::context(format!("cannot read {shown}")))?;
                    (shown, text)
                }
                None => match std::env::var("PROBITY_TOKEN") {
                    Ok(text) if !text.is_empty() => ("$PROBITY_TOKEN".to_owned(), text),
                    _ => return Ok(None),
                },
            };
            Ok(Some(AccessToken::new(&text).map_err(|source| NotServed::Token { from, source })?))
        }
    }

    /// Divides the memory for keys and values: a third for scoring, a third for generation, which interleaves with
    /// scoring, and the rest for prefixes of future requests.
    fn share_out(mut model: Model) -> miette::Result<Model> {
        let options = model.options();
        let third = options.cache_budget.map(|bytes| (bytes / 3).max(1));
        let kept_prefixes = KeptPrefixBytes::Bytes(third.unwrap_or_default());
        model.run_with(LoadOptions { cache_budget: third, kept_prefixes, ..options })?;
        Ok(model)
    }
}

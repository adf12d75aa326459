//! Text generation over HTTP: one code path for all wire formats.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use probity_lm::{Prompt, ThoughtReader, TokensAnswer};
use tokio::time::Instant;

use crate::answers::{self, OpenPrompt, prompt_tokens, submit};
use crate::api_error::ApiError;
use crate::app::App;
use crate::asks::{PromptAsk, encode, room};
use crate::body::aside;
use crate::json;
use crate::stream::{OpenText, Streamed, split, stream};
use crate::wire::chat::EFFORT;
use crate::wire::forms::{Header, UsageBody};
use crate::wire::text::{DoneText, Event, RequestedLogprobs, TextFormat, TextRequest, Writing, WrittenText};

/// Maximum number of texts per request: prompts times choices.
const MOST_TEXTS: usize = 4096;

/// A validated request.
struct TextPlan {
    asks: Vec<PromptAsk>,
    /// Text of each prompt with `echo`, otherwise empty.
    echoed: Vec<String>,
    /// For each prompt whose answer may begin with a thought.
    readers: Vec<Option<ThoughtReader>>,
    writing: Writing,
    is_streamed: bool,
    include_usage: bool,
    header: Header,
}

/// Texts of a prompt, and the log-probabilities of its tokens if requested.
struct Finished {
    prompt: Option<TokensAnswer>,
    written: Vec<WrittenText>,
}

/// Handles a request.
pub(crate) async fn answer<F: TextFormat>(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let deadline = app.deadline();
    let body = app.bodies.read(request).await?;
    let plan = aside(&app, move |app| TextPlan::new::<F>(app, &body)).await?;
    let open = submit(&app, &plan.asks, plan.is_streamed && plan.grows())?;
    if plan.is_streamed {
        return Ok(streamed::<F>(&app, plan, open, deadline));
    }
    let mut finished = Vec::with_capacity(open.len());
    for (ask, open) in plan.asks.iter().zip(open) {
        finished.push(finish::<F>(&app, ask, open, deadline).await?);
    }
    let usage = plan.usage(finished.iter().map(Finished::tokens).sum());
    let texts = finished.iter().enumerate().flat_map(|(place, finished)| plan.texts(&app, place, finished));
    Ok(Json(F::body(plan.header.clone(), texts, usage)).into_response())
}

impl TextPlan {
    fn new<F: TextFormat>(app: &App, body: &Bytes) -> Result<Self, ApiError> {
        let request: F = json::read(body)?;
        app.check_model(request.model())?;
        let TextRequest { writing, prompts, max_tokens, usual_tokens, is_streamed, include_usage } = request.read()?;
        writing.check(F::NAMES.alternatives)?;
        if prompts.iter().any(|prompt| has_variable(prompt, EFFORT)) && !app.model.has_variable(EFFORT) {
            return Err(ApiError::field(EFFORT, "the model's chat template has no such variable; omit it")
                .with_code("unsupported_parameter"));
        }
        let (field, none) = F::NAMES.prompts;
        if prompts.is_empty() {
            return Err(ApiError::field(field, none));
        }
        if prompts.len() * writing.choice_count() > MOST_TEXTS {
            return Err(ApiError::field(field, format!("at most {MOST_TEXTS} texts per request")));
        }
        let (mut asks, mut echoed, mut readers) = (Vec::new(), Vec::new(), Vec::new());
        let is_one = prompts.len() == 1;
        for (index, prompt) in prompts.into_iter().enumerate() {
            let param = if is_one { field.to_owned() } else { format!("{field}[{index}]") };
            let prompt = app.formatted(prompt, writing.constraint.is_none());
            let reader = app.thought_reader(&prompt).filter(|_| F::NAMES.has_thoughts);
            let (tokens, text) = in_tokens(app, &param, prompt, writing.echo)?;
            let max_tokens = room(app, &param, tokens.len(), max_tokens, usual_tokens)?;
            asks.push(writing.ask(app, &param, tokens, max_tokens)?);
            echoed.push(text);
            readers.push(reader);
        }
        let (whole, event) = F::NAMES.objects;
        let header = app.header(F::NAMES.id, if is_streamed { event } else { whole }, body);
        Ok(Self { asks, echoed, readers, writing, is_streamed, include_usage, header })
    }

    /// Whether texts are sent as they grow. Log-probabilities are only known when a text is complete.
    fn grows(&self) -> bool {
        self.writing.alternatives.is_none() && self.asks.iter().all(|ask| !ask.texts.is_empty())
    }

    fn usage(&self, completion_tokens: usize) -> UsageBody {
        UsageBody::new(self.asks.iter().map(|ask| ask.tokens.len()).sum(), completion_tokens)
    }

    /// The choices of a prompt.
    fn texts<'a>(
        &'a self,
        app: &'a App,
        place: usize,
        finished: &'a Finished,
    ) -> impl Iterator<Item = DoneText<'a>> + Send {
        let ask = &self.asks[place];
        let prompt = self.writing.echo.then_some((ask.tokens.as_slice(), finished.prompt.as_ref()));
        finished.written.iter().enumerate().map(move |(index, written)| {
            let (thought, text) = split(self.readers[place].clone(), written.text.clone());
            DoneText {
                index: place * ask.choices + index,
                text: format!("{}{text}", self.echoed[place]),
                thought,
                finish: written.reason(),
                logprobs: self.writing.alternatives.map(|count| RequestedLogprobs {
                    model: &*app.model,
                    written,
                    prompt,
                    count,
                }),
            }
        })
    }
}

impl Finished {
    fn tokens(&self) -> usize {
        self.written.iter().map(|written| written.ids.len()).sum()
    }
}

/// Waits for the texts of a prompt.
async fn finish<F: TextFormat>(
    app: &App,
    ask: &PromptAsk,
    open: OpenPrompt,
    deadline: Instant,
) -> Result<Finished, ApiError> {
    let param = F::NAMES.prompts.0;
    let prompt = match open.score {
        Some(score) => Some(prompt_tokens(answers::score(score, deadline).await?, param)?),
        None => None,
    };
    let mut written = Vec::with_capacity(ask.choices);
    for mut events in open.texts {
        written.push(answers::text(&mut events, deadline, param).await?);
    }
    if written.is_empty() {
        let text = match &prompt {
            Some(tokens) if ask.next_is_text => WrittenText::next(app, tokens)?,
            _ => WrittenText::nothing(),
        };
        written = vec![text; ask.choices];
    }
    Ok(Finished { prompt, written })
}

fn has_variable(prompt: &Prompt, name: &str) -> bool {
    matches!(prompt, Prompt::Chat { format, .. } if format.variables.contains_key(name))
}

/// Tokens of a prompt, and its text if needed.
fn in_tokens(app: &App, param: &str, prompt: Prompt, wants_text: bool) -> Result<(Vec<u32>, String), ApiError> {
    let Prompt::Tokens(ids) = prompt else {
        let tokens = encode(app, param, &prompt)?;
        return Ok((tokens, if wants_text { prompt.text() } else { String::new() }));
    };
    if let Some(id) = ids.iter().find(|id| !app.model.is_token(**id)) {
        return Err(ApiError::field(param, format!("token {id} is not in the vocabulary")));
    }
    let text = if wants_text { app.model.decode(&ids) } else { Ok(String::new()) };
    Ok((ids, text.map_err(|error| ApiError::field(param, error.to_string()))?))
}

/// Streams an answer.
fn streamed<F: TextFormat>(app: &Arc<App>, plan: TextPlan, open: Vec<OpenPrompt>, deadline: Instant) -> Response {
    let of_stream = app.clone();
    stream(app, plan.include_usage, move |out| async move {
        let app = of_stream;
        let encode = |event: Event<'_>| F::event(plan.header.clone(), event);
        for index in 0..plan.asks.iter().map(|ask| ask.choices).sum() {
            if let Some(opened) = encode(Event::Opened(index)) {
                out.send(opened).await?;
            }
        }
        let mut tokens = 0;
        if plan.grows() {
            let texts = open.into_iter().zip(&plan.echoed).zip(&plan.readers).flat_map(|((open, echoed), reader)| {
                let text = |events| OpenText { before: echoed.clone(), events, reader: reader.clone() };
                open.texts.into_iter().map(text)
            });
            let param = F::NAMES.prompts.0;
            let streamed = Streamed { app: &app, out: &out, stops: &plan.writing.stop, param, deadline };
            tokens = streamed.all(texts.collect(), encode).await?;
        } else {
            for (place, open) in open.into_iter().enumerate() {
                let finished = finish::<F>(&app, &plan.asks[place], open, deadline).await?;
                tokens += finished.tokens();
                for text in plan.texts(&app, place, &finished) {
                    out.send(encode(Event::Done(text))).await?;
                }
            }
        }
        Ok(encode(Event::Usage(plan.usage(tokens))))
    })
}

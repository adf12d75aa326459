//! `POST /v1/completions`.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use probity_lm::{OneOrMany, Prompt, TokensAnswer};
use tokio::time::Instant;

use crate::answers::{self, OpenPrompt, Written, prompt_tokens, submit};
use crate::api_error::ApiError;
use crate::app::App;
use crate::asks::{PromptAsk, Writing, encode, room};
use crate::body::aside;
use crate::json;
use crate::logprobs::of_completion;
use crate::stream::{Streamed, stream};
use crate::wire::completions::{CompletionBody, CompletionChoice, CompletionRequest};
use crate::wire::forms::{PlainPrompt, UsageBody};
use crate::wire::unhonoured::refuse_others;

/// Tokens of a text where a request does not say, as in `OpenAI`'s API.
const USUAL_TOKENS: usize = 16;
/// Prompts, times the choices of each.
const MOST_TEXTS: usize = 4096;

/// A request, ready to be asked.
struct Plan {
    asks: Vec<PromptAsk>,
    /// The text of each prompt, where it stands before what is written.
    echoed: Vec<String>,
    alternatives: Option<usize>,
    echo: bool,
    stops: Vec<String>,
    is_streamed: bool,
    include_usage: bool,
    header: Header,
}

/// What all parts of an answer say.
#[derive(Clone)]
pub(crate) struct Header {
    id: String,
    created: u64,
    model: String,
    system_fingerprint: String,
}

impl Header {
    fn new(app: &App, body: &[u8]) -> Self {
        Self {
            id: App::answer_id("cmpl", body),
            created: app.created,
            model: app.options.name.clone(),
            system_fingerprint: app.system_fingerprint.clone(),
        }
    }

    fn body(&self, choices: Vec<CompletionChoice>, usage: Option<UsageBody>) -> CompletionBody {
        let Self { id, created, model, system_fingerprint } = self.clone();
        CompletionBody { id, object: "text_completion", created, model, system_fingerprint, choices, usage }
    }
}

/// Answers a request.
pub(crate) async fn completions(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let deadline = app.deadline();
    let body = app.bodies.read(request).await?;
    let plan = aside(&app, move |app| plan(app, &body)).await?;
    // In one piece where log-probabilities are wanted, which are known when a text is done.
    let in_pieces = plan.is_streamed && plan.alternatives.is_none();
    let open = submit(&app, &plan.asks, in_pieces)?;
    if plan.is_streamed {
        return Ok(streamed(&app, plan, open, deadline));
    }
    let (mut choices, mut usage) = (Vec::new(), UsageBody::default());
    for (index, open) in open.into_iter().enumerate() {
        let of_prompt = prompt_choices(&app, &plan, index, open, deadline).await?;
        usage = add(usage, plan.asks[index].tokens.len(), &of_prompt);
        choices.extend(of_prompt.into_iter().map(|(choice, _)| choice));
    }
    Ok(Json(plan.header.body(choices, Some(usage))).into_response())
}

fn add(usage: UsageBody, prompt: usize, choices: &[(CompletionChoice, usize)]) -> UsageBody {
    let written: usize = choices.iter().map(|(_, tokens)| tokens).sum();
    UsageBody::new(usage.prompt_tokens + prompt, usage.completion_tokens + written)
}

fn plan(app: &App, body: &Bytes) -> Result<Plan, ApiError> {
    let request: CompletionRequest = json::read(body)?;
    app.check_model(request.model.as_ref())?;
    refuse_others(&request.unhonoured())?;
    let is_streamed = request.stream.unwrap_or(false);
    if request.stream_options.is_some() && !is_streamed {
        return Err(ApiError::field("stream_options", "goes with `stream` only"));
    }
    let echo = request.echo.unwrap_or(false);
    let writing = Writing {
        temperature: request.temperature,
        top_p: request.top_p,
        top_k: request.top_k,
        min_p: request.min_p,
        seed: request.seed,
        choices: request.n,
        stop: request.stop.map(|OneOrMany(stops)| stops).unwrap_or_default(),
        constraint: None,
        alternatives: request.logprobs,
        echo,
    };
    writing.check("logprobs")?;
    let prompts = request.prompt.0;
    if prompts.is_empty() {
        return Err(ApiError::field("prompt", "there is none"));
    }
    if prompts.len() * writing.choice_count() > MOST_TEXTS {
        return Err(ApiError::field("prompt", format!("at most {MOST_TEXTS} texts can be asked for at once")));
    }
    let (mut asks, mut echoed) = (Vec::new(), Vec::new());
    let is_one = prompts.len() == 1;
    for (index, prompt) in prompts.into_iter().enumerate() {
        let param = if is_one { "prompt".to_owned() } else { format!("prompt[{index}]") };
        let (tokens, text) = in_tokens(app, &param, prompt, echo)?;
        let max_tokens = room(app, &param, tokens.len(), ("max_tokens", request.max_tokens), USUAL_TOKENS)?;
        asks.push(writing.ask(app, &param, tokens, max_tokens)?);
        echoed.push(text);
    }
    let include_usage = request.stream_options.and_then(|options| options.include_usage).unwrap_or(false);
    let (alternatives, header) = (writing.alternatives, Header::new(app, body));
    Ok(Plan { asks, echoed, alternatives, echo, stops: writing.stop, is_streamed, include_usage, header })
}

/// The tokens of a prompt, and its text where that is wanted.
fn in_tokens(app: &App, param: &str, prompt: PlainPrompt, wants_text: bool) -> Result<(Vec<u32>, String), ApiError> {
    match prompt {
        PlainPrompt::Text(text) => {
            let prompt = Prompt::Text(text);
            let tokens = encode(app, param, &prompt)?;
            let Prompt::Text(text) = prompt else { unreachable!("it was made above") };
            Ok((tokens, text))
        }
        PlainPrompt::Ids(ids) => {
            if let Some(id) = ids.iter().find(|id| !app.model.is_token(**id)) {
                return Err(ApiError::field(param, format!("token {id} is not in the vocabulary")));
            }
            let text = if wants_text { app.model.decode(&ids) } else { Ok(String::new()) };
            Ok((ids, text.map_err(|error| ApiError::field(param, error.to_string()))?))
        }
    }
}

/// The choices of one prompt, each with how many tokens were written.
async fn prompt_choices(
    app: &App,
    plan: &Plan,
    place: usize,
    open: OpenPrompt,
    deadline: Instant,
) -> Result<Vec<(CompletionChoice, usize)>, ApiError> {
    let ask = &plan.asks[place];
    let told = match open.score {
        Some(score) => Some(prompt_tokens(answers::score(score, deadline).await?, "prompt")?),
        None => None,
    };
    let mut written = Vec::with_capacity(ask.choices);
    for mut events in open.texts {
        written.push(answers::text(&mut events, deadline, "prompt").await?);
    }
    if written.is_empty() {
        let text = match &told {
            Some(told) if ask.next_is_text => Written::next(app, told)?,
            _ => Written::nothing(),
        };
        written = vec![text; ask.choices];
    }
    let choice = |(index, written): (usize, Written)| {
        let choice = choice(app, plan, (place, place * ask.choices + index), told.as_ref(), &written);
        (choice, written.ids.len())
    };
    Ok(written.into_iter().enumerate().map(choice).collect())
}

fn choice(
    app: &App,
    plan: &Plan,
    (place, index): (usize, usize),
    told: Option<&TokensAnswer>,
    written: &Written,
) -> CompletionChoice {
    let prompt = plan.echo.then(|| (plan.asks[place].tokens.as_slice(), told));
    let logprobs = plan.alternatives.map(|count| of_completion(&*app.model, prompt, written, count));
    let before = if plan.echo { plan.echoed[place].as_str() } else { "" };
    CompletionChoice { index, text: format!("{before}{}", written.text), logprobs, finish_reason: Some(written.finish) }
}

/// The same as events.
fn streamed(app: &Arc<App>, plan: Plan, open: Vec<OpenPrompt>, deadline: Instant) -> Response {
    let prompts: usize = plan.asks.iter().map(|ask| ask.tokens.len()).sum();
    let (stops, include_usage) = (plan.stops.clone(), plan.include_usage);
    let app_of_stream = app.clone();
    let in_pieces = plan.alternatives.is_none() && plan.asks.iter().all(|ask| !ask.texts.is_empty());
    stream(app, include_usage, move |out| async move {
        let app = app_of_stream;
        let header = plan.header.clone();
        let mut completion = 0;
        if in_pieces {
            let mut texts = Vec::new();
            for (place, open) in open.into_iter().enumerate() {
                let before = if plan.echo { plan.echoed[place].clone() } else { String::new() };
                texts.extend(open.texts.into_iter().map(|events| (before.clone(), events)));
            }
            let choice = |index, text, finish_reason| {
                let choice = CompletionChoice { index, text, logprobs: None, finish_reason };
                serde_json::to_string(&header.body(vec![choice], None))
            };
            let streamed = Streamed { app: &app, out: &out, stops: &stops, deadline };
            completion = streamed.all(texts, &choice).await?;
        } else {
            for (place, open) in open.into_iter().enumerate() {
                for (choice, tokens) in prompt_choices(&app, &plan, place, open, deadline).await? {
                    completion += tokens;
                    out.send(serde_json::to_string(&header.body(vec![choice], None))).await?;
                }
            }
        }
        Ok(serde_json::to_string(&header.body(Vec::new(), Some(UsageBody::new(prompts, completion)))))
    })
}

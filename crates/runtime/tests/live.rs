//! Probabilities of tokens with alternatives, and texts that arrive during generation, on the tiny checkpoints of the
//! repository.

use std::path::Path;

use probity_lm::{
    Ask, AskedTokens, Finish, GenerateRequest, GenerateResult, LanguageModel, LiveTexts, Outcome, Precision, Prompt,
    Sampling, SamplingLimits, ScoreRequest, ScoreResult, SinkError, TokensAnswer,
};
use probity_runtime::hub::locate;
use probity_runtime::{DeviceChoice, LoadOptions, Model};

fn load(options: LoadOptions) -> Model {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens/models/llama");
    Model::load(&locate(path.to_str().expect("UTF-8 path")).expect("a model lies there"), options).expect("loads")
}

fn request(prompt: &[u32], ids: &[u32], alternatives: usize, next: bool) -> ScoreRequest {
    let ask = Ask::Tokens(AskedTokens { ids: ids.to_vec(), alternatives, next });
    ScoreRequest { id: "r".into(), prompt: Prompt::Tokens(prompt.to_vec()), ask }
}

fn tokens(model: &Model, request: ScoreRequest) -> TokensAnswer {
    let result: ScoreResult = model.score_all(&[request]).expect("scores").remove(0);
    result.tokens().expect("tokens").clone()
}

#[test]
fn each_token_has_its_own_probability_and_the_likeliest_beside_it() {
    let model = load(LoadOptions::default());
    let vocabulary = model.encoder().tokenizer().vocab_size();
    let ids = [40, 7, 90, 90, 3];
    let all = tokens(&model, request(&[5, 6, 7], &ids, vocabulary, true));
    assert_eq!((all.continuation.token_ids.as_slice(), all.alternatives.len()), (&ids[..], ids.len() + 1));
    for (place, list) in all.alternatives.iter().enumerate() {
        let sum: f64 = list.iter().map(|one| one.logprob.exp()).sum();
        assert!(list.len() == vocabulary && (sum - 1.0).abs() < 1e-5, "{sum}");
        assert!(list.windows(2).all(|two| two[0].logprob >= two[1].logprob));
        if let Some(id) = ids.get(place) {
            let own = list.iter().find(|one| one.id == *id).expect("all of them");
            assert_eq!(own.logprob.to_bits(), all.continuation.token_logprobs[place].to_bits());
        }
    }
    for count in [1, 2, 9] {
        let some = tokens(&model, request(&[5, 6, 7], &ids, count, true));
        let first = |answer: &TokensAnswer| answer.alternatives.iter().map(|l| l[..count].to_vec()).collect::<Vec<_>>();
        assert_eq!((first(&some), &some.continuation), (first(&all), &all.continuation), "{count}");
    }
    let none = tokens(&model, request(&[5, 6, 7], &ids, 0, false));
    assert_eq!((&none.continuation, none.alternatives), (&all.continuation, vec![Vec::new(); ids.len()]));
    let next = tokens(&model, request(&[&[5, 6, 7], &ids[..]].concat(), &[], 2, true));
    assert_eq!((next.continuation.token_ids.len(), &next.alternatives[0][..]), (0, &all.alternatives[5][..2]));
}

#[test]
fn what_is_told_of_tokens_does_not_depend_on_company_or_device() {
    let requests: Vec<ScoreRequest> =
        (0..20).map(|n| request(&[5, 6, 7, 8 + n % 3], &[40, n, 90 - n, 3], (n % 4) as usize, n % 2 == 0)).collect();
    for precision in [Precision::Exact, Precision::Dots] {
        let model = load(LoadOptions { precision, token_budget: Some(7), ..LoadOptions::default() });
        let together = model.score_all(&requests).expect("scores");
        for (request, result) in requests.iter().zip(&together) {
            assert_eq!(&model.score_all(std::slice::from_ref(request)).expect("scores")[0], result);
        }
    }
    let [ours, candle] = [DeviceChoice::Cpu, DeviceChoice::CandleCpu].map(|device| {
        tokens(&load(LoadOptions { devices: device.into(), ..LoadOptions::default() }), request(&[5], &[6, 7], 1, true))
    });
    for (a, b) in ours.alternatives.iter().flatten().zip(candle.alternatives.iter().flatten()) {
        assert!(a.id == b.id && (a.logprob - b.logprob).abs() < 1e-3, "{a:?} {b:?}");
    }
}

fn text(n: usize) -> GenerateRequest {
    let prompt = Prompt::Tokens(vec![5, 6, 7, 8 + n as u32 % 3, 30 + n as u32]);
    let sampling = Sampling::Random { temperature: 1.0, limits: SamplingLimits::default(), seed: n as u64 };
    let sampling = if n.is_multiple_of(2) { Sampling::Greedy } else { sampling };
    let alternatives = (!n.is_multiple_of(3)).then_some(n % 3);
    GenerateRequest { sampling, alternatives, ..GenerateRequest::greedy(n.to_string(), prompt, 6 + 5 * n) }
}

fn alone(model: &Model, request: GenerateRequest) -> GenerateResult {
    let mut results = Vec::new();
    let mut sink = |_, result| {
        results.push(result);
        Ok(())
    };
    model.generate(&mut std::iter::once(request), &mut sink).expect("generates");
    results.remove(0)
}

#[test]
fn generated_tokens_have_the_probabilities_that_they_have_when_they_are_given() {
    let model = load(LoadOptions::default());
    for n in [1, 2, 4] {
        let result = alone(&model, text(n));
        let Prompt::Tokens(prompt) = text(n).prompt else { panic!("tokens") };
        let told = result.tokens.as_ref().expect("tokens");
        let ids = &told.continuation.token_ids;
        let ended = result.finish == Some(Finish::EndOfTurn);
        assert!(ids.starts_with(&result.token_ids) && ids.len() == result.token_ids.len() + usize::from(ended));
        assert_eq!(**told, tokens(&model, request(&prompt, ids, n % 3, false)), "{n}");
        let plain = alone(&model, GenerateRequest { alternatives: None, ..text(n) });
        assert_eq!((plain.token_ids, plain.tokens), (result.token_ids, None));
    }
}

/// Adds a text at every third pass, and cancels one.
struct Arriving<'a> {
    model: &'a Model,
    passes: usize,
    given: usize,
    of: usize,
    given_up: usize,
    done: Vec<Option<GenerateResult>>,
    grown: Vec<Vec<u32>>,
    between: Vec<ScoreResult>,
}

impl LiveTexts for Arriving<'_> {
    fn next(&mut self) -> Option<GenerateRequest> {
        // The list ends only when no text is being generated, so it stays open until the last text has arrived.
        if self.given == self.of || (!self.passes.is_multiple_of(3) && self.given > 0) {
            return None;
        }
        self.passes += 1;
        self.given += 1;
        Some(text(self.given - 1))
    }

    fn grown(&mut self, place: usize, ids: &[u32]) -> bool {
        assert!(ids.starts_with(&self.grown[place]), "a text only grows");
        self.grown[place] = ids.to_vec();
        place != self.given_up || ids.len() < 4
    }

    fn pause(&mut self) -> Result<(), SinkError> {
        self.passes += 1;
        self.between.extend(self.model.score_all(&[request(&[5, 6, 7], &[40, 7], 1, true)])?);
        Ok(())
    }

    fn done(&mut self, place: usize, result: GenerateResult) -> Result<(), SinkError> {
        assert!(self.done[place].replace(result).is_none(), "each once");
        Ok(())
    }
}

#[test]
fn texts_that_come_while_others_are_written_are_what_they_are_alone() {
    let model = load(LoadOptions { side_by_side: 4, ..LoadOptions::default() });
    let of = 9;
    let mut texts = Arriving {
        model: &model,
        passes: 0,
        given: 0,
        of,
        given_up: 6,
        done: vec![None; of],
        grown: vec![Vec::new(); of],
        between: Vec::new(),
    };
    model.generate_live(&mut texts).expect("generates");
    assert_eq!(texts.given, of);
    for (n, result) in texts.done.iter().enumerate() {
        let (result, alone) = (result.as_ref().expect("done"), alone(&model, text(n)));
        if n == texts.given_up {
            assert!(matches!(&result.outcome, Outcome::Unparsed { why } if why.contains("given up")), "{result:?}");
            assert!(alone.token_ids.starts_with(&result.token_ids) && result.token_ids.len() < alone.token_ids.len());
        } else {
            assert_eq!(*result, alone, "{n}");
            assert!(result.token_ids.starts_with(&texts.grown[n]));
        }
    }
    assert!(texts.between.len() > 10 && texts.between.windows(2).all(|two| two[0] == two[1]), "the same at any time");
}

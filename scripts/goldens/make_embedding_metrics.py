"""Writes tests/goldens/embedding/{algorithm,minilm,blanc}.json: BERTScore, MoverScore and BLANC-help as computed by
bert-score, moverscore and blanc.

Usage: make_embedding_metrics.py algorithm
       make_embedding_metrics.py minilm MINILM DATA
       make_embedding_metrics.py blanc DATA

`algorithm` needs no weights: the tools run unchanged, but with stand-ins for tokenizer and model, whose states and
predictions follow from a formula that the test also uses. MINILM is the folder of all-MiniLM-L6-v2, DATA that of
summeval.json, of whose texts only numbers are kept. `blanc` uses the tiny model from make_masked_model.py.
"""

import ast
import json
import random
import string
import sys
from collections import Counter, defaultdict
from functools import partial
from importlib.util import find_spec
from itertools import chain
from math import log
from pathlib import Path

import numpy
import scipy.optimize
import torch
import transformers
from provenance import ROOT, versions, write_json
from pyemd import emd

# blanc 0.3.4 imports it for tuning, which is not used here; newer versions of transformers lack it.
transformers.AdamW = torch.optim.AdamW

import bert_score  # noqa: E402
import blanc  # noqa: E402

FOLDER = ROOT / "embedding"
bert_score_module = sys.modules["bert_score.score"]
blanc_module = sys.modules["blanc.blanc"]

# --- the stand-ins ---

SPECIAL = ["[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [f"w{i}" for i in range(40)] + [f"##s{i}" for i in range(10)] + list(".,(")
VOCABULARY = SPECIAL + WORDS
LAYERS, WIDTH = 6, 16


def uniform(key):
    """splitmix64's output for a key, as a number from -1/2 to 1/2 of 24 bits."""
    mask = (1 << 64) - 1
    z = (key + 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    z ^= z >> 31
    return (z >> 40) / (1 << 24) - 0.5


def state(token, at, layer):
    """The stand-in's state of a token, from its id and its position."""
    return [uniform(token * 1000 + layer * 10**6 + d) + 0.5 * uniform(10**12 + layer * 10**9 + (token * 512 + at) * 64 + d) for d in range(WIDTH)]


class StandInTokenizer:
    pad_token_id, cls_token_id, sep_token_id = 0, 1, 2
    model_max_length = max_len = 64
    cls_token, sep_token, mask_token, pad_token = "[CLS]", "[SEP]", "[MASK]", "[UNK]"

    def tokenize(self, text):
        pieces = []
        for word in text.split():
            head, *tail = word.replace("s", " ##s").split()
            pieces += [head, *tail]
        return pieces

    def convert_tokens_to_ids(self, tokens):
        return [0 if token == "[PAD]" else VOCABULARY.index(token) for token in tokens]

    def convert_ids_to_tokens(self, ids):
        return [VOCABULARY[i] for i in ids]

    def build_inputs_with_special_tokens(self, ids):
        return [1, *ids, 2]

    def encode(self, text, add_special_tokens, max_length, truncation):
        return [1, *self.convert_tokens_to_ids(self.tokenize(text))[: max_length - 2], 2]


class StandInModel(torch.nn.Module):
    """A model with the interfaces that bert-score, moverscore and blanc use."""

    def __init__(self, layer=LAYERS):
        super().__init__()
        self.layer, self.nothing = layer, torch.nn.Parameter(torch.zeros(1))

    def states(self, ids, layer):
        return torch.tensor([[state(int(token), at, layer) for at, token in enumerate(row)] for row in ids], dtype=torch.float64)

    def forward(self, ids, segments=None, attention_mask=None, output_hidden_states=None, output_all_encoded_layers=None):
        if output_all_encoded_layers:
            return [self.states(ids, layer) for layer in range(1, LAYERS + 1)], None
        return (self.states(ids, self.layer),)


class StandInMasked:
    def __call__(self, input_ids, attention_mask, token_type_ids):
        logits = torch.zeros(*input_ids.shape, len(VOCABULARY))
        for row, (ids, mask) in enumerate(zip(input_ids.tolist(), attention_mask.tolist())):
            ids = ids[: sum(mask)]
            for at in range(1, len(ids)):
                logits[row, at, predicted(ids, at)] = 1.0
        return (logits,)

    def eval(self):
        return self

    def to(self, device):
        return self


def predicted(ids, at):
    """The id after the previous one, or two after it, depending on the whole sequence."""
    return min(ids[at - 1] + 1 + (sum(ids) * 31 + at) % 3 // 2, len(VOCABULARY) - 1)


# --- the tools ---


def bert_scores(items, model, tokenizer, layer, idf, baseline=None, batch_size=1):
    """A row of F, P, R for each item; None if bert-score warns of an empty text or divides by zero."""
    bert_score_module.get_model = lambda *_: model
    bert_score_module.get_tokenizer = lambda *_: tokenizer
    candidates, references = [item["candidate"] for item in items], [item["references"] for item in items]
    options = {"rescale_with_baseline": True, "baseline_path": str(baseline), "lang": "en"} if baseline else {}
    # The tool takes the highest of several references; the undefined ones must be excluded.
    rows = bert_score.score(
        candidates, references, model_type="x", num_layers=layer, idf=idf, nthreads=0, batch_size=batch_size, device="cpu", **options
    )
    rows = [[float(f), float(p), float(r)] for p, r, f in zip(*rows)]
    return [None if is_undefined(item) or not numpy.isfinite(row).all() else row for item, row in zip(items, rows)]


def is_undefined(item):
    return not item["candidate"].strip() or not any(reference.strip() for reference in item["references"])


class NoPool:
    def __init__(self, _):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    map = staticmethod(map)


def exact_emd(first, second, distances):
    """The exact distance by linear programming, moving as much mass as both sides have."""
    sources, sinks = numpy.flatnonzero(first), numpy.flatnonzero(second)
    if not sources.size or not sinks.size:
        # The tool returns 1 if nothing has any weight.
        return numpy.nan
    costs = distances[numpy.ix_(sources, sinks)]
    n, m = costs.shape
    rows = numpy.vstack([numpy.kron(numpy.eye(n), numpy.ones(m)), numpy.kron(numpy.ones(n), numpy.eye(m))])
    first, second = first[sources] / first.sum(), second[sinks] / second.sum()
    found = scipy.optimize.linprog(costs.ravel(), A_eq=rows, b_eq=numpy.concatenate([first, second]), method="highs")
    assert found.status == 0, found.message
    return found.fun


def moverscore(model, tokenizer, solver):
    """The functions of the installed moverscore.py, because importing the module downloads a model."""
    source = Path(find_spec("moverscore").origin).read_text()
    wanted = ast.parse(source)
    keep = (ast.FunctionDef,)
    lambdas = [node for node in wanted.body if isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda)]
    wanted.body = [node for node in wanted.body if isinstance(node, keep)] + lambdas
    names = {"np": numpy, "torch": torch, "string": string, "emd": solver, "log": log, "chain": chain, "Counter": Counter}
    names |= {"defaultdict": defaultdict, "partial": partial, "Pool": NoPool, "device": "cpu", "model": model, "tokenizer": tokenizer}
    exec(compile(wanted, "moverscore", "exec"), names)
    return names


def mover_scores(items, model, tokenizer, n=1, idf=True, subwords=False, stop=()):
    """Two numbers for each item, with exact transport and with the tool's own: means over references with positive
    mass."""
    both = [mover_scores_by(solver, items, model, tokenizer, n, idf, subwords, stop) for solver in (exact_emd, emd)]
    rows = []
    for exact, own in zip(*both):
        defined = numpy.isfinite(exact)
        rows.append([float(numpy.mean(exact[defined])), float(numpy.mean(own[defined]))] if defined.any() else [None, None])
    exact, own = zip(*rows)
    return exact, own


def mover_scores_by(solver, items, model, tokenizer, n, idf, subwords, stop):
    """For each item a number for each non-empty reference."""
    tool = moverscore(model, tokenizer, solver)
    candidates = [item["candidate"] for item in items]
    references = [reference for item in items for reference in item["references"]]
    equal = defaultdict(lambda: 1.0)
    idf_references = tool["get_idf_dict"](references) if idf else equal
    idf_candidates = tool["get_idf_dict"](candidates) if idf else equal
    options = {"stop_words": list(stop), "n_gram": n, "remove_subwords": not subwords, "device": "cpu", "batch_size": 1}
    rows = []
    for item in items:
        if is_undefined(item):
            rows.append(numpy.array([]))
            continue
        filled = [reference for reference in item["references"] if reference.strip()]
        scores = tool["word_mover_score"](filled, [item["candidate"]] * len(filled), idf_references, idf_candidates, **options)
        rows.append(numpy.array(scores, dtype=float))
    return rows


def blanc_scores(items, model, tokenizer, split, gap, measure):
    """Score and number of masked tokens of each item; None if none was masked."""
    blanc_module.BertTokenizer = type("T", (), {"from_pretrained": staticmethod(lambda _: tokenizer)})
    blanc_module.BertForMaskedLM = type("M", (), {"from_pretrained": staticmethod(lambda _, return_dict: model)})
    blanc_module.sent_tokenize = split
    tool = blanc.BlancHelp(model_name="x", gap=gap, measure=f"{measure}-counts", show_progress_bar=False)
    rows = tool.eval_pairs([item["source"] for item in items], [item["candidate"] for item in items])
    counts = [sum(map(sum, counts)) for _, counts in rows]
    return [[score, count] if count and item["candidate"].strip() else None for item, (score, _), count in zip(items, rows, counts)]


# --- what is written ---


def invented(rng):
    """Texts of the stand-ins' vocabulary: runs of consecutive words, so that some can be predicted, and some word
    endings."""

    def text(length):
        words, at = [], rng.randrange(36)
        for _ in range(length):
            at = rng.randrange(36) if rng.random() < 0.25 else (at + 1) % 40
            words.append(f"w{at}" + (f"s{rng.randrange(10)}" if rng.random() < 0.2 else ""))
            if rng.random() < 0.15:
                words.append(rng.choice(".,("))
        return " ".join(words)

    items = []
    for _ in range(50):
        references = [text(rng.randrange(1, 16)) for _ in range(rng.choice([1, 1, 2, 3]))]
        items.append({"candidate": text(rng.randrange(1, 16)), "references": references, "source": text(rng.randrange(1, 40))})
    same, long = text(8), text(90)
    items.append({"candidate": same, "references": [same], "source": same})
    items.append({"candidate": "w3", "references": ["w3"], "source": "w3"})
    items.append({"candidate": long, "references": [text(80), text(3)], "source": long})
    items.append({"candidate": "", "references": ["w1 w2"], "source": "w1 w2"})
    items.append({"candidate": "w1 w2", "references": [""], "source": ""})
    items.append({"candidate": "w1 w2", "references": ["", "w2 w1"], "source": ". w1 ,"})
    items.append({"candidate": ". , (", "references": ["( , ."], "source": ". , ("})
    return items


MOVERS = {
    "mover-score": {},
    "mover-score:no-idf=yes": {"idf": False},
    "mover-score:n=2": {"n": 2},
    "mover-score:n=2,no-idf=yes,subwords=yes": {"n": 2, "idf": False, "subwords": True},
    "mover-score:n=3,stop=w1 w2 w30": {"n": 3, "stop": ["w1", "w2", "w30"]},
}


def algorithm():
    items, tokenizer = invented(random.Random(5)), StandInTokenizer()
    write_json(FOLDER / "items.json", {"items": items})
    baseline = FOLDER / "baseline.tsv"
    baseline.write_text("LAYER,P,R,F\n" + "".join(f"{n},{0.1 + n / 50},{0.12 + n / 40},{0.11 + n / 45}\n" for n in range(LAYERS + 1)))
    berts = {
        "bert-score": (LAYERS, False, None),
        "bert-score:layer=0": (0, False, None),
        "bert-score:idf=yes,layer=3": (3, True, None),
        "bert-score:idf=yes,baseline": (LAYERS, True, baseline),
    }
    scores = {name: bert_scores(items, StandInModel(options[0]), tokenizer, *options) for name, options in berts.items()}
    movers = {name: mover_scores(items, StandInModel(), tokenizer, **options) for name, options in MOVERS.items()}
    exact, rounded = ({name: both[which] for name, both in movers.items()} for which in (0, 1))
    blancs = {
        f"blanc:gap={gap},measure={measure},min-normal=2": blanc_stand_in(items, tokenizer, gap, measure)
        for gap, measure in [(2, "relative"), (6, "relative"), (2, "improve"), (1, "relative")]
    }
    write_json(FOLDER / "algorithm.json", {
        "made_with": versions("bert-score", "moverscore", "blanc", "pyemd", "scipy", "torch"),
        "max_abs_difference": {"bert_score": 1e-6, "mover_score_exact": 2e-6, "mover_score": 1e-5, "blanc": 1e-12},
        "bert_score": scores, "mover_score_exact": exact, "mover_score": rounded, "blanc": blancs,
    })  # fmt: skip


def blanc_stand_in(items, tokenizer, gap, measure):
    tool_init = blanc.BlancHelp.__init__
    try:
        # The stand-ins' words are shorter than the tool's default.
        blanc.BlancHelp.__init__ = lambda self, **options: tool_init(self, min_token_length_normal=2, **options)
        return blanc_scores(items, StandInMasked(), tokenizer, lambda text: [text] if text.strip() else [], gap, measure)
    finally:
        blanc.BlancHelp.__init__ = tool_init


# --- with real weights ---


def real_items(data):
    """Five systems' summaries of each article of SummEval, with one, two or three references in turn."""
    items = []
    for article in json.loads((data / "summeval.json").read_text()).values():
        for system in sorted(article["sys_summs"])[:5]:
            references = article["ref_summs"][: 1 + len(items) % 3]
            items.append({"candidate": article["sys_summs"][system]["sys_summ"], "references": references, "source": article["src"]})
    return items


class MiniLm(torch.nn.Module):
    """A model of transformers, with the interface that moverscore uses."""

    def __init__(self, folder):
        super().__init__()
        self.model = transformers.AutoModel.from_pretrained(folder).eval()

    def forward(self, ids, segments, attention_mask, output_all_encoded_layers):
        output = self.model(ids, token_type_ids=segments, attention_mask=attention_mask, output_hidden_states=True)
        return list(output.hidden_states[1:]), None


EMBEDDED = [
    "The cat sat on the mat.",
    "",
    "Ein Ärgernis, naïve café — 日本語 text with emoji 🙂 and unwritable \u1234.",
    "A much longer text that says the same thing again and again. " * 12,
]


def rounded(value):
    return [rounded(v) for v in value] if isinstance(value, (list, tuple)) else None if value is None else round(value, 8)


def minilm(folder, data):
    items = real_items(data)
    candidates, references = [item["candidate"] for item in items], [item["references"] for item in items]
    scores = {}
    for name, layer, idf in [("bert-score", 6, False), ("bert-score:layer=3", 3, False), ("bert-score:idf=yes", 6, True)]:
        rows = bert_score.score(
            candidates, references, model_type=str(folder), num_layers=layer, idf=idf, nthreads=0, use_fast_tokenizer=True, device="cpu"
        )
        scores[name] = [[float(f), float(p), float(r)] for p, r, f in zip(*rows)]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.max_len = tokenizer.model_max_length
    movers = {"mover-score": {}, "mover-score:n=2,no-idf=yes": {"n": 2, "idf": False}}
    single = [item | {"references": item["references"][:1]} for item in items]
    moved = {}
    for name, options in movers.items():
        settings = {"n": 1, "idf": True, "subwords": False, "stop": ()} | options
        moved[name] = [row[0] for row in mover_scores_by(emd, single, MiniLm(folder), tokenizer, **settings)]
    batch = tokenizer(EMBEDDED, padding=True, truncation=True, max_length=512, return_tensors="pt")
    with torch.no_grad():
        states = transformers.AutoModel.from_pretrained(folder).eval()(**batch).last_hidden_state
    mask = batch["attention_mask"].unsqueeze(-1)
    embedded = torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1))
    write_json(FOLDER / "minilm.json", {
        "made_with": versions("bert-score", "moverscore", "pyemd", "scipy", "torch", "transformers"),
        "items": "five systems (by name) of each article of summeval.json, with 1, 2, 3 references in turn; mover_score with the first alone",
        "max_abs_difference": {"bert_score": 1e-5, "mover_score": 2e-5, "embeddings": 1e-5},
        "bert_score": {name: rounded(rows) for name, rows in scores.items()},
        "mover_score": {name: rounded([float(score) for score in row]) for name, row in moved.items()},
        "texts": EMBEDDED,
        "embeddings": rounded(embedded.tolist()),
    })  # fmt: skip


OWN = [
    ("The farmer planted apple trees near the harbour. A teacher painted every window in the morning.", "Apple trees near the harbour."),
    ("My neighbour repaired wooden boats. The old captain carried heavy suitcases!", "The old captain carried heavy suitcases."),
    ("A young doctor forgot many letters before the winter. It was cold.", "A young doctor forgot many letters before the winter."),
    ("The farmer planted apple trees.", ""),
    ("", "The farmer planted apple trees."),
    ("a b c", "The farmer planted apple trees."),
    ("Dr. Na\u00efve \ufb01lled the \u2460st form\u2026 and \u00bdleft.\n\nNothing else?", "The form was filled."),
    ("the garden fence " * 300, "The old captain remembered the garden fence without any help. " * 30),
]


def blanc_with_model(data):
    """Our own texts, and the first articles of SummEval, which have more than 500 sentences."""
    from uniseg.sentencebreak import sentences

    folder = ROOT / "models" / "tiny-masked"
    tokenizer = transformers.BertTokenizerFast.from_pretrained(folder)
    model = transformers.BertForMaskedLM.from_pretrained(folder, return_dict=False).eval()
    real = real_items(data)[: 5 * 40 : 5]

    def split(text):
        return [sentence.strip() for sentence in sentences(text) if sentence.strip()]

    print(sum(len(split(item["source"])) for item in real), "sentences")
    own = [{"source": source, "candidate": summary} for source, summary in OWN]
    short = [{"source": item["references"][0], "candidate": item["candidate"]} for item in real_items(data)]
    metrics = [("blanc", 2, "relative"), ("blanc:gap=6", 6, "relative")]
    write_json(FOLDER / "blanc.json", {
        "made_with": versions("blanc", "torch", "transformers", "uniseg"),
        "items": "the summary of the first system (by name) of each of the first 40 articles of summeval.json; `short`: those of five systems, before the first reference",
        "texts": own,
        "own": {name: blanc_scores(own, tokenizer=tokenizer, model=model, split=split, gap=gap, measure=m) for name, gap, m in metrics},
        "short": {name: blanc_scores(short, tokenizer=tokenizer, model=model, split=split, gap=gap, measure=m) for name, gap, m in metrics[:1]},
        "real": {name: blanc_scores(real, tokenizer=tokenizer, model=model, split=split, gap=gap, measure=m) for name, gap, m in metrics[:1]},
    })  # fmt: skip


if __name__ == "__main__":
    commands = {"algorithm": algorithm, "minilm": minilm, "blanc": blanc_with_model}
    commands[sys.argv[1]](*map(Path, sys.argv[2:]))

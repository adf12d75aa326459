"""Writes tests/goldens/metrics/: stems and text metrics as computed by their published implementations.

Usage: make_text_metrics.py stems
       make_text_metrics.py wordnet
       make_text_metrics.py answers --data FOLDER --evaluate FOLDER
       make_text_metrics.py text --data FOLDER --easse FOLDER --simplification FOLDER --jfleg FOLDER --evaluate FOLDER --wordnet FOLDER

The last one needs source trees: feralvam/easse at 6a4352ec, cocoxu/simplification at 35570464, keisks/jfleg at ee06ff80
(eval/gleu.py), huggingface/evaluate at a7dd3383 (metrics/sari/sari.py); WordNet 3.0's folder dict with index, data and
exc files; and the folder of data sets that tests find through PROBITY_SHARED_DATA. Only numbers are kept of those
texts.
"""

import argparse
import importlib.util
import json
import random
import re
import shutil
import sys
import tempfile
import warnings
from pathlib import Path

import nltk
from nltk.corpus.reader.wordnet import WordNetCorpusReader
from nltk.stem.porter import PorterStemmer
from nltk.translate.gleu_score import corpus_gleu
from nltk.translate.meteor_score import meteor_score
from provenance import ROOT, versions, write_json

FOLDER = ROOT / "metrics"
COMMITS = {
    "feralvam/easse": "6a4352ec299ed03fda8ee45445ca43d9c7673e89",
    "cocoxu/simplification": "35570464faa28f8f64d75e1c35b6770048e04adc",
    "keisks/jfleg": "ee06ff806a208aba815ac45313f4e750a48330a5",
    "huggingface/evaluate": "a7dd338386a4fae9a1767e05eb9ef9479513d9e8",
}

ROOTS = """
abil agree analog archae bl cann car communi conform connect controll d decis di digit do eat electr enjo f fall feud fil fizz fl formal geo
happ hiss hop hopp howe inn l lo lov meet motor n new oper out plast pon predic proc radic rat re relat revol roll s sens sing siz sk snow spy
succe t tann theo tr troubl us v val vietnam y yy
""".split()
SUFFIXES = """
a able al alism aliti alize alli ance anci ant ate ated ates ational ative ator bli bliti biliti e ed eed eli ement enci ence ent entli er es ful
fulli fulness ial ible ic ical icate iciti ied ier ies iing ing ings ion ise ism iti iveness ive iviti ization ize ized izer izing ll lli logi
ly lly ment ness ning oo ou ousli ousness ous s sed ses ss sses ted tional tted x y yed ying yy zed zzed
""".split()
WORDS = """
A I is as Is the THE being cats Caresses ponies ties caress feed agreed plastered bled motoring sing conflated troubled sized hopping tanned falling
hissing fizzed failing filing happy sky skies dying lying tying news innings outings cannings howe proceed exceed succeed dies died lies spied flies
generalizations oscillators relational conditional rational valenci hesitanci digitizer conformabli radicalli differentli vileli analogousli
vietnamization predication operator feudalism decisiveness hopefulness callousness formaliti sensitiviti sensibiliti triplicate formative formalize
electriciti electrical hopeful goodness revival allowance inference airliner gyroscopic adjustable defensible irritant replacement adjustment
dependent adoption homologou communism activate angulariti homologous effective bowdlerize probate rate cease controll roll yyyy yyyed yying syzygy
toy by a*ded x*ding 2016 3d 1990s u.s. don't 's n't e-mails re-reading naïve café cafés résumés éés ééed ñandúes über ÜBUNGEN Σίσυφος ΟΔΥΣΣΕΥΣ
İstanbul straße 東京 東京ing हिन्दी 😀s ied eed ed ing ion sion y s ss ee aed oing ooing iing eying
""".split()


def stems():
    rng = random.Random(11)
    made = sorted({root + suffix for root in ROOTS for suffix in SUFFIXES})
    words = WORDS + rng.sample(made, 2000)
    stemmer = PorterStemmer()
    value = {"made_with": versions("nltk"), "stems": [[word, stemmer.stem(word)] for word in words]}
    write_json(FOLDER / "stems.json", value)


# Our own WordNet: part of speech, words of a synset.
SYNSETS = [
    ("n", ["dog", "hound", "barker(a)"]),
    ("n", ["hound", "tracker"]),
    ("n", ["car", "auto", "motor_car"]),
    ("n", ["goose", "gander"]),
    ("n", ["wolf", "Canis"]),
    ("v", ["run", "race", "hasten"]),
    ("v", ["car", "drive"]),
    ("a", ["quick", "fast(p)", "speedi"]),
    ("s", ["big", "larg"]),
    ("r", ["fast", "quickli"]),
]
EXCEPTIONS = {"noun": ["gees goose", "wolv wolf wolves"], "verb": ["ran run"], "adj": ["bigger big"], "adv": []}
SUFFIX = {"n": "noun", "v": "verb", "a": "adj", "r": "adv"}
MEANT = [
    ("The hound raced after a big car", "A dog ran after a large auto"),
    ("quick dogs run", "fast hounds hasten"),
    ("Geese and wolves", "gander and canis"),
    ("He is running fast", "He is racing quickly"),
    ("hound hound hound", "dog tracker barker"),
    ("a motor car", "a car motor_car"),
    ("car car drive", "auto drive car"),
    ("nothing here", "is alike"),
]


def write_wordnet(folder):
    """WordNet's file formats: data lines start with their own byte offset, and satellites of adjectives are in
    data.adj."""
    licence = "  1 A database of a few words for tests, WordNet 0.1 Copyright of nobody.\n"
    for letter, suffix in SUFFIX.items():
        index, text = {}, licence
        for kind, words in SYNSETS:
            if ("a" if kind == "s" else kind) != letter:
                continue
            offset = len(text.encode())
            listed = " ".join(f"{word} 0" for word in words)
            head = " 001 & %08d a 0000" % len(licence) if kind == "s" else " 000"
            text += f"{offset:08d} 00 {kind} {len(words):02x} {listed}{head} | words\n"
            for word in words:
                index.setdefault(re.sub(r"\(.*\)", "", word).lower(), []).append(offset)
        (folder / f"data.{suffix}").write_text(text)
        rows = [f"{word} {letter} {len(o)} 1 @ {len(o)} 0 " + " ".join("%08d" % x for x in o) for word, o in sorted(index.items())]
        (folder / f"index.{suffix}").write_text(licence + "".join(row + "  \n" for row in rows))
        (folder / f"{suffix}.exc").write_text("".join(line + "\n" for line in EXCEPTIONS[suffix]))


class Reader(WordNetCorpusReader):
    """nltk's reader without the mapping between versions of WordNet, which would need another version."""

    def map_wn(self, version="wordnet"):
        return None


def reader(folder):
    """nltk's reader of a folder. It also needs a list of lexicographers' files, which our metric does not use."""
    with tempfile.TemporaryDirectory() as scratch:
        for file in Path(folder).iterdir():
            shutil.copyfile(file, Path(scratch) / file.name)
        # nltk only reads from its data path.
        nltk.data.path.insert(0, scratch)
        lexnames = Path(scratch) / "lexnames"
        if not lexnames.exists():
            lexnames.write_text("".join(f"{i:02d}\tname{i}\t1\n" for i in range(45)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read = Reader(scratch, None)
        list(read.all_synsets())
        return read


def wordnet():
    folder = FOLDER / "wordnet"
    folder.mkdir(parents=True, exist_ok=True)
    write_wordnet(folder)
    read = reader(folder)
    cases = [[c, r, rounded(meteor_score([r.split()], c.split(), wordnet=read))] for c, r in MEANT]
    write_json(FOLDER / "synonyms.json", {"made_with": versions("nltk"), "max_abs_difference": 1e-9, "cases": cases})


class NoWordNet:
    """Words without synonyms."""

    def synsets(self, _word):
        return []


def rounded(value):
    return float(f"{value:.10g}")


def groups(folder):
    """Items (source, candidate, references) of the data sets, as in tests/text_metrics.rs."""
    summeval = json.loads((folder / "summeval.json").read_text())
    items = []
    for number, document in enumerate(summeval.values()):
        names = sorted(document["sys_summs"])
        for name in (names[number % len(names)], names[(number + 7) % len(names)]):
            items.append((document["src"], document["sys_summs"][name]["sys_summ"], document["ref_summs"][:4]))
    yield "summeval", items
    rows = [json.loads(line) for line in (folder / "parareval_129.jsonl").read_text().splitlines()]
    pairs = [(row, row[f"model_{m}_paragraph"]) for row in rows for m in "AB"]
    yield "parareval", [(row["original_paragraph"], candidate, [row["reference_paragraph"]]) for row, candidate in pairs]
    rows = json.loads((folder / "metacritique_annotation.json").read_text())
    critiques = lambda row: [row[f"{by}_critique"]["critique"] for by in ("gpt4", "human")]
    yield "metacritique", [(f"{row['question']} {row['response']}", row["llm1_critique"]["critique"], critiques(row)) for row in rows]


# Our own texts; a pair is a text and its number of repetitions.
EDGES = [
    ("", "", [""]),
    ("a", "", [""]),
    ("", "a", [""]),
    ("", "", ["a b"]),
    ("one two", "", ["one two three four five"]),
    ("one two", "one two three", ["", ""]),
    ("word", "word", ["word"]),
    ("word", "other", ["word"]),
    ("The cat sat.", "The cat sat on the mat today.", ["The cat sat on the mat today."]),
    ("It stays as it is, all of it.", "It stays as it is, all of it.", ["It stays as it is, all of it."]),
    ("the the the the", "the the the the the the", ["the cat is on the mat", "the the"]),
    ("a b c d e f g h", "h g f e d c b a", ["a b c d e f g h"]),
    ("He go to school yesterday .", "He went to the school yesterday .", ["He went to school yesterday .", "Yesterday he went to school .", "He had gone to school ."]),
    ("Running cats and happiness", "The runner's cat was happily running", ["A cat runs happy", "Cats ran happily"]),
    ("naïve cafe\u0301s — ＡＢＣ", "Naïve cafés – ABC", ["NAÏVE CAFÉS - abc"]),
    ("İstanbul'da ΟΔΟΣ ΟΔΥΣΣΕΥΣ", "istanbul ΟΔΥΣΣΕΥΣ οδός", ["İSTANBUL οδυσσευς ΟΔΌΣ"]),
    ("我们 爱 北京", "我们爱北京。", ["我们 爱 北京 。", "😀 👍🏽 北京"]),
    ("two  spaces and\ttabs", "two spaces\nand  tabs ", [" two  spaces and tabs", "two\u00a0spaces and\u2003tabs"]),
    ("&quot;Fish &amp; chips&quot; cost $3.50, or 4-5.", "\"Fish & chips\" cost $ 3.50, or 4 - 5.", ["Fish and chips cost 3,50 $."]),
    (("red green blue ", 400), ("red blue green ", 450), [("red green blue ", 420), ("green ", 900)]),
]


def whole(text):
    return text if isinstance(text, str) else text[0] * text[1]


def load(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Tools:
    """The published implementations; each method returns values of items and of all of them."""

    def __init__(self, options):
        from rapidfuzz.distance import Levenshtein
        from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

        sys.path.insert(0, str(options.easse))
        from easse import sari

        self.easse, self.cut = sari, Tokenizer13a()
        self.xu = load("xu", options.simplification / "SARI.py")
        self.gleu = load("gleu", options.jfleg / "eval" / "gleu.py")
        # The file's two functions, without their class, which needs the library.
        text = (options.evaluate / "metrics" / "sari" / "sari.py").read_text()
        text = text[text.index("def SARIngram") : text.index("@evaluate")]
        from collections import Counter

        import sacrebleu
        from packaging import version

        self.hf = {"Counter": Counter, "sacrebleu": sacrebleu, "version": version}
        exec(text, self.hf)
        self.distance = Levenshtein.distance
        self.wordnet = reader(options.wordnet)

    def tokens(self, text):
        return self.cut(text).split()

    def meteor(self, items, wordnet=NoWordNet(), **parameters):
        cut = self.tokens
        values = [meteor_score([cut(r) for r in refs], cut(c), wordnet=wordnet, **parameters) for _, c, refs in items]
        return values, sum(values) / len(values)

    def gleu_google(self, items, **orders):
        cut = [([self.tokens(r) for r in refs], self.tokens(c)) for _, c, refs in items]
        return [corpus_gleu([r], [c], **orders) for r, c in cut], corpus_gleu([r for r, _ in cut], [c for _, c in cut], **orders)

    def gleu_napoles(self, items):
        # Random draws depend on the order of items and references; ours on their texts.
        return self.run_gleu(items)[0], self.run_gleu(sorted((s, c, sorted(refs)) for s, c, refs in items))[1]

    def run_gleu(self, items):
        with tempfile.TemporaryDirectory() as folder:

            def file(name, texts):
                path = Path(folder) / name
                path.write_text("".join(" ".join(text.split()) + "\n" for text in texts))
                return str(path)

            source, candidate = file("source", [s for s, _, _ in items]), file("candidate", [c for _, c, _ in items])
            references = [file(f"reference{k}", [refs[k] for _, _, refs in items]) for k in range(len(items[0][2]))]
            tool = self.gleu.GLEU(4)
            tool.load_sources(source)
            tool.load_references(references)
            # The tool itself rounds to six digits.
            tool.get_gleu_stats = lambda scores: sum(scores) / len(scores)
            draws = 500 if len(references) > 1 else 1
            run = lambda by_item: list(tool.run_iterations(draws, source=source, hypothesis=candidate, per_sent=by_item))
            return run(True), run(False)[0]

    def sari_easse(self, items, tokenizer="13a", lowercase=True, **options):
        def run(items):
            most = max(len(refs) for _, _, refs in items)
            sources, candidates = [s for s, _, _ in items], [c for _, c, _ in items]
            references = [[refs[k] for _, _, refs in items] for k in range(most)]
            add, keep, delete = self.easse.get_corpus_sari_operation_scores(
                sources, candidates, references, lowercase=lowercase, tokenizer=tokenizer, **options
            )
            return [(add + keep + delete) / 3, add, keep, delete]

        return [run([item]) for item in items], run(items)

    def sari_xu(self, items):
        values = [100 * self.xu.SARIsent(s, c, refs) for s, c, refs in items]
        return values, sum(values) / len(values)

    def sari_hf(self, items):
        sentence, normalize = self.hf["SARIsent"], self.hf["normalize"]
        values = [100 * sentence(normalize(s), normalize(c), [normalize(r) for r in refs]) for s, c, refs in items]
        return values, sum(values) / len(values)

    def levenshtein(self, items, cut=lambda text: text, source=False):
        values = []
        for s, c, refs in items:
            others = [s] if source else refs
            found = [(self.distance(cut(c), cut(o)), -max(len(cut(c)), len(cut(o)))) for o in others]
            distance, longer = min(found)
            values.append([distance, distance / -longer if longer else None])
        return values, None


def metrics(tools):
    """Each metric with options in the user's notation, and the tool's computation."""
    return {
        "meteor": tools.meteor,
        "gleu-google": tools.gleu_google,
        "gleu-napoles": tools.gleu_napoles,
        "sari-easse": tools.sari_easse,
        "sari-xu": tools.sari_xu,
        "sari-hf": tools.sari_hf,
        "levenshtein": tools.levenshtein,
        "levenshtein:unit=word": lambda items: tools.levenshtein(items, str.split),
        "levenshtein-source": lambda items: tools.levenshtein(items, source=True),
    }


def variants(tools):
    """Options, tested on one group's corpus only."""
    paper = {"use_paper_version": True, "use_f1_for_deletion": False}
    return {
        "meteor:alpha=0.5,beta=1.5,gamma=0.25": lambda items: tools.meteor(items, alpha=0.5, beta=1.5, gamma=0.25),
        "gleu-google:min=2,max=3": lambda items: tools.gleu_google(items, min_len=2, max_len=3),
        "sari-easse:average=precision-recall": lambda items: tools.sari_easse(items, use_paper_version=True),
        "sari-easse:average=precision-recall,delete=precision": lambda items: tools.sari_easse(items, **paper),
        "sari-easse:delete=precision": lambda items: tools.sari_easse(items, use_f1_for_deletion=False),
        "sari-easse:tok=intl,cased=yes": lambda items: tools.sari_easse(items, tokenizer="intl", lowercase=False),
    }


def tidy(value):
    if isinstance(value, (list, tuple)):
        return [tidy(v) for v in value]
    return value if value is None else rounded(value)


def undefined(name, source, candidate, references):
    """Tools return 0 for 0/0, while we return no value."""
    texts = {"meteor": [], "gleu-google": [], "sari-easse": [source], "sari-xu": [source], "sari-hf": [source]}
    return name in texts and not any(text.split() for text in [candidate, *references, *texts[name]])


# Cases of answers: articles, punctuation, empty results, and Python's word characters.
ANSWERS = [
    ("The Cat, a dog & an owl!", ["cat dog owl"]),
    ("a-b the_end U.S.A.", ["ab theend usa", "the end"]),
    ("", ["", "the"]),
    ("the", ["", "..."]),
    ("", ["", "two"]),
    ("two one", ["one two", "two"]),
    ("in the 1990s", ["the 1990s", "1990s", "in 1990s"]),
    ("the the the cat cat", ["cat the cat cat"]),
    ("à la “the” café–a", ["“ ” café– la à"]),
    ("ना a\u093fb a\u0301 ⓐa a²", ["\u093fb ना \u0301 a²"]),
    ("THE\u001fA\u00a0An\u200bthe", ["\u200b", "the"]),
    ("İ a̰n ΟΔΟΣ", ["i̇ οδος"]),
]


def answers(*arguments):
    """The official script of SQuAD 2.0: the best reference per figure, an empty one only if all are empty."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--evaluate", type=Path, required=True)
    options = parser.parse_args(arguments)
    script = load("squad", options.evaluate / "metrics" / "squad_v2" / "compute_score.py")

    def score(candidate, references):
        question = {"id": "0", "answers": {"text": list(references)}}
        exact, f1 = script.get_raw_scores([{"paragraphs": [{"qas": [question]}]}], {"0": candidate})
        return [rounded(f1["0"]), exact["0"]]

    edges = [(whole(c), [whole(r) for r in refs]) for _, c, refs in EDGES[:-1]] + ANSWERS
    value = {
        "made_with": versions("numpy") | {"huggingface/evaluate": COMMITS["huggingface/evaluate"]},
        "max_relative_difference": 1e-9,
        "groups": {group: [score(c, refs) for _, c, refs in items] for group, items in groups(options.data)},
        "edges": [{"candidate": c, "references": refs, "scores": score(c, refs)} for c, refs in edges],
    }
    write_json(FOLDER / "answers.json", value)


def text(*arguments):
    parser = argparse.ArgumentParser()
    for name in ("data", "easse", "simplification", "jfleg", "evaluate", "wordnet"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    options = parser.parse_args(arguments)
    tools = Tools(options)
    value = {
        "made_with": versions("nltk", "sacrebleu", "rapidfuzz", "numpy") | COMMITS,
        "max_relative_difference": 1e-9,
        "groups": {},
        "wordnet": {},
        "variants": {},
        "edges": [],
    }
    for group, items in groups(options.data):
        results = {name: compute(items) for name, compute in metrics(tools).items()}
        value["groups"][group] = {name: {"items": tidy(i), "corpus": tidy(c)} for name, (i, c) in results.items()}
        value["wordnet"][group] = tidy(tools.meteor(items, wordnet=tools.wordnet)[0])
        if group == "metacritique":
            value["variants"] = {name: tidy(compute(items)[1]) for name, compute in variants(tools).items()}
    for edge in EDGES:
        source, candidate, references = whole(edge[0]), whole(edge[1]), [whole(r) for r in edge[2]]
        item = (source, candidate, references)
        scores = {}
        for name, compute in metrics(tools).items():
            scores[name] = None if undefined(name, *item) else tidy(compute([item])[0][0])
        value["edges"].append({"source": edge[0], "candidate": edge[1], "references": edge[2], "scores": scores})
    write_json(FOLDER / "text.json", value)


if __name__ == "__main__":
    {"stems": stems, "wordnet": wordnet, "answers": answers, "text": text}[sys.argv[1]](*sys.argv[2:])

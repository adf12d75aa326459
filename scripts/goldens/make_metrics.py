"""Writes tests/goldens/metrics/{edges,public}.json: BLEU, chrF, TER and ROUGE as computed by sacrebleu and rouge_score.

Usage: make_metrics.py DATA

DATA is the folder with summeval.json, topical_chat.json and parareval_129.jsonl. Only numbers are kept of their texts;
`items` tells the test how to find the same texts.
"""

import json
import sys
from pathlib import Path

from provenance import ROOT, versions, write_json
from rouge_score.rouge_scorer import RougeScorer
from sacrebleu.metrics import BLEU, CHRF, TER

FOLDER = ROOT / "metrics"

# Our name of a metric with options, and the tool's: one of single items, one of the corpus.
BLEUS = {
    "bleu": {},
    "bleu:tok=intl": {"tokenize": "intl"},
    "bleu:tok=char,smooth=floor": {"tokenize": "char", "smooth_method": "floor"},
    "bleu:tok=zh,smooth=add-k,k=0.5": {"tokenize": "zh", "smooth_method": "add-k", "smooth_value": 0.5},
    "bleu:tok=none,lowercase=yes,order=2": {"tokenize": "none", "lowercase": True, "max_ngram_order": 2},
    "bleu:smooth=none,eff=no": {"smooth_method": "none"},
    "bleu:smooth=floor,k=0.02,eff=yes": {"smooth_method": "floor", "smooth_value": 0.02},
}
CHRFS = {
    "chrf": {},
    "chrf:word-order=2": {"word_order": 2},
    "chrf:eps=yes,beta=3": {"eps_smoothing": True, "beta": 3},
    "chrf:whitespace=yes,lowercase=yes,char-order=4,word-order=1": {"whitespace": True, "lowercase": True, "char_order": 4, "word_order": 1},
}
TERS = {
    "ter": {},
    "ter:normalized=yes": {"normalized": True},
    "ter:normalized=yes,no-punct=yes,asian=yes": {"normalized": True, "no_punct": True, "asian_support": True},
    "ter:no-punct=yes,case-sensitive=yes": {"no_punct": True, "case_sensitive": True},
}
ROUGES = {"rouge-1": "rouge1", "rouge-2": "rouge2", "rouge-l": "rougeL", "rouge-lsum": "rougeLsum"}
PUBLIC = ["bleu", "bleu:tok=intl", "bleu:tok=char,smooth=floor", "chrf", "chrf:word-order=2", "ter"]

PAIRS = [
    ("", ["Something."]),
    ("Something.", [""]),
    ("", [""]),
    (" \t\n ", ["a b"]),
    ("one", ["one"]),
    ("one", ["two"]),
    ("one two", ["one two"]),
    ("The cat sat on the mat.", ["The cat sat on the mat."]),
    ("the the the the the", ["the cat is on the mat", "there is a cat on the mat"]),
    ("The mat sat on the cat today, quietly.", ["Today the cat sat quietly on the mat.", "A cat was on the mat.", "Quietly, the cat sat."]),
    ("d e f g h a b c", ["a b c d e f g h"]),
    ("a b c d e f g h i j k l", ["g h i j k l a b c d e f", "l k j i h g f e d c b a"]),
    ("?! ... --- ,,,", ["?! ... --- ,,,"]),
    ("...", ["!!!"]),
    ("- - -", ["a-b 1-2 3- -4"]),
    ("It's $3.50, 1,000.5 or 10%: \"yes\" (no)?", ["It's $3,50, 1.000,5 or 10 %; 'yes' [no]!"]),
    ("It&apos;s &quot;quoted&quot; &amp; &lt;marked&gt; <skipped> end-\nof line", ["It's \"quoted\" & <marked> endof line"]),
    ("the dogs' owner's house 's", ["the dog's owners' house's"]),
    ("Ünïcödé naïve café — “quotes” … €5", ["UNICODE naive cafe – \"quotes\" ... €5", "ünïcödé naïve café — “quotes” … €5"]),
    ("ΟΔΥΣΣΕΥΣ ΣΊΣΥΦΟΣ İstanbul STRASSE Straße", ["οδυσσευς σίσυφος i̇stanbul strasse straße"]),
    ("e\u0301te\u0301 d'e\u0301te\u0301", ["été d'été"]),
    ("我们爱北京,2024年。ABC测试!", ["我们爱上海,2023年。ABC考试!", "我愛北京。"]),
    ("これはテストです。カタカナとひらがな、漢字。", ["これは試験です。ひらがなとカタカナ、漢字。"]),
    ("・「引用」（括弧）？！：；", ["・『引用』(括弧)?!:;"]),
    ("한국어 문장입니다.", ["한국어 문장이다."]),
    ("हिन्दी में एक वाक्य।", ["हिन्दी में वाक्य।"]),
    ("😀😀 👩‍👩‍👧 ok", ["😀 👩‍👧 ok"]),
    ("a\u00a0b\u2003c\u3000d\u200be\u1680f\u0085g\u001ch", ["a b c d\u200be f g h"]),
    ("tab\tand\r\nline\u2028separator", ["tab and line separator"]),
    ("First sentence is here.\nSecond one follows it.\n\nThird.", ["Second one follows.\nFirst sentence here is.\nA third.", "Third.\nFirst sentence is here."]),
    ("w1 w2 w6 w7 w8\nw1 w3 w8 w9 w5", ["w1 w2 w3 w4 w5"]),
    ("Runners were running happily, relationally conditioned.", ["A runner runs happy; relational conditions generalizations."]),
    ("x" * 300, ["x" * 299 + "y"]),
    ("(hi) \"there\" -dash- it's", ["(hi \"there dash its"]),
    ("word " * 70 + "end", ["end " + "word " * 68]),
]


def long_texts():
    """Pseudo-random words from a small vocabulary, so that texts have many common and shifted words."""
    state = 7
    def word():
        nonlocal state
        state = (state * 1103515245 + 12345) % 2**31
        return f"w{(state >> 16) % 40}"
    text = lambda n: " ".join(word() + ("." if k % 9 == 8 else "") for k in range(n))
    return [(text(150), [text(170)]), (text(30), [text(900)]), (text(400), [text(12), text(60)])]


def items_of(data):
    """Candidates and references of the public data, in a fixed order."""
    lines = lambda text: text.replace(" . ", " .\n")
    summeval = list(json.loads((data / "summeval.json").read_text()).values())[:25]
    items = [(lines(s["sys_summ"]), [lines(r) for r in d["ref_summs"][:1 + k % 3]]) for d in summeval for k, s in enumerate(d["sys_summs"].values())]
    chat = json.loads((data / "topical_chat.json").read_text())
    truth = {c["source"]: c["system_output"] for c in chat if c["system_id"] == "Original Ground Truth"}
    items += [(c["system_output"], [truth[c["source"]]]) for c in chat if c["system_id"] != "Original Ground Truth"]
    for line in (data / "parareval_129.jsonl").read_text().splitlines():
        pair = json.loads(line)
        items += [(pair[f"model_{m}_paragraph"], [pair["reference_paragraph"], pair["original_paragraph"]]) for m in "AB"]
    return items


def rounded(value):
    return float(f"{value:.11g}")


def by_sacrebleu(tool, options, items):
    """Scores of items and of the corpus."""
    single = dict(options)
    if tool is BLEU:
        single["effective_order"] = options.get("effective_order", True)
    width = max(len(references) for _, references in items)
    streams = [[references[k] if k < len(references) else None for _, references in items] for k in range(width)]
    corpus, one = tool(**options), tool(**single)
    rows = [one.sentence_score(c, r) for c, r in items]
    if tool is TER and len(items) > 100:
        # Slow: computed once, because the corpus's rate is that of the sums.
        return [[rounded(row.score)] for row in rows], [rounded(100 * sum(r.num_edits for r in rows) / sum(r.ref_length for r in rows))], None
    score = corpus.corpus_score([candidate for candidate, _ in items], streams).score
    return [[rounded(row.score)] for row in rows], [rounded(score)], str(corpus.get_signature())


def by_rouge_score(kind, stem, items):
    scorer = RougeScorer([kind], use_stemmer=stem)
    scores = [scorer.score_multi(references, candidate)[kind] for candidate, references in items]
    rows = [[s.fmeasure, s.precision, s.recall] for s in scores]
    corpus = [sum(column) / len(rows) for column in zip(*rows)]
    return [[rounded(v) for v in row] for row in rows], [rounded(v) for v in corpus], None


def all_metrics():
    for tool, named in (BLEU, BLEUS), (CHRF, CHRFS), (TER, TERS):
        for label, options in named.items():
            if "eff=no" in label or "eff=yes" in label:
                options = options | {"effective_order": "eff=yes" in label}
            yield label, lambda items, tool=tool, options=options: by_sacrebleu(tool, options, items)
    for name, kind in ROUGES.items():
        for stem in False, True:
            yield name + (":stem=yes" if stem else ""), lambda items, kind=kind, stem=stem: by_rouge_score(kind, stem, items)


def main():
    made_with = versions("sacrebleu", "rouge_score", "nltk")
    edges = PAIRS + long_texts()
    values = {}
    for label, scores in all_metrics():
        rows, corpus, signature = scores(edges)
        values[label] = {"corpus": corpus, "items": rows} | ({"signature": signature} if signature else {})
    texts = [{"candidate": candidate, "references": references} for candidate, references in edges]
    write_json(FOLDER / "edges.json", {"made_with": made_with, "relative_difference": 1e-9, "values": values, "items": texts})

    items = items_of(Path(sys.argv[1]))
    values = {}
    for label, scores in all_metrics():
        if label in PUBLIC or label.startswith("rouge"):
            print(label, file=sys.stderr)
            rows, corpus, _ = scores(items)
            values[label] = {"corpus": corpus, "items": [row[0] for row in rows]}
    how = "25 x 16 of summeval against 1 to 3 references, 300 of topical_chat against the original answer, 129 x 2 of parareval against 2"
    write_json(FOLDER / "public.json", {"made_with": made_with, "relative_difference": 1e-9, "items": how, "values": values})


if __name__ == "__main__":
    main()

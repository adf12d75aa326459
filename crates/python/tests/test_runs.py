"""Runs as they are shown, interrupted, resumed and reported on."""

import html.parser
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import probity
from conftest import MAP, MODEL


def test_a_run_says_its_verdict_first(model, rows):
    run = probity.compare(rows, model=model, attribute="coherence", map=MAP, progress=False)
    lines = repr(run).split("\n")
    assert run.verdict[0]["says"] in lines[1] and lines[2].startswith(run.verdict[0]["trust"].upper())
    assert run._repr_html_().index("<b>") < run._repr_html_().index("<table>")
    assert run.manifest["command"] == "compare" and "scores" in dir(run)
    with pytest.raises(AttributeError, match="no table 'skores'; it has comparisons, samples, scores"):
        run.skores


def test_hostile_texts_stay_in_their_place(rows):
    rows[0]["a"] = "</table><script>alert(1)</script>"
    run = probity.metrics(rows, metric="levenshtein-source", map={"context": "doc", "candidate": "a"}, progress=False)

    class Tags(html.parser.HTMLParser):
        tags = set()

        def handle_starttag(self, tag, attrs):
            self.tags.add(tag)

    run._summary["verdict"] = [{"about": "<img src=x>", "says": "<script>", "trust": "none", "because": "</p>"}]
    Tags().feed(run._repr_html_())
    assert Tags.tags <= {"p", "b", "br", "table", "thead", "tbody", "tr", "th", "td"}


def test_a_loaded_model_refuses_options_of_loading(model, rows):
    with pytest.raises(TypeError, match="precision"):
        probity.compare(rows, model=model, precision="fast", attribute="x", map=MAP)


def test_the_same_bits_from_a_loaded_model_and_from_a_name(model, rows):
    of = [probity.compare(rows, model=one, attribute="x", map=MAP, progress=False) for one in (model, MODEL, model)]
    assert len({(run.path / "comparisons.jsonl").read_bytes() for run in of}) == 1


def test_a_dry_run_asks_nothing(model, rows):
    run = probity.compare(rows, model=model, attribute="x", map=MAP, dry_run=True, progress=False)
    assert run.path is None and run.status == "planned" and run.summary["parts"][0]["questions"] == 10
    assert not os.path.exists("runs")
    with pytest.raises(probity.ProbityError) as error:
        run.report()
    assert error.value.hint == "set one: out='DIR'"


def test_what_is_wrong_with_a_request_is_told(model):
    with pytest.raises(probity.ProbityError, match="one of `labels`, `continuation`, `classes` is required"):
        model.logprobs("x")
    with pytest.raises(probity.ProbityError, match="field `max_tokens`: must be at least 1"):
        model.generate("x", max_tokens=0)
    assert model.logprobs([]) == []
    answers = model.logprobs(["The sky is", "Grass is"], continuation=" blue")
    assert [answer["id"] for answer in answers] == ["0", "1"] and answers[0]["logprob"] > answers[1]["logprob"]


def test_scores_are_held_against_a_frame_and_against_a_baseline(rows):
    pandas = pytest.importorskip("pandas")
    run = probity.metrics(rows, metric="levenshtein-source", map=MAP, progress=False)
    gold = pandas.DataFrame(
        {"item": [str(k // 2) for k in range(10)], "candidate": ["a", "b"] * 5, "score": range(10)})
    held = probity.meta(scores=run, gold=gold, progress=False)
    assert held.summary["method"] == "meta" and held.manifest["command"] == "meta"
    assert {one["outcome"] for one in probity.gate(run, run)} == {"same"}
    path = probity.report([run, run], "both.html")
    assert path.stat().st_size > 10_000


def test_other_threads_go_on_while_a_model_computes(model, rows):
    counted, stop = [0], threading.Event()

    def count():
        while not stop.is_set():
            counted[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    began = time.monotonic()
    probity.compare(rows, model=model, attribute="x", map=MAP, progress=False)
    passed = time.monotonic() - began
    stop.set()
    thread.join()
    assert counted[0] > 50 * passed


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_is_told_to_be_started_another_way(rows):
    probity.metrics(rows, metric="levenshtein-source", map=MAP, progress=False)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            probity.metrics(rows, metric="levenshtein-source", map=MAP, progress=False)
            os.write(write, b"nothing")
        except probity.ProbityError as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert b"was forked" in os.read(read, 1000)


def test_two_threads_may_ask_one_model(model, rows):
    runs = {}

    def compare(name):
        runs[name] = probity.compare(rows, model=model, attribute=name, map=MAP, out=name, progress=False)

    threads = [threading.Thread(target=compare, args=(name,)) for name in ("coherence", "fluency")]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    for name, run in runs.items():
        alone = probity.compare(rows, model=model, attribute=name, map=MAP, progress=False)
        assert (alone.path / "comparisons.jsonl").read_bytes() == (run.path / "comparisons.jsonl").read_bytes()
    assert len(runs) == 2


LONG = """
import sys, probity
rows = [{"id": f"{n}{row['id']}", **{k: v for k, v in row.items() if k != "id"}} for n in range(4) for row in probity.demo_rows()]
run = probity.compare(rows, model="%s", attribute="quality", out="long", resume=True)
print("done", run.status)
""" % MODEL


def test_an_interrupt_ends_cleanly_and_what_was_answered_is_kept(model):
    work = subprocess.Popen([sys.executable, "-c", LONG], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    database = "long/answers.sqlite-wal"
    for _ in range(600):
        if os.path.exists(database) and os.path.getsize(database) > 100_000:
            break
        time.sleep(0.1)
    work.send_signal(signal.SIGINT)
    out, err = work.communicate(timeout=120)
    assert "KeyboardInterrupt: finished work is kept: continue with out=" in err and "resume=True" in err and "done" not in out, err
    again = subprocess.run([sys.executable, "-c", LONG], capture_output=True, text=True)
    assert "done finished" in again.stdout, again.stderr
    assert "taken from" in again.stderr or "answers" in again.stderr, again.stderr


def test_a_table_is_looked_at_by_row_slice_and_column(rows):
    scores = probity.metrics(rows, metric="levenshtein-source", map=MAP, progress=False).scores
    whole = list(scores)
    assert scores[0] == whole[0] and scores[-1] == whole[-1] and scores[1:9:3] == whole[1:9:3]
    assert scores[::-1] == whole[::-1] and scores[99:] == []
    assert scores["score"] == [row["score"] for row in whole]
    with pytest.raises(IndexError, match=f"there are {len(whole)} rows"):
        scores[len(whole)]
    with pytest.raises(KeyError, match="the columns are item, candidate"):
        scores["skore"]
    assert scores._repr_html_().count("<tr>") == 6


def test_strict_fails_where_something_is_without_a_score_and_keeps_the_run(model, rows):
    rows[0]["doc"] = "word " * 30_000
    with pytest.raises(probity.ProbityError, match="too_long") as error:
        probity.compare(rows, model=model, attribute="x", map=MAP, out="kept", strict=True, progress=False)
    assert "probity.open_run" in error.value.hint
    run = probity.open_run("kept")
    assert "too_long" in repr(run) and run.status == "finished"


def test_what_is_doubtful_is_a_warning_of_python(rows):
    with pytest.warns(UserWarning, match="no run to continue in new"):
        probity.metrics(rows, metric="levenshtein-source", map=MAP, out="new", resume=True, progress=False)
    some = probity.metrics(rows[:2], metric="levenshtein-source", map=MAP, out="some", progress=False)
    with pytest.warns(UserWarning, match="6 texts of 5 items lost their score"):
        gated = probity.gate(some, "new", allow_missing=True)
    assert gated.passed and len(gated.caveats) == 2 and not probity.gate(some, "new").passed
    rows[1]["b"] = None
    with pytest.warns(UserWarning, match="1 of 5 samples lack a text in some of 2 columns of candidates"):
        fewer = probity.metrics(rows, metric="levenshtein-source", map=MAP, progress=False)
    with pytest.warns(UserWarning, match="1 text of 5 items lost their score"):
        gated = probity.gate(fewer.scores, "new")
    assert not gated.passed and gated[0]["outcome"] == "missing" and gated[0]["missing"] == 1
    with pytest.raises(TypeError, match="gate.. has no option 'tolerence'; did you mean 'tolerance'"):
        probity.gate(some, "new", tolerence=1)


def test_the_model_may_be_said_in_the_environment(model, rows, monkeypatch):
    monkeypatch.setenv("PROBITY_MODEL", MODEL)
    run = probity.gpt_score(rows, attribute="coherence", map=MAP, limit=1, progress=False)
    assert run.manifest["model"]["name"] == MODEL


def test_an_index_is_no_column(rows):
    pandas = pytest.importorskip("pandas")
    with pytest.raises(probity.ProbityError, match="'a' is the index of the frame"):
        probity.metrics(pandas.DataFrame(rows).set_index("a"), metric="levenshtein-source", map=MAP, progress=False)


def test_requests_and_frames_are_told_by_their_index(model, rows):
    with pytest.raises(probity.ProbityError, match="index 1 of the requests: .*unknown field `x`"):
        model.logprobs([{"prompt": "a"}, {"prompt": "b", "x": 1}], labels={"yes": " yes", "no": " no"})
    with pytest.raises(TypeError, match="messages"):
        model.generate([{"role": "user", "content": "hello"}])
    run = probity.metrics(rows, metric="levenshtein-source", map=MAP, progress=False)
    gold = [{"item": "0", "candidate": "a", "score": 1}, {"item": "0", "candidate": "b", "score": "much"}]
    with pytest.raises(probity.ProbityError) as error:
        probity.meta(scores=run, gold=gold, progress=False)
    assert "index 1 of gold (list)" in str(error.value) and "/" not in str(error.value), str(error.value)
    named = [{"id": 7, "context": "c", "candidates": [{"id": 1, "text": "a"}, {"id": 2, "text": "b"}]}]
    run = probity.metrics(named, metric="levenshtein-source", progress=False)
    assert [row["candidate"] for row in run.scores][:1] == ["1"] and run.scores[0]["item"] == "7"


def test_no_more_rows_are_taken_than_there_are_to_be_samples(rows):
    taken = []

    def endless():
        while True:
            taken.append(len(taken))
            yield {"doc": "a source", "a": f"text {len(taken)}", "b": "another"}

    run = probity.metrics(endless(), metric="levenshtein-source", map=MAP, limit=3, progress=False)
    assert len(run.scores) == 12 and len(taken) == 3


def test_what_a_terminal_would_obey_is_written_out(rows):
    run = probity.metrics(rows, metric="levenshtein-source", map=MAP, progress=False)
    run._summary["verdict"] = [{"about": None, "says": "\x1b[31m\u202ered", "trust": "none", "because": "\x9b"}]
    assert "\\u{1b}[31m\\u{202e}red" in repr(run) and not {"\x1b", "\x9b", "\u202e"} & set(repr(run) + run._repr_html_())

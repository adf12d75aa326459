"""What may be given as data: the same samples whatever they come as, and clear errors."""

import math
import subprocess
import sys

import pytest

import probity
from conftest import MAP

pyarrow = pytest.importorskip("pyarrow")


def score(data, **options):
    options = {"map": {"context": "doc", "candidate": ["a", "b"]}, **options}
    return probity.metrics(data, metric="levenshtein-source", progress=False, **options)


def frames():
    def pandas(rows):
        return pytest.importorskip("pandas").DataFrame(rows)

    def pandas_of_objects(rows):
        return pytest.importorskip("pandas").DataFrame(rows, dtype=object)

    def pandas_of_categories(rows):
        frame = pytest.importorskip("pandas").DataFrame(rows)
        return frame.assign(doc=frame["doc"].astype("category"))

    def polars(rows):
        return pytest.importorskip("polars").DataFrame(rows)

    def data_set(rows):
        return pytest.importorskip("datasets").Dataset.from_list(rows)

    def shuffled_data_set(rows):
        turned = pytest.importorskip("datasets").Dataset.from_list(rows[::-1])
        return turned.select(range(len(rows) - 1, -1, -1))

    def streamed_data_set(rows):
        return data_set(rows).to_iterable_dataset()

    def tables(rows):
        return pyarrow.Table.from_pylist(rows)

    def large_texts(rows):
        table = pyarrow.Table.from_pylist(rows)
        return table.cast(pyarrow.schema([(name, pyarrow.large_string()) for name in table.column_names]))

    def views(rows):
        table = pyarrow.Table.from_pylist(rows)
        return table.cast(pyarrow.schema([(name, pyarrow.string_view()) for name in table.column_names]))

    def dictionaries(rows):
        table = pyarrow.Table.from_pylist(rows)
        return table.set_column(0, "doc", table["doc"].dictionary_encode())

    def batches(rows):
        table = pyarrow.Table.from_pylist(rows)
        return pyarrow.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=2))

    def slices(rows):
        return pyarrow.Table.from_pylist([{"doc": "x", "a": "y", "b": "z"}, *rows]).slice(1)

    def generators(rows):
        return (row for row in rows)

    makers = [pandas, pandas_of_objects, pandas_of_categories, polars, data_set, shuffled_data_set, streamed_data_set,
              tables, large_texts, views, dictionaries, batches, slices, generators]
    return pytest.mark.parametrize("make", makers, ids=lambda make: make.__name__)


@frames()
def test_samples_are_the_same_whatever_they_come_as(make, rows):
    # Short texts lie elsewhere than long ones in Arrow's views.
    rows = [*rows, {"doc": "short", "a": "ab", "b": "ü€"}]
    expected, found = score(rows), score(make(rows))
    for table in ["samples.jsonl", "scores.jsonl"]:
        assert (found.path / table).read_bytes() == (expected.path / table).read_bytes()


def test_rows_in_our_own_form_and_preferences_need_no_mapping():
    own = [{"id": "x", "context": "c", "candidates": [{"id": "a", "text": "t", "scores": {"q": 1.0}}, {"id": "b", "text": "u"}]}]
    of_table = score(pyarrow.Table.from_pylist(own), map=[])
    assert (score(own, map=[]).path / "samples.jsonl").read_bytes() == (of_table.path / "samples.jsonl").read_bytes()
    pairs = [{"prompt": "why?", "chosen": "so", "rejected": "no", "context": "because"}]
    samples = [next(iter(score(data, map=[]).samples)) for data in (pairs, pyarrow.Table.from_pylist(pairs))]
    assert samples[0] == samples[1] and samples[0]["instruction"] == "why?"


def test_tables_come_out_as_frames_and_as_rows(rows):
    run = score(rows)
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    plain = list(run.scores)
    assert pandas.DataFrame(run.scores).to_dict("records") == plain
    assert polars.DataFrame(run.scores).to_dicts() == plain
    assert run.scores.to_pandas().to_dict("records") == plain
    assert pyarrow.table(run.scores).to_pylist() == plain
    assert pytest.importorskip("datasets").Dataset(pyarrow.table(run.scores)).to_list() == plain
    assert len(run.scores) == len(plain) == 2 * 2 * len(rows)


WRONG = {
    "an unknown column": (lambda rows: rows, {"map": {"context": "dok", "candidate": ["a", "b"]}}, "`dok`", "did you mean `doc`"),
    "a number for a text": (lambda rows: [*rows, {"doc": 3, "a": "x", "b": "y"}], {}, "index 5 of list: column `doc` (context): expected a string, found a number", None),
    "NaN for a text": (lambda rows: [*rows, {"doc": math.nan, "a": "x", "b": "y"}], {}, "index 5 of list", "use None for a missing value"),
    "no rows": (lambda rows: [], {}, "list has no rows", "add at least one row"),
    "a row that is no dict": (lambda rows: [*rows, "text"], {}, "expected a dict as a row, found str", None),
    "a lone surrogate": (lambda rows: [{"doc": "\ud800", "a": "x", "b": "y"}], {}, "not Unicode", None),
    "an unknown option's value": (lambda rows: rows, {"data_format": "xml"}, "data_format", "jsonl"),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_what_cannot_be_read_is_told_with_its_place(wrong, rows):
    make, options, text, hint = wrong
    with pytest.raises(probity.ProbityError) as error:
        score(make(rows), **options)
    assert text in str(error.value)
    if hint:
        assert hint in str(error.value)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_with_wrong_columns_are_told_so(library, rows):
    library_ = pytest.importorskip(library)
    for change, text in [
        (lambda frame: frame.head(0), "has no rows"),
        (lambda frame: frame[["a", "b"]], "no column `doc`"),
    ]:
        with pytest.raises(probity.ProbityError) as error:
            score(change(library_.DataFrame(rows)))
        assert f"{library}.DataFrame" in str(error.value) and text in str(error.value)


def test_a_column_of_mixed_types_is_told_by_row_and_does_not_matter_where_it_is_not_mapped(rows):
    pandas = pytest.importorskip("pandas")
    mixed = pandas.DataFrame(rows).assign(junk=[1, "x", None, 2.5, [3]])
    assert len(score(mixed).scores) == 20
    with pytest.raises(probity.ProbityError) as error:
        score(mixed, map={"context": "junk", "candidate": ["a", "b"]})
    told = str(error.value)
    assert "indices 0, 3" in told and "expected a string, found a number" in told and "index 4" in told and "a list" in told


def test_a_column_without_a_value_and_two_of_one_name_are_told(rows):
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    for frame, text in [
        (polars.DataFrame({"doc": [None], "a": ["x"], "b": ["y"]}), "index 0 of polars.DataFrame: column `doc` (context): missing value"),
        (pandas.DataFrame([["x", "y", "z", "w"]], columns=["doc", "a", "b", "a"]), "two columns named 'a'"),
        (pandas.DataFrame([["x", "y"]]), "no column with a string as name"),
        (pandas.DataFrame({"doc": [b"x"], "a": ["y"], "b": ["z"]}), "values of type Binary are not supported"),
    ]:
        with pytest.raises(probity.ProbityError) as error:
            score(frame)
        assert text in str(error.value)


def test_scores_that_are_no_numbers_are_told(rows):
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(rows).with_columns(q=polars.lit(math.nan))
    with pytest.raises(probity.ProbityError, match="NaN is not a valid value"):
        score(frame, map={**MAP, "score.a.q": "q"})
    # Missing is what pandas means by it.
    pandas = pytest.importorskip("pandas")
    assert len(score(pandas.DataFrame(rows).assign(q=[1.0, math.nan, 2.0, 3.0, 4.0]), map={**MAP, "score.a.q": "q"}).scores) == 20


@pytest.mark.parametrize("data", [5, {"doc": ["x"]}, object()])
def test_what_is_no_table_is_a_type_error(data):
    with pytest.raises(TypeError, match="not a table"):
        score(data)


def test_a_misspelt_option_is_told_with_the_nearest(rows):
    with pytest.raises(TypeError, match="no option 'attribut'; did you mean 'attribute'"):
        probity.compare(rows, model="x", attribut="coherence")
    with pytest.raises(TypeError, match="missing a required argument: 'metric'"):
        probity.metrics(rows)


MEASURE = """
import pathlib, re, sys
import pyarrow, pyarrow.compute, probity

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1])

length, rows = int(sys.argv[1]), 20_000
# Made by Arrow: what a list of Python would have taken before could be taken again unseen.
docs = pyarrow.compute.binary_repeat(pyarrow.array(["word "] * rows, pyarrow.large_string()), length // 5)
table = pyarrow.table({"doc": docs, "a": pyarrow.array(["x"] * rows), "b": pyarrow.array(["y"] * rows)})
# The peak of now, and not that of the process that this one was forked from.
pathlib.Path("/proc/self/clear_refs").write_text("5")
before = peak()
probity.metrics(table, metric="levenshtein-source", map={"context": "doc", "candidate": ["a", "b"]}, progress=False)
print(peak() - before)
"""


def test_memory_grows_with_the_rows_and_not_with_the_length_of_their_texts():
    def grown(length):
        told = subprocess.run([sys.executable, "-c", MEASURE, str(length)], capture_output=True, text=True, check=True)
        return int(told.stdout) * 1024

    short, long = grown(100), grown(5000)
    # The long ones have 98 MB more of texts.
    assert long - short < 25e6, (short, long)

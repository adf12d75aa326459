"""Converts data to an Arrow stream or to dicts."""

import itertools
import os

from . import _probity
from ._errors import told


def is_rows(data):
    """Whether ``data`` is a list of dicts."""
    return isinstance(data, (list, tuple)) and len(data) > 0 and isinstance(data[0], dict)


def is_frame(data):
    """Whether ``data`` is a table in memory."""
    return hasattr(data, "__arrow_c_stream__") or is_rows(data) or _is_dataset(data)


def table_of(data, mapping, limit=None):
    """The name of the data in messages, and the table; ``None`` for a file. Reads at most ``limit`` rows of an iterable, if
    each row is a sample."""
    if isinstance(data, (str, os.PathLike)):
        return os.fspath(data), None
    kind = type(data)
    name = f"{kind.__module__.split('.')[0]}.{kind.__name__}" if kind.__module__ != "builtins" else kind.__name__
    if _is_dataset(data):
        return name, _of_dataset(data.take(limit) if _is_bound(mapping, limit) and hasattr(data, "take") else data)
    if kind.__module__.split(".")[0] == "pandas" and hasattr(data, "columns"):
        return name, _of_pandas(data, mapping)
    if kind.__module__.split(".")[0] == "polars" and hasattr(data, "with_columns") and not hasattr(data, "collect"):
        return name, _of_polars(data)
    if kind.__name__ == "Series":
        raise TypeError(f"data: {name} is one column, not a table; pass the frame")
    if isinstance(data, dict):
        raise TypeError("data: a dict is not a table; pass a list with a dict for each sample, or a DataFrame")
    if hasattr(data, "__arrow_c_stream__"):
        return name, data
    if hasattr(data, "__iter__"):
        return name, list(itertools.islice(data, limit)) if _is_bound(mapping, limit) else data
    raise TypeError(
        f"data: {name} is not a table; pass a DataFrame, a data set, an Arrow table, a list of dicts, or the path of a file"
    )


def _is_bound(mapping, limit):
    """Whether ``limit`` bounds the number of rows, which is not so if several rows form a sample."""
    fields = mapping.keys() if isinstance(mapping, dict) else [str(one).partition("=")[0] for one in _several(mapping)]
    return isinstance(limit, int) and limit >= 0 and not any(str(field).rstrip(":") == "candidate-id" for field in fields)


def _several(mapping):
    return [mapping] if isinstance(mapping, str) else mapping or []


def written(data, field, folder, frames):
    """Writes a table for an option to a JSON Lines file and returns its path; adds its name in messages to ``frames``."""
    name, table = table_of(data, None)
    path = os.path.join(folder, f"{field}-{len(os.listdir(folder))}.jsonl")
    _probity.write_rows(name, table, path)
    frames[path] = f"{field} ({name})"
    return path


def _is_dataset(data):
    return type(data).__module__.split(".")[0] == "datasets" and hasattr(data, "with_format")


def _of_dataset(data):
    """A Hugging Face data set, read in batches, because it may be larger than memory."""
    import pyarrow

    if not hasattr(data, "column_names") or isinstance(data, dict):
        raise TypeError(f"data: {type(data).__name__} has several splits; choose one: data['test']")
    arrow = data.with_format("arrow")
    features = getattr(data, "features", None)
    batches = (batch for table in arrow.iter(batch_size=8192) for batch in pyarrow.table(table).to_batches())
    if features is None:
        # The columns of a stream may be unknown before its first batch.
        first = next(batches, None)
        if first is None:
            return []
        rest = batches
        batches = (batch for part in ([first], rest) for batch in part)
        return pyarrow.RecordBatchReader.from_batches(first.schema, batches)
    return pyarrow.RecordBatchReader.from_batches(features.arrow_schema, batches)


def _of_pandas(data, mapping):
    """The mapped columns: others may contain values without an Arrow type."""
    names = [name for name in data.columns if isinstance(name, str)]
    if not names:
        raise told("pandas.DataFrame has no column with a string as name", "name the columns: frame.columns = [...]")
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise told(f"pandas.DataFrame has two columns named {twice[0]!r}", "rename one of them")
    wanted = _wanted(mapping)
    if wanted is not None:
        index = [column for column in wanted if column in data.index.names and column not in names]
        if index:
            raise told(f"{index[0]!r} is the index of the frame, not a column", "frame.reset_index() turns it into a column")
        there = {column: _root(column, names) for column in wanted}
        # The error for a missing column lists all names, and needs only one row.
        data = data[names].head(1) if None in there.values() else data[list(dict.fromkeys(there.values()))]
    try:
        import pyarrow

        return pyarrow.Table.from_pandas(data, preserve_index=False)
    except Exception:  # noqa: BLE001
        # Without pyarrow, or with a column of mixed types, for which errors are reported by row.
        return [_present(row) for row in data.to_dict("records")]


def _of_polars(data):
    """Casts columns without values to strings, because readers disagree about the type null."""
    import polars

    empty = [name for name, kind in data.schema.items() if kind == polars.Null]
    return data.with_columns(polars.col(empty).cast(polars.String)) if empty else data


def _root(column, names):
    """The column in which a path begins."""
    if column in names:
        return column
    return next((name for name in names if column.startswith((f"{name}.", f"{name}["))), None)


def _present(row):
    """The row with ``None`` for missing values of pandas."""
    import pandas

    def is_missing(value):
        return not isinstance(value, (list, dict, str)) and pandas.api.types.is_scalar(value) and pandas.isna(value)

    return {str(name): None if is_missing(value) else value for name, value in row.items()}


def _wanted(mapping):
    """The columns that a mapping names."""
    if mapping is None:
        return None
    if isinstance(mapping, dict):
        pairs = [(field, column) for field, columns in mapping.items()
                 for column in (columns if isinstance(columns, (list, tuple)) else [columns])]
    else:
        entries = [mapping] if isinstance(mapping, str) else mapping
        pairs = [entry.partition("=")[::2] for entry in entries]
    # `FIELD:=VALUE` sets a value, and `preference.VALUE=CANDIDATE` defines one: neither names a column.
    named = [str(column) for field, column in pairs if not str(field).endswith(":")
             and not str(field).startswith("preference.")]
    return list(dict.fromkeys(named))

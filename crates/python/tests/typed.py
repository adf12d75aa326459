"""Uses of the package that its types allow; checked by mypy, not run. An unused `ignore` fails."""
# mypy: warn-unused-ignores

import pathlib

import probity

model: probity.Model = probity.Model.load("name", precision="fast", threads=2)
probity.Model.load("name", compute={"threads": 2, "no_sharing": True})
run: probity.Run = probity.compare(
    [{"doc": "x", "a": "y", "b": "z"}], model=model, attribute=["a", "b"], map={"context": "doc", "candidate": ["a", "b"]}
)
columns: list[str] = run.scores.columns
page: pathlib.Path = run.report()
probity.meta(scores=[run, run], gold=run.samples)
probity.compare("x.jsonl", attribute="a", compute=["threads=2"], isa="plain")
probity.compare("x.jsonl", attribute="a", compute={"thread": 2})  # type: ignore[arg-type]
probity.compare("x.jsonl", attribut="a")  # type: ignore[call-arg]
probity.compare("x.jsonl", attribute="a", precision="half")  # type: ignore[arg-type]

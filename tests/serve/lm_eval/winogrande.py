"""Beginnings that differ, and one ending: as lm-evaluation-harness asks WinoGrande."""


def doc_to_text(doc):
    return {"1": 0, "2": 1}[doc["answer"]]


def doc_to_target(doc):
    return doc["sentence"][doc["sentence"].index("_") + 1 :].strip()


def doc_to_choice(doc):
    before = doc["sentence"][: doc["sentence"].index("_")]
    return [before + option for option in (doc["option1"], doc["option2"])]

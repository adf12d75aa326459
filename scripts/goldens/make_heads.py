"""Linear heads by scikit-learn on the same features.

Writes tests/goldens/heads.json: a table of features in two blocks, scores and decisions, and for each objective and
penalty the predictions for the last rows by a head trained on the first rows. Columns are standardised over the
training rows, and each block is scaled by its weight / √(its columns), as documented in crates/learn.
"""

import argparse

import numpy as np
from sklearn.linear_model import LogisticRegression, Ridge

from provenance import ROOT, versions, write_json

BLOCKS = [("a", 3, 1.0), ("b", 40, 0.5)]
ROWS, LEARNT = 60, {"many": 50, "few": 20}
ALPHAS = [0.01, 1.0, 3.1622776601683795, 100.0]


def scaled(x: np.ndarray, learnt: int, centre: bool) -> np.ndarray:
    """All rows, standardised over the training rows, with scaled blocks."""
    mean = x[:learnt].mean(0) if centre else np.zeros(x.shape[1])
    deviation = np.sqrt(((x[:learnt] - mean) ** 2).mean(0))
    scale = np.concatenate([np.full(columns, weight / np.sqrt(columns)) for _, columns, weight in BLOCKS])
    return (x - mean) / deviation * scale


def predictions(x, scores, decisions, learnt: int, objective: str, alpha: float) -> list[float]:
    """Predictions for the other rows: scores, or log-odds."""
    z = scaled(x, learnt, objective != "preference")
    if objective == "score":
        model = Ridge(alpha=alpha, solver="cholesky").fit(z[:learnt], scores[:learnt])
        return model.predict(z[learnt:]).tolist()
    # Its C multiplies the losses, while ours multiplies the penalty.
    model = LogisticRegression(C=1 / alpha, fit_intercept=objective == "decision", solver="newton-cholesky", tol=1e-12, max_iter=1000)
    return model.fit(z[:learnt], decisions[:learnt]).decision_function(z[learnt:]).tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    random = np.random.default_rng(5)
    columns = sum(columns for _, columns, _ in BLOCKS)
    x = random.normal(size=(ROWS, columns)).round(3) * random.uniform(0.1, 9.0, columns).round(2) + random.normal(size=columns).round(2)
    scores = (x[:, 0] - 0.3 * x[:, 7] + random.normal(size=ROWS)).round(3)
    decisions = (scores > np.median(scores)).astype(float)
    cases = [
        {"learnt": learnt, "objective": objective, "alpha": alpha, "predictions": predictions(x, scores, decisions, learnt, objective, alpha)}
        for learnt in LEARNT.values()
        for objective in ("score", "decision", "preference")
        for alpha in ALPHAS
    ]
    write_json(
        ROOT / "heads.json",
        {
            "made_with": versions("numpy", "scikit-learn"),
            "blocks": [{"name": name, "columns": [f"{name}{k}" for k in range(columns)], "weight": weight} for name, columns, weight in BLOCKS],
            "rows": x.tolist(),
            "scores": scores.tolist(),
            "decisions": decisions.tolist(),
            "cases": cases,
        },
    )


if __name__ == "__main__":
    main()

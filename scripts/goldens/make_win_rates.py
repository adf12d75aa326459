"""Win rates corrected by labels, as computed by ppi_py (the package of PPI++'s authors).

Writes tests/goldens/win_rates.json. Each case has the verdicts of a judge and human labels on the labelled samples, the
judge's verdicts on the others, and ppi_py's λ, estimate and normal interval.

Usage: pip install ppi-python==0.2.3 numpy; python scripts/goldens/make_win_rates.py
"""

import numpy as np
from ppi_py import ppi, ppi_mean_ci, ppi_mean_pointestimate

from provenance import ROOT, versions, write_json

# Number of labelled samples, of others, human win rate, the judge's agreement, share of ties.
CASES = [(12, 18, 0.7, 0.9, 0.0), (12, 18, 0.7, 0.6, 0.1), (20, 20, 0.5, 0.8, 0.2), (50, 450, 0.8, 0.95, 0.0), (30, 30, 0.6, 0.2, 0.1)]
ALPHA = 0.05


def main() -> None:
    random = np.random.default_rng(47)
    cases = []
    for labels, others, rate, right, ties in CASES:
        people = (random.random(labels + others) < rate).astype(float)
        judge = np.where(random.random(labels + others) < right, people, 1 - people)
        judge[random.random(labels + others) < ties] = 0.5
        y, f, rest = people[:labels], judge[:labels], judge[labels:]
        start = ppi_mean_pointestimate(y, f, rest, lam=1)
        lam = ppi._calc_lam_glm(y - start, f - start, rest - start, np.eye(1), clip=True)
        low, high = ppi_mean_ci(y, f, rest, alpha=ALPHA)
        cases.append({
            "labelled": [list(pair) for pair in zip(f.tolist(), y.tolist())], "unlabelled": rest.tolist(), "lambda": float(lam),
            "value": float(np.squeeze(ppi_mean_pointestimate(y, f, rest))), "interval": [float(np.squeeze(low)), float(np.squeeze(high))],
        })
    write_json(ROOT / "win_rates.json", {"made_with": versions("ppi-python", "numpy"), "confidence": 1 - ALPHA, "cases": cases})


if __name__ == "__main__":
    main()

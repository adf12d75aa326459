"""Writes crates/stats/src/golden.rs: statistics as scipy computes them.

Usage: pip install scipy==1.17.1; python scripts/goldens/make_stats.py > crates/stats/src/golden.rs; cargo fmt -p probity-stats
"""

import random

import numpy
import scipy
from scipy import optimize, special, stats


def lists(rng):
    """Pairs of lists: without ties, with some, with many, with large offsets."""
    for n, values in [(5, None), (12, 3), (16, 9), (40, 4), (2, None)]:
        draw = (lambda: round(rng.gauss(0, 3), 3)) if values is None else (lambda: float(rng.randrange(values)))
        x = [draw() for _ in range(n)]
        y = [round(0.5 * a + draw(), 3) for a in x] if values is None else [float((a + draw()) // 2) for a in x]
        yield x, y
    yield [1e6 + v for v in (0.25, 0.5, 1.0, 4.0)], [-3.0, 2.0, 2.0, 2.5]


def strengths(n, comparisons, prior):
    """The maximum of the regularised likelihood, by a general optimiser started far from it."""

    def loss(theta):
        value = sum(prior * (0.5 * t - special.softplus(t)) for t in theta)
        for i, j, p in comparisons:
            value += p * special.log_expit(theta[i] - theta[j]) + (1 - p) * special.log_expit(theta[j] - theta[i])
        return -value

    best = optimize.minimize(loss, numpy.linspace(-1, 1, n), method="BFGS", options={"gtol": 1e-10, "maxiter": 10_000})
    # BFGS stops at the rounding of the loss; a root of the gradient is sharper.
    def gradient(theta):
        g = numpy.array([prior * (0.5 - special.expit(t)) for t in theta])
        for i, j, p in comparisons:
            e = p - special.expit(theta[i] - theta[j])
            g[i] += e
            g[j] -= e
        return g

    return optimize.root(gradient, best.x, tol=1e-13).x


def resampled(rng):
    """Intervals and p-values of scipy.stats.bootstrap and permutation_test over two paired lists, with so many draws that theirs are exact to 0.005."""
    a = numpy.array([round(rng.gauss(0.55, 0.3), 3) for _ in range(14)])
    b = numpy.array([round(0.5 * x + rng.gauss(0.15, 0.2), 3) for x in a])
    options = {"n_resamples": 200_000, "method": "percentile", "random_state": numpy.random.default_rng(1), "batch": 2000}
    mean = stats.bootstrap((a,), numpy.mean, **options).confidence_interval

    def spearman(x, y, axis=-1):
        return stats.pearsonr(stats.rankdata(x, axis=axis), stats.rankdata(y, axis=axis), axis=axis).statistic

    rho = stats.bootstrap((a, b), spearman, paired=True, vectorized=True, **options).confidence_interval
    # Two lists of fourteen have 2^14 swaps: all of them.
    swaps = stats.permutation_test((a, b), lambda x, y, axis: numpy.mean(x - y, axis=axis), permutation_type="samples", vectorized=True, n_resamples=numpy.inf)
    drawn = numpy.random.default_rng(2).integers(0, len(a), (200_000, len(a)))
    differences = (a - b)[drawn].mean(axis=1)
    p = (1 + numpy.sum(numpy.abs(differences - differences.mean()) >= abs(numpy.mean(a - b)))) / (1 + len(differences))
    print(f"pub(crate) const UNITS_A: &[f64] = {rust(a)};\n\npub(crate) const UNITS_B: &[f64] = {rust(b)};\n")
    shares = [0.0, 0.025, 0.1, 0.5, 0.77, 0.975, 1.0]
    print("pub(crate) const QUANTILES: &[(f64, f64)] = &[" + ", ".join(f"({q!r}, {float(numpy.quantile(a, q))!r})" for q in shares) + "];\n")
    print(f"pub(crate) const MEAN_INTERVAL: (f64, f64) = ({float(mean.low)!r}, {float(mean.high)!r});\n")
    print(f"pub(crate) const SPEARMAN_INTERVAL: (f64, f64) = ({float(rho.low)!r}, {float(rho.high)!r});\n")
    print(f"pub(crate) const DIFFERENCE: f64 = {float(numpy.mean(a - b))!r};\n\npub(crate) const BOOTSTRAP_P: f64 = {float(p)!r};\n")
    print(f"pub(crate) const RANDOMISATION_P: f64 = {float(swaps.pvalue)!r};\n")


def rust(values):
    return "&[" + ", ".join(repr(float(v)) for v in values) + "]"


def main():
    rng = random.Random(7)
    print(f"//! Golden values of scipy {scipy.__version__}, written by `scripts/goldens/make_stats.py`. Tolerance: 1e-12; strengths 1e-7; what is resampled 0.02.")
    print("#![expect(clippy::unreadable_literal, reason = \"generated\")]\n")
    print("#[derive(Debug)]\npub(crate) struct Correlation {")
    print("    pub(crate) x: &'static [f64],\n    pub(crate) y: &'static [f64],")
    print("    pub(crate) pearson: f64,\n    pub(crate) spearman: f64,\n    pub(crate) kendall: f64,\n}\n")
    print("pub(crate) const CORRELATIONS: &[Correlation] = &[")
    rhos = []
    for x, y in lists(rng):
        r, rho, tau = stats.pearsonr(x, y)[0], stats.spearmanr(x, y)[0], stats.kendalltau(x, y, variant="b")[0]
        rhos.append(rho)
        print(f"    Correlation {{ x: {rust(x)}, y: {rust(y)}, pearson: {float(r)!r}, spearman: {float(rho)!r}, kendall: {float(tau)!r} }},")
    print("];\n")
    print(f"pub(crate) const MEAN_SPEARMAN: f64 = {float(numpy.mean(rhos))!r};\n")
    print("pub(crate) struct BradleyTerry {")
    print("    pub(crate) candidates: usize,\n    pub(crate) prior: f64,")
    print("    pub(crate) comparisons: &'static [(usize, usize, f64)],\n    pub(crate) strengths: &'static [f64],\n}\n")
    print("pub(crate) const BRADLEY_TERRY: &[BradleyTerry] = &[")
    for n, count, prior in [(3, 6, 0.1), (5, 14, 0.1), (6, 30, 1.0)]:
        comparisons = [(i, (i + 1) % n, round(rng.random(), 3)) for i in range(n)]
        comparisons += [(*rng.sample(range(n), 2), round(rng.random(), 3)) for _ in range(count - n)]
        listed = ", ".join(f"({i}, {j}, {float(p)!r})" for i, j, p in comparisons)
        best = strengths(n, comparisons, prior)
        print(f"    BradleyTerry {{ candidates: {n}, prior: {prior!r}, comparisons: &[{listed}], strengths: {rust(best)} }},")
    print("];\n")
    resampled(rng)


if __name__ == "__main__":
    main()

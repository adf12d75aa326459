"""Writes tests/goldens/stats.json: statistics as computed by scipy, scikit-learn, krippendorff and
mt-metrics-eval.

Usage: pip install scipy==1.17.1 scikit-learn==1.9.1 krippendorff==0.9.0 absl-py
       python scripts/goldens/make_stats.py MTME > tests/goldens/stats.json

MTME is a checkout of google-research/mt-metrics-eval at 68a481a.
"""

import itertools
import json
import random
import sys
import warnings

import krippendorff
import numpy
import scipy
from scipy import optimize, special, stats
from sklearn.metrics import cohen_kappa_score

sys.path.insert(0, sys.argv[1])
from mt_metrics_eval import stats as mtme  # noqa: E402
from mt_metrics_eval import tau_optimization  # noqa: E402

COEFFICIENTS = [stats.pearsonr, stats.spearmanr, stats.kendalltau]


def lists(rng):
    """Pairs of lists: without ties, with some, with many, with large offsets."""
    for n, values in [(5, None), (12, 3), (16, 9), (40, 4), (2, None)]:
        draw = (lambda: round(rng.gauss(0, 3), 3)) if values is None else (lambda: float(rng.randrange(values)))
        x = [draw() for _ in range(n)]
        y = [round(0.5 * a + draw(), 3) for a in x] if values is None else [float((a + draw()) // 2) for a in x]
        yield x, y
    yield [1e6 + v for v in (0.25, 0.5, 1.0, 4.0)], [-3.0, 2.0, 2.0, 2.5]
    yield [1.0, 2.0, 4.0], [3.0, 1.0, 2.0]
    yield [1e9 + v for v in (1.0, 3.0, 2.0, 8.0, 5.0)], [1e-9 * v for v in (2.0, 1.0, 4.0, 16.0, 9.0)]
    # Kendall: one discordant pair of many, for which the exact distribution is used beyond its limit.
    yield [float(i) for i in range(40)], [float(i) for i in (*range(20), 21, 20, *range(22, 40))]
    # All values of one list but one are tied.
    yield [0.0, 0.0, 0.0, 0.0, 1.0], [2.0, 7.0, 1.0, 8.0, 3.0]


def generated(n, modulus):
    """Long lists from a formula that the test also uses; the smaller the modulus, the more ties."""
    x = [float(i * 7919 % 10007 % modulus) for i in range(n)]
    y = [float((3 * (i * 7919 % 10007) + i * i * 31 % 40009) % 20011 % modulus) for i in range(n)]
    return x, y


def tested(x, y):
    """Coefficients and p-values of the three; None if scipy has none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = [f(x, y) for f in COEFFICIENTS]
    return [float(r.statistic) for r in results], [None if numpy.isnan(r.pvalue) else float(r.pvalue) for r in results]


def p_values(rng):
    generated_lists = []
    for n, modulus in [(33, 100_000), (34, 100_000), (500, 100_000), (500, 3), (5000, 100_000), (5000, 2), (10_007, 5)]:
        generated_lists.append([n, modulus, *tested(*generated(n, modulus))])
    student = []
    for degrees in [1, 2, 3, 7, 30, 78, 80, 82, 1000, 1_000_000]:
        student += [[t, float(degrees), 2 * float(special.stdtr(degrees, -t))] for t in [1e-3, 0.7, 1.3, 2.6, 9.0, 35.0]]
    williams = []
    for _ in range(6):
        # Coefficients of real lists, so that they are consistent.
        n = rng.randrange(4, 60)
        gold = [rng.gauss(0, 1) for _ in range(n)]
        first = [g + rng.gauss(0, 1) for g in gold]
        second = [0.3 * g + 0.5 * f + rng.gauss(0, 0.7) for g, f in zip(gold, first)]
        r = [round(float(stats.pearsonr(a, b)[0]), 6) for a, b in [(first, gold), (second, gold), (first, second)]]
        williams.append([*r, n, float(mtme.WilliamsTest(*r, n, one_sided=False))])
    return {"generated": generated_lists, "student": student, "williams": williams}


def ties(rng):
    cases = []
    for rows, columns, grades, missing in [(1, 9, 3, 0), (1, 24, 5, 0), (4, 6, 3, 0), (6, 8, 2, 0), (5, 5, 4, 6), (3, 4, 9, 2)]:
        gold = [[float(rng.randrange(grades)) for _ in range(columns)] for _ in range(rows)]
        predicted = [[round(0.4 * g + rng.gauss(0, 0.5), 2) for g in row] for row in gold]
        for _ in range(missing):
            gold[rng.randrange(rows)][rng.randrange(columns)] = None
        objects = [numpy.array(m, dtype=object) for m in (predicted, gold)]
        found = tau_optimization.tau_optimization(*objects, tau_optimization.TauSufficientStats.acc_23)
        # If several are equally good, theirs depends on rounding; the smallest is correct.
        epsilon = min(e for e, accuracy in zip(found.thresholds, found.taus) if accuracy > found.best_tau - 1e-9)
        kept = [[(p, g) for p, g in zip(*pair) if g is not None] for pair in zip(predicted, gold)]
        predicted, gold = [[floats([pair[k] for pair in row]) for row in kept] for k in (0, 1)]
        cases.append({
            "predicted": predicted, "gold": gold, "accuracy": float(found.best_tau),
            "uncalibrated": float(found.taus[0]), "epsilon": float(epsilon),
        })
    return {"ties": cases}


def agreement(rng):
    categories = []
    for n, a, b in [(12, 2, 2), (30, 5, 5), (25, 3, 6), (40, 7, 2)]:
        first = [rng.randrange(a) for _ in range(n)]
        second = [min(f, b - 1) if rng.random() < 0.5 else rng.randrange(b) for f in first]
        kappas = [float(cohen_kappa_score(first, second, weights=w)) for w in (None, "linear", "quadratic")]
        table = stats.contingency.crosstab(first, second).count
        v = float(stats.contingency.association(table, method="cramer"))
        categories.append({
            "first": first, "second": second, "kappas": kappas, "cramers_v": v, "corrected": corrected(table),
        })
    # Drawn for a removed case; later cases depend on the generator's state.
    [[rng.gauss(centre, 1) for _ in range(5)] for centre in (0, 1, 2, 2, 3, 4, 4, 1)]
    alphas = []
    for raters, units, grades, gaps, step in [(2, 10, 4, 0, 1.0), (4, 12, 5, 14, 0.5), (3, 9, 3, 9, 0.25)]:
        data = numpy.array([[1.0 + step * min(grades - 1, max(0, round(rng.gauss(u % grades, 0.8)))) for u in range(units)] for _ in range(raters)])
        for _ in range(gaps):
            data[rng.randrange(raters), rng.randrange(units)] = numpy.nan
        levels = ("nominal", "ordinal", "interval", "ratio")
        found = [float(krippendorff.alpha(reliability_data=data, level_of_measurement=level)) for level in levels]
        alphas.append([[floats([v for v in column if not numpy.isnan(v)]) for column in data.T], found])
    return {"categories": categories, "alpha": alphas}


def corrected(table):
    """Cramér's V with Bergsma's correction, from the table's chi-square."""
    n, (r, k) = table.sum(), table.shape
    phi2 = max(0.0, stats.chi2_contingency(table, correction=False).statistic / n - (r - 1) * (k - 1) / (n - 1))
    return float(numpy.sqrt(phi2 / (min(r - (r - 1) ** 2 / (n - 1), k - (k - 1) ** 2 / (n - 1)) - 1)))


def strengths(n, comparisons, prior):
    """The maximum of the regularised likelihood, by a general optimiser with a distant start."""

    def loss(theta):
        value = sum(prior * (0.5 * t - special.softplus(t)) for t in theta)
        for i, j, p in comparisons:
            value += p * special.log_expit(theta[i] - theta[j]) + (1 - p) * special.log_expit(theta[j] - theta[i])
        return -value

    best = optimize.minimize(loss, numpy.linspace(-1, 1, n), method="BFGS", options={"gtol": 1e-10, "maxiter": 10_000})
    # BFGS stops at the rounding of the loss; a root of the gradient is more precise.
    def gradient(theta):
        g = numpy.array([prior * (0.5 - special.expit(t)) for t in theta])
        for i, j, p in comparisons:
            e = p - special.expit(theta[i] - theta[j])
            g[i] += e
            g[j] -= e
        return g

    return optimize.root(gradient, best.x, tol=1e-13).x


def jackknifed(units, statistic, to=lambda v: v, back=lambda v: v):
    """Figure, interval and p: Student's t around the figure with the delete-one jackknife's error, on the scale of
    `to`."""
    value = to(statistic(list(range(units))))
    without = numpy.array([to(statistic([k for k in range(units) if k != left_out])) for left_out in range(units)])
    pseudo = units * value - (units - 1) * without
    error = numpy.std(pseudo, ddof=1) / numpy.sqrt(units)
    low, high = stats.t.interval(0.95, units - 1, loc=value, scale=error)
    return back(value), float(back(low)), float(back(high)), float(2 * stats.t.sf(abs(value / error), units - 1))


def intervals(rng):
    """scipy's intervals and tests over two paired lists; over all swaps where ours are sampled."""
    a = numpy.array([round(rng.gauss(0.55, 0.3), 3) for _ in range(14)])
    b = numpy.array([round(0.5 * x + rng.gauss(0.15, 0.2), 3) for x in a])
    mean = stats.ttest_1samp(a, 0).confidence_interval()
    _, low, high, _ = jackknifed(14, lambda kept: stats.spearmanr(a[kept], b[kept])[0], numpy.arctanh, numpy.tanh)
    # Two lists of fourteen have 2^14 swaps: all of them.
    swaps = stats.permutation_test((a, b), lambda x, y, axis: numpy.mean(x - y, axis=axis), permutation_type="samples", vectorized=True, n_resamples=numpy.inf)
    shares = [0.0, 0.025, 0.1, 0.5, 0.77, 0.975, 1.0]
    proportions = []
    for hits, n in [(0, 2), (1, 2), (2, 2), (3, 10), (7.5, 12), (40, 40), (523.5, 1000), (9999, 10000)]:
        below = 0.0 if hits == 0 else float(stats.beta.ppf(0.025, hits, n - hits + 1))
        above = 1.0 if hits == n else float(stats.beta.ppf(0.975, hits + 1, n - hits))
        proportions.append([float(hits), n, below, above])
    return {
        "units_a": floats(a),
        "units_b": floats(b),
        "quantiles": [[q, float(numpy.quantile(a, q))] for q in shares],
        "mean_interval": floats([mean.low, mean.high]),
        "spearman_interval": [low, high],
        "difference": float(numpy.mean(a - b)),
        "paired_p": float(stats.ttest_rel(a, b).pvalue),
        "randomisation_p": float(swaps.pvalue),
        "proportions": proportions,
    }


def compared(rng):
    """Two metrics with the same gold over contexts of four systems: the jackknife over contexts, and all swaps."""
    contexts, systems = 12, 4
    gold = numpy.array([[round(rng.gauss(0.3 * k, 1), 2) for k in range(systems)] for _ in range(contexts)])
    first = gold + [[round(rng.gauss(0, 0.8), 2) for _ in range(systems)] for _ in range(contexts)]
    second = 10 * (0.4 * gold + [[round(rng.gauss(0, 0.8), 2) for _ in range(systems)] for _ in range(contexts)])
    pearson = lambda a, b: numpy.corrcoef(a, b)[0, 1]
    order = [(i, j) for i in range(systems) for j in range(i)]

    def accuracy(x, g):
        signs = [(numpy.sign(x[:, i] - x[:, j]), numpy.sign(g[:, i] - g[:, j])) for i, j in order]
        return sum(numpy.sum(b * (a * b + 1) * b / 2) for a, b in signs) / sum(numpy.sum(b != 0) for _, b in signs)

    measures = [
        lambda x, g: pearson(x.ravel(), g.ravel()),
        lambda x, g: numpy.mean([pearson(a, b) for a, b in zip(x, g)]),
        lambda x, g: pearson(x.mean(axis=0), g.mean(axis=0)),
        accuracy,
    ]
    standard = [(x - x.mean()) / x.std() for x in (first, second)]
    results = []
    for measure in measures:
        observed, low, high, p = jackknifed(contexts, lambda kept: measure(first[kept], gold[kept]) - measure(second[kept], gold[kept]))
        # Correlations within contexts do not depend on the scale.
        swaps = []
        for turn in itertools.product([False, True], repeat=contexts):
            a, b = (numpy.where(numpy.array(turn)[:, None], *standard[::o]) for o in (1, -1))
            swaps.append(measure(a, gold) - measure(b, gold))
        r = numpy.mean(numpy.abs(swaps) >= abs(swaps[0]) - 1e-12)
        results.append([float(v) for v in (observed, low, high, p, r)])
    williams = mtme.WilliamsTest(pearson(first.ravel(), gold.ravel()), pearson(second.ravel(), gold.ravel()), pearson(first.ravel(), second.ravel()), gold.size, one_sided=False)
    lists = {"first": floats(first.ravel()), "second": floats(second.ravel()), "gold": floats(gold.ravel())}
    return {"compared": {**lists, "differences": results, "williams_p": float(williams)}}


def floats(values):
    return [float(v) for v in values]


def main():
    rng = random.Random(7)
    correlations, contexts = [], []
    for x, y in lists(rng):
        coefficients, p = tested(x, y)
        correlations.append({"x": floats(x), "y": floats(y), "coefficients": coefficients, "p": p})
    for number, column in enumerate(zip(*(one["coefficients"] for one in correlations))):
        contexts.append([number, float(numpy.mean(column)), float(stats.ttest_1samp(column, 0).pvalue)])
    golden = {"correlations": correlations, "per_context": contexts}
    golden |= p_values(rng) | ties(rng) | agreement(rng)
    golden["bradley_terry"] = []
    for n, count, prior in [(3, 6, 0.1), (5, 14, 0.1), (6, 30, 1.0)]:
        comparisons = [(i, (i + 1) % n, round(rng.random(), 3)) for i in range(n)]
        comparisons += [(*rng.sample(range(n), 2), round(rng.random(), 3)) for _ in range(count - n)]
        found = floats(strengths(n, comparisons, prior))
        golden["bradley_terry"].append({"candidates": n, "prior": prior, "comparisons": comparisons, "strengths": found})
    golden |= intervals(rng) | compared(rng)
    print("{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in golden.items()) + "\n}")


if __name__ == "__main__":
    main()

"""Writes crates/stats/src/golden.rs: statistics as computed by scipy, scikit-learn, statsmodels, krippendorff and
mt-metrics-eval.

Usage: pip install scipy==1.17.1 scikit-learn==1.9.1 statsmodels==0.15.0 krippendorff==0.9.0 absl-py
       python scripts/goldens/make_stats.py MTME > crates/stats/src/golden.rs; cargo fmt -p probity-stats

MTME is a checkout of google-research/mt-metrics-eval at 68a481a.
"""

import itertools
import random
import sys
import warnings

import krippendorff
import numpy
import scipy
from scipy import optimize, special, stats
from sklearn.metrics import cohen_kappa_score
from statsmodels.stats import inter_rater

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


def option(value):
    return "None" if value is None else f"Some({value!r})"


def p_values(rng):
    print("/// Lists by rule: n, modulus, coefficients, p-values.")
    print("pub(crate) const GENERATED: &[(u64, u64, [f64; 3], [f64; 3])] = &[")
    for n, modulus in [(33, 100_000), (34, 100_000), (500, 100_000), (500, 3), (5000, 100_000), (5000, 2), (10_007, 5)]:
        coefficients, p = tested(*generated(n, modulus))
        print(f"    ({n}, {modulus}, {coefficients!r}, {p!r}),")
    print("];\n")
    print("/// t, degrees of freedom, two-sided p.")
    print("pub(crate) const STUDENT: &[(f64, f64, f64)] = &[")
    for degrees in [1, 2, 3, 7, 30, 78, 80, 82, 1000, 1_000_000]:
        for t in [1e-3, 0.7, 1.3, 2.6, 9.0, 35.0]:
            print(f"    ({t!r}, {float(degrees)!r}, {2 * float(special.stdtr(degrees, -t))!r}),")
    print("];\n")
    print("/// First and second metric with gold, between the metrics, n, p (two-sided).")
    print("pub(crate) const WILLIAMS: &[(f64, f64, f64, usize, f64)] = &[")
    for _ in range(6):
        # Coefficients of real lists, so that they are consistent.
        n = rng.randrange(4, 60)
        gold = [rng.gauss(0, 1) for _ in range(n)]
        first = [g + rng.gauss(0, 1) for g in gold]
        second = [0.3 * g + 0.5 * f + rng.gauss(0, 0.7) for g, f in zip(gold, first)]
        r = [round(float(stats.pearsonr(a, b)[0]), 6) for a, b in [(first, gold), (second, gold), (first, second)]]
        print(f"    ({r[0]!r}, {r[1]!r}, {r[2]!r}, {n}, {float(mtme.WilliamsTest(*r, n, one_sided=False))!r}),")
    print("];\n")


def ties(rng):
    print("#[derive(Debug)]\npub(crate) struct Ties {")
    print("    pub(crate) predicted: &'static [&'static [f64]],\n    pub(crate) gold: &'static [&'static [f64]],")
    print("    pub(crate) accuracy: f64,\n    pub(crate) uncalibrated: f64,\n    pub(crate) epsilon: f64,\n}\n")
    print("pub(crate) const TIES: &[Ties] = &[")
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
        lists = ["&[" + ", ".join(rust([pair[k] for pair in row]) for row in kept) + "]" for k in (0, 1)]
        print(f"    Ties {{ predicted: {lists[0]}, gold: {lists[1]}, accuracy: {float(found.best_tau)!r}, "
              f"uncalibrated: {float(found.taus[0])!r}, epsilon: {float(epsilon)!r} }},")
    print("];\n")


def agreement(rng):
    print("#[derive(Debug)]\npub(crate) struct Categories {")
    print("    pub(crate) first: &'static [i64],\n    pub(crate) second: &'static [i64],\n    pub(crate) kappas: [f64; 3],")
    print("    pub(crate) cramers_v: f64,\n    pub(crate) corrected: f64,\n    pub(crate) fleiss: f64,\n}\n")
    print("pub(crate) const CATEGORIES: &[Categories] = &[")
    for n, a, b in [(12, 2, 2), (30, 5, 5), (25, 3, 6), (40, 7, 2)]:
        first = [rng.randrange(a) for _ in range(n)]
        second = [min(f, b - 1) if rng.random() < 0.5 else rng.randrange(b) for f in first]
        kappas = [float(cohen_kappa_score(first, second, weights=w)) for w in (None, "linear", "quadratic")]
        table = stats.contingency.crosstab(first, second).count
        v = float(stats.contingency.association(table, method="cramer"))
        fleiss = inter_rater.fleiss_kappa(inter_rater.aggregate_raters(numpy.array([first, second]).T)[0])
        print(f"    Categories {{ first: &{first!r}, second: &{second!r}, kappas: {kappas!r}, cramers_v: {v!r}, "
              f"corrected: {corrected(table)!r}, fleiss: {float(fleiss)!r} }},")
    print("];\n")
    subjects = [[min(4, max(0, round(rng.gauss(centre, 1)))) for _ in range(5)] for centre in (0, 1, 2, 2, 3, 4, 4, 1)]
    fleiss = inter_rater.fleiss_kappa(inter_rater.aggregate_raters(numpy.array(subjects))[0])
    print(f"pub(crate) const FLEISS: (&[&[i64]], f64) = (&[{', '.join('&' + repr(s) for s in subjects)}], {float(fleiss)!r});\n")
    print("/// Units with their ratings; nominal, ordinal, interval, ratio.")
    print("pub(crate) const ALPHA: &[(&[&[f64]], [f64; 4])] = &[")
    for raters, units, grades, gaps, step in [(2, 10, 4, 0, 1.0), (4, 12, 5, 14, 0.5), (3, 9, 3, 9, 0.25)]:
        data = numpy.array([[1.0 + step * min(grades - 1, max(0, round(rng.gauss(u % grades, 0.8)))) for u in range(units)] for _ in range(raters)])
        for _ in range(gaps):
            data[rng.randrange(raters), rng.randrange(units)] = numpy.nan
        alphas = [float(krippendorff.alpha(reliability_data=data, level_of_measurement=level)) for level in ("nominal", "ordinal", "interval", "ratio")]
        listed = ", ".join(rust([v for v in column if not numpy.isnan(v)]) for column in data.T)
        print(f"    (&[{listed}], {alphas!r}),")
    print("];\n")


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
    print(f"pub(crate) const UNITS_A: &[f64] = {rust(a)};\n\npub(crate) const UNITS_B: &[f64] = {rust(b)};\n")
    shares = [0.0, 0.025, 0.1, 0.5, 0.77, 0.975, 1.0]
    print("pub(crate) const QUANTILES: &[(f64, f64)] = &[" + ", ".join(f"({q!r}, {float(numpy.quantile(a, q))!r})" for q in shares) + "];\n")
    print(f"pub(crate) const MEAN_INTERVAL: (f64, f64) = ({float(mean.low)!r}, {float(mean.high)!r});\n")
    print(f"pub(crate) const SPEARMAN_INTERVAL: (f64, f64) = ({low!r}, {high!r});\n")
    print(f"pub(crate) const DIFFERENCE: f64 = {float(numpy.mean(a - b))!r};\n\npub(crate) const PAIRED_P: f64 = {float(stats.ttest_rel(a, b).pvalue)!r};\n")
    print(f"pub(crate) const RANDOMISATION_P: f64 = {float(swaps.pvalue)!r};\n")
    print("/// Hits, with ties as half, of how many; Clopper and Pearson's interval.\npub(crate) const PROPORTIONS: &[(f64, usize, f64, f64)] = &[")
    for hits, n in [(0, 2), (1, 2), (2, 2), (3, 10), (7.5, 12), (40, 40), (523.5, 1000), (9999, 10000)]:
        low = 0.0 if hits == 0 else float(stats.beta.ppf(0.025, hits, n - hits + 1))
        high = 1.0 if hits == n else float(stats.beta.ppf(0.975, hits + 1, n - hits))
        print(f"    ({float(hits)!r}, {n}, {low!r}, {high!r}),")
    print("];\n")


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
    print("/// Contexts of four; the difference, its interval, p of t and of all swaps: pooled, per context, systems, pairs.")
    print("#[derive(Debug)]\npub(crate) struct Compared {\n    pub(crate) first: &'static [f64],\n    pub(crate) second: &'static [f64],")
    print("    pub(crate) gold: &'static [f64],\n    pub(crate) differences: &'static [(f64, f64, f64, f64, f64)],\n    pub(crate) williams_p: f64,\n}\n")
    listed = ", ".join("(" + ", ".join(map(repr, row)) + ")" for row in results)
    print(f"pub(crate) static COMPARED: Compared = Compared {{ first: {rust(first.ravel())}, second: {rust(second.ravel())}, gold: {rust(gold.ravel())}, "
          f"differences: &[{listed}], williams_p: {float(williams)!r} }};\n")


def rust(values):
    return "&[" + ", ".join(repr(float(v)) for v in values) + "]"


def main():
    rng = random.Random(7)
    print(f"//! Golden values of scipy {scipy.__version__}, scikit-learn, statsmodels, krippendorff and mt-metrics-eval, written by")
    print("//! `scripts/goldens/make_stats.py`, which names the versions. Tolerance: 1e-12; p-values 1e-10 of themselves; strengths 1e-7.")
    print("#![expect(clippy::unreadable_literal, reason = \"generated\")]\n")
    print("/// Coefficients and p-values of Pearson, Spearman and Kendall.\n#[derive(Debug)]\npub(crate) struct Correlated {")
    print("    pub(crate) x: &'static [f64],\n    pub(crate) y: &'static [f64],")
    print("    pub(crate) coefficients: [f64; 3],\n    pub(crate) p: [Option<f64>; 3],\n}\n")
    print("pub(crate) const CORRELATIONS: &[Correlated] = &[")
    all_coefficients = []
    for x, y in lists(rng):
        coefficients, p = tested(x, y)
        all_coefficients.append(coefficients)
        print(f"    Correlated {{ x: {rust(x)}, y: {rust(y)}, coefficients: {coefficients!r}, p: [{', '.join(map(option, p))}] }},")
    print("];\n")
    print("/// Which coefficient, the mean over the lists above, p of its being 0.\npub(crate) const PER_CONTEXT: &[(usize, f64, f64)] = &[")
    for number, column in enumerate(zip(*all_coefficients)):
        print(f"    ({number}, {float(numpy.mean(column))!r}, {float(stats.ttest_1samp(column, 0).pvalue)!r}),")
    print("];\n")
    p_values(rng)
    ties(rng)
    agreement(rng)
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
    intervals(rng)
    compared(rng)


if __name__ == "__main__":
    main()

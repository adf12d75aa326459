"""Line charts as SVG, with logarithmic axes, readable on light and dark backgrounds. Uses only the standard library."""

import math
from html import escape

WIDTH, HEIGHT = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 64, 190, 40, 48
COLOURS = ["#2f81f7", "#d4762c", "#2da36a", "#a475f9"]
STYLE = """
text { font: 13px sans-serif; fill: #24292f }
.title { font-weight: bold }
.grid { stroke: #8b949e; stroke-opacity: .3 }
.axis { stroke: #8b949e }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } }
"""


def ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times the powers of ten from `low` to `high`."""
    exponents = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    return [factor * 10.0**exponent for exponent in exponents for factor in (1, 2, 5) if low <= factor * 10.0**exponent <= high]


def chart(title: str, x_label: str, y_label: str, series: dict[str, list[tuple[float, float]]]) -> str:
    """An SVG document with one line for each series of `(x, y)` points, all above zero."""
    xs = sorted({x for points in series.values() for x, _ in points})
    ys = [y for points in series.values() for _, y in points]
    low, high = min(ys) / 1.3, max(ys) * 1.3

    def place(value: float, start: float, end: float, first: float, last: float) -> float:
        return first + (last - first) * (math.log(value) - math.log(start)) / (math.log(end) - math.log(start))

    def at(x: float, y: float) -> tuple[float, float]:
        return place(x, xs[0], xs[-1], LEFT, WIDTH - RIGHT), place(y, low, high, HEIGHT - BOTTOM, TOP)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">',
        f"<style>{STYLE}</style>",
        f'<text class="title" x="{LEFT}" y="22">{escape(title)}</text>',
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 10}" text-anchor="middle">{escape(x_label)}</text>',
        f'<text x="16" y="{HEIGHT / 2}" text-anchor="middle" transform="rotate(-90 16 {HEIGHT / 2})">{escape(y_label)}</text>',
    ]
    for tick in ticks(low, high):
        y = at(xs[0], tick)[1]
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
    for x in xs:
        parts.append(f'<text x="{at(x, low)[0]:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{x:g}</text>')
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM}"/>')
    for index, (name, points) in enumerate(series.items()):
        colour = COLOURS[index % len(COLOURS)]
        places = [at(x, y) for x, y in sorted(points)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in places]
        y = TOP + 20 * index + 8
        parts.append(f'<circle cx="{WIDTH - RIGHT + 14}" cy="{y - 4}" r="4" fill="{colour}"/>')
        parts.append(f'<text x="{WIDTH - RIGHT + 24}" y="{y}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"

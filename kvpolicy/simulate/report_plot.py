"""The plot of one experiment, as SVG: gap closed at each size, a bar a policy, its interval, a dot for each seed."""

from __future__ import annotations

from html import escape

from kvpolicy.simulate.bench_arithmetic import Figures, Line

_COLOURS = ("#0b6e4f", "#b8500f", "#6a3d9a", "#1f6fb2", "#a3195b", "#5b6b00", "#8a5a00", "#00727a")
_WIDTH, _ROW, _LEFT, _RIGHT, _TOP = 760, 14, 210, 30, 24
_LOWEST = -0.6  # a bar that reaches further down ends there, with an arrow


def plot(figures: Figures) -> str:
    """One group of bars a policy; empty where there is nothing but references."""
    lines = [line for line in figures.lines if line.policy not in ("lru", "belady-resident")]
    if not lines:
        return ""
    gaps = [pair.gap for line in lines for point in line.points for pair in point.pairs]
    low, high = max(_LOWEST, min(0.0, *gaps)), max(0.1, *gaps)
    rows = sum(len(line.points) + 1 for line in lines)
    height = _TOP + rows * _ROW + 10

    def x(gap: float) -> float:
        share = (min(max(gap, low), high) - low) / (high - low)
        return round(_LEFT + share * (_WIDTH - _LEFT - _RIGHT), 1)

    parts = [f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="Gap closed by policy and size">']
    for step in range(-6, 11):
        if low <= step / 10 <= high:
            place, colour = x(step / 10), "#888" if step == 0 else "#e2e2e2"
            parts.append(f'<line x1="{place}" x2="{place}" y1="{_TOP}" y2="{height - 10}" stroke="{colour}"/>')
            parts.append(f'<text x="{place}" y="{_TOP - 8}" text-anchor="middle">{10 * step} %</text>')
    y = float(_TOP)
    for index, line in enumerate(lines):
        parts.append(_group(line, _COLOURS[index % len(_COLOURS)], y, x(0.0), x, low))
        y += (len(line.points) + 1) * _ROW
    return "".join([*parts, "</svg>"])


def _group(line: Line, colour: str, y: float, zero: float, x: object, low: float) -> str:
    assert callable(x)
    name = line.policy if line.hints == "true" else f"{line.policy}, {line.hints}"
    parts = []
    for row, point in enumerate(line.points):
        middle, end = y + row * _ROW + _ROW / 2, x(point.gap)
        said = f"{escape(name)} at {point.percent:g} %: {100 * point.gap:.1f} %"
        parts.append(
            f'<text x="{_LEFT - 48}" y="{middle + 4}" text-anchor="end">{escape(name) if not row else ""}</text>'
        )
        parts.append(f'<text x="{_LEFT - 8}" y="{middle + 4}" text-anchor="end">{point.percent:g} %</text>')
        parts.append(
            f'<rect x="{min(zero, end)}" y="{middle - 5}" width="{abs(end - zero):.1f}" height="10" fill="{colour}" '
            f'fill-opacity="0.35"><title>{said}</title></rect>'
        )
        if point.gap_interval is not None:
            first, last = (x(value) for value in point.gap_interval)
            parts.append(
                f'<line x1="{first}" x2="{last}" y1="{middle}" y2="{middle}" stroke="{colour}" stroke-width="3"/>'
            )
        for pair in point.pairs:
            mark = "◀" if pair.gap < low else "·"
            parts.append(f'<text x="{x(pair.gap)}" y="{middle + 4}" text-anchor="middle">{mark}</text>')
    return "".join(parts)

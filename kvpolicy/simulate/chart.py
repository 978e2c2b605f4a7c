"""`--html`: one self-contained page with the hit ratio over the capacity, between lru and the bound. No script, nothing
loaded from elsewhere. Reads an outcome, writes HTML text.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from html import escape

from kvpolicy.simulate.names import BELADY_RESIDENT, LRU
from kvpolicy.simulate.report import LEGEND, notices
from kvpolicy.simulate.simulate import Outcome
from kvpolicy.simulate.tally import Tally

_WIDTH, _HEIGHT = 760, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 20, 20, 66
_COLOURS = ("#0b6e4f", "#b8500f", "#6a3d9a", "#1f6fb2", "#a3195b", "#5b6b00", "#8a5a00", "#00727a")
_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1c1c1c;background:#fff}
table{border-collapse:collapse;margin:1rem 0;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .8rem;text-align:right;border-bottom:1px solid #ddd}
th:first-child,td:first-child{text-align:left}
.small{color:#555;font-size:13px;overflow-wrap:anywhere}
svg{max-width:100%;height:auto}svg text{font:12px system-ui,sans-serif;fill:#333}
"""


def page(name: str, outcome: Outcome) -> str:
    """The whole page."""
    facts = outcome.facts
    told = "".join(f"<p><b>{escape(n.code)}</b> {escape(n.message)}</p>" for n in notices(outcome))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(name)}: hit ratio over capacity</title><style>{_STYLE}</style></head><body>"
        f"<h1>{escape(name)}: hit ratio over capacity</h1><p>{escape(LEGEND)}</p>{_svg(outcome)}{told}{_table(outcome)}"
        f'<p class="small">{facts.requests:,} requests, {facts.block_refs:,} block references, '
        f"{facts.unique_blocks:,} unique "
        f"blocks of {facts.block_size} tokens, {facts.sessions:,} sessions. {escape(facts.label)}. "
        f"SHA-256 {escape(str(facts.sha256))}.</p></body></html>\n"
    )


def _lines(outcome: Outcome) -> dict[str, list[Tally]]:
    """Tallies by policy, by capacity; lru and the bound always among them where they are known."""
    lines: dict[str, dict[int, Tally]] = {}
    known = [tally for tally in outcome.references.values() if tally.block_refs]
    for tally in [*known, *outcome.tallies]:
        lines.setdefault(tally.policy, {})[tally.capacity_blocks] = tally
    return {policy: [by_size[size] for size in sorted(by_size)] for policy, by_size in lines.items()}


def _svg(outcome: Outcome) -> str:
    lines = _lines(outcome)
    sizes = sorted({tally.capacity_blocks for line in lines.values() for tally in line})
    ratios = [tally.hit_ratio for line in lines.values() for tally in line]
    low = math.floor(10 * min(ratios)) / 10
    high = min(1.0, max(math.ceil(10 * max(ratios)) / 10, low + 0.1))
    first, last = math.log(sizes[0]), math.log(sizes[-1])

    def x(size: int) -> float:
        share = (math.log(size) - first) / (last - first) if last > first else 0.5
        return round(_LEFT + share * (_WIDTH - _LEFT - _RIGHT), 1)

    def y(ratio: float) -> float:
        return round(_HEIGHT - _BOTTOM - (ratio - low) / (high - low) * (_HEIGHT - _TOP - _BOTTOM), 1)

    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT + 22 * len(lines)}" role="img" aria-label="Hit ratio over capacity">'
    ]
    for step in range(round(10 * low), round(10 * high) + 1):
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(step / 10)}" y2="{y(step / 10)}" stroke="#e2e2e2"/>'
        )
        parts.append(f'<text x="{_LEFT - 8}" y="{y(step / 10) + 4}" text-anchor="end">{10 * step} %</text>')
    for size in sizes:
        for row, written in enumerate((f"{size:,}", _percent(size, outcome))):
            place = f'x="{x(size)}" y="{_HEIGHT - _BOTTOM + 18 + 14 * row}"'
            parts.append(f'<text {place} text-anchor="middle">{written}</text>')
    parts.append(
        f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 12}" text-anchor="middle">'
        "capacity in blocks and in percent of the trace's unique blocks (logarithmic)</text>"
    )
    parts.append(_band(lines, x, y))
    for index, (policy, line) in enumerate(lines.items()):
        colour = {LRU: "#555", BELADY_RESIDENT: "#111"}.get(policy, _COLOURS[index % len(_COLOURS)])
        dash = ' stroke-dasharray="6 4"' if policy in (LRU, BELADY_RESIDENT) else ""
        points = " ".join(f"{x(t.capacity_blocks)},{y(t.hit_ratio)}" for t in line)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        for t in line:
            told = f"{escape(policy)} at {t.capacity_blocks:,} blocks: {100 * t.hit_ratio:.2f} %"
            parts.append(
                f'<circle cx="{x(t.capacity_blocks)}" cy="{y(t.hit_ratio)}" r="3.5" '
                f'fill="{colour}"><title>{told}</title></circle>'
            )
        row = _HEIGHT + 22 * index
        parts.append(
            f'<line x1="{_LEFT}" x2="{_LEFT + 28}" y1="{row}" y2="{row}" stroke="{colour}" stroke-width="3"{dash}/>'
        )
        parts.append(f'<text x="{_LEFT + 36}" y="{row + 4}">{escape(policy)}</text>')
    return "".join([*parts, "</svg>"])


def _band(lines: dict[str, list[Tally]], x: Callable[[int], float], y: Callable[[float], float]) -> str:
    """What lies between lru and the bound, shaded: the room a policy has."""
    if LRU not in lines or BELADY_RESIDENT not in lines:
        return ""
    there = [(x(t.capacity_blocks), y(t.hit_ratio)) for t in lines[BELADY_RESIDENT]]
    back = [(x(t.capacity_blocks), y(t.hit_ratio)) for t in reversed(lines[LRU])]
    return f'<polygon points="{" ".join(f"{a},{b}" for a, b in there + back)}" fill="#0b6e4f" fill-opacity="0.08"/>'


def _percent(size: int, outcome: Outcome) -> str:
    return f"{100 * size / max(1, outcome.facts.unique_blocks):.3g} %"


def _table(outcome: Outcome) -> str:
    """Every point that is drawn, by capacity."""
    rows = []
    drawn = [tally for line in _lines(outcome).values() for tally in line]
    for tally in sorted(drawn, key=lambda tally: tally.capacity_blocks):
        gap = outcome.gap_closed(tally)
        cells = (
            escape(tally.policy),
            f"{tally.capacity_blocks:,} ({_percent(tally.capacity_blocks, outcome)})",
            f"{100 * tally.hit_ratio:.2f} %",
            f"{tally.recomputed_tokens:,}",
            "–" if gap is None else f"{100 * gap:.1f} %".replace("-", "−"),
        )
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    head = "".join(
        f"<th>{cell}</th>" for cell in ("policy", "capacity (blocks)", "hit ratio", "recomputed tokens", "gap closed")
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"

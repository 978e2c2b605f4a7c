"""The page of a bench: for each experiment what it asks, a plot, the figures, how they were made and by which command.

Reads figures, writes Markdown, HTML (one file, no script, nothing loaded from elsewhere) or JSON.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict
from html import escape

from kvpolicy import __version__
from kvpolicy.simulate.bench_arithmetic import Figures, Interval, Line, Point
from kvpolicy.simulate.bench_hints import HINTS
from kvpolicy.simulate.report_plot import plot

LEGEND = (
    "Gap: share of the distance from lru (0 %, the engine's own order) to belady-resident (100 %, the best order "
    "that knows the future), the mean over seeds with its 95 % interval (bootstrap over the seeds), then the "
    "least and the most of them. Recomputed: tokens that had been computed before and were computed again, "
    "against lru. Cost: an uncached token at the price of ten cached ones, against lru. Below lru: seeds in which "
    "it is worse than lru beyond the interval over that seed's sessions; a dash where hits by session are not "
    "kept. Requests take no time in these replays: there is no throughput in them, and a pause holds the time of "
    "the answer itself."
)
HEAD = ("policy", "size", "hit ratio", "gap closed", "seeds", "recomputed", "cost", "cached", "uncached", "below lru")


def as_markdown(found: Mapping[str, Figures]) -> str:
    """The whole page."""
    parts = ["# Bench", "", LEGEND, ""]
    for figures in found.values():
        parts += [f"## {figures.name}", "", figures.about, ""]
        head = HEAD if not _hinted(figures) else ("hints", *HEAD)
        parts += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
        parts += ["| " + " | ".join(row) + " |" for row in _rows(figures)]
        parts += ["", _overall(figures), "", _made(figures), ""]
        if _hinted(figures):
            parts += [f"- `{name}`: {HINTS[name]}" for name in _hints(figures)] + [""]
    return "\n".join([*parts, _versions(), ""])


def as_html(found: Mapping[str, Figures]) -> str:
    """The whole page, with plots."""
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>kvpolicy bench</title><style>{_STYLE}</style></head><body><h1>Bench</h1><p>{escape(LEGEND)}</p>"
    ]
    for figures in found.values():
        head = HEAD if not _hinted(figures) else ("hints", *HEAD)
        parts.append(f"<h2>{escape(figures.name)}</h2><p>{escape(figures.about)}</p>{plot(figures)}<table><thead><tr>")
        parts.append("".join(f"<th>{escape(cell)}</th>" for cell in head) + "</tr></thead><tbody>")
        for row in _rows(figures):
            parts.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>")
        parts.append(f"</tbody></table><p>{escape(_overall(figures))}</p><p class=small>{escape(_made(figures))}</p>")
        if _hinted(figures):
            items = "".join(f"<li>{escape(name)}: {escape(HINTS[name])}</li>" for name in _hints(figures))
            parts.append(f"<ul class=small>{items}</ul>")
    return "".join([*parts, f"<p class=small>{escape(_versions())}</p></body></html>\n"])


def as_json(found: Mapping[str, Figures]) -> str:
    """Every figure, with its interval and each seed's value."""
    import orjson

    document = {
        "kvpolicy_bench": 1,
        "versions": {"kvpolicy": __version__, "python": platform.python_version(), "system": platform.platform()},
        "experiments": [asdict(figures) for figures in found.values()],
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2).decode() + "\n"


def _rows(figures: Figures) -> list[tuple[str, ...]]:
    rows = []
    for line in figures.lines:
        for point in line.points:
            row = _row(line, point)
            rows.append((line.hints, *row) if _hinted(figures) else row)
    return rows


def _row(line: Line, point: Point) -> tuple[str, ...]:
    gaps = [pair.gap for pair in point.pairs]
    below = [pair.below for pair in point.pairs if pair.within is not None]
    return (
        line.policy,
        f"{point.percent:g} %",
        f"{100 * point.hit_ratio:.2f} %",
        signed(point.gap, point.gap_interval),
        f"{_percent(min(gaps))} to {_percent(max(gaps))}" if len(gaps) > 1 else "1 run",
        signed(point.recomputed, point.recomputed_interval),
        _percent(point.cost),
        _millions(point.cached_tokens),
        _millions(point.uncached_tokens),
        f"{sum(below)} of {len(below)}" if below else "–",
    )


def _overall(figures: Figures) -> str:
    """The mean over sizes and seeds, best first."""
    said = [
        f"{line.policy}{'' if line.hints == 'true' else ' (' + line.hints + ')'} {signed(line.gap, line.gap_interval)}"
        for line in sorted(figures.lines, key=lambda line: -line.gap)
        if line.policy not in ("lru", "belady-resident")
    ]
    if not said:
        return "Only the two that the gap lies between were measured: no policy is to be told of."
    return "Gap closed over all sizes and seeds: " + "; ".join(said) + "."


def _made(figures: Figures) -> str:
    made = figures.made
    part = f", part {made['part']} of the sessions" if made["part"] else ""
    sample = f", {made['sample']} sessions drawn a seed" if made["sample"] else ""
    return (
        f"Made by `{made['command']}` at commit {', '.join(made['commits'])}: trace {made['trace']} (SHA-256 "
        f"{made['trace_sha256']}){part}{sample}, blocks of {made['block_size']} tokens, sizes in percent of its unique "
        f"blocks, seeds {', '.join(map(str, figures.seeds))}."
    )


def _versions() -> str:
    return f"kvpolicy {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}."


def _hinted(figures: Figures) -> bool:
    return len(_hints(figures)) > 1


def _hints(figures: Figures) -> list[str]:
    return list(dict.fromkeys(line.hints for line in figures.lines))


def signed(value: float, interval: Interval | None) -> str:
    """`35.1 % [31.0, 38.2]`."""
    return _percent(value) + (f" [{100 * interval[0]:.1f}, {100 * interval[1]:.1f}]" if interval else "")


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %".replace("-0.0 %", "0.0 %")


def _millions(tokens: float) -> str:
    return f"{tokens / 1e6:,.0f}M"


_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#1c1c1c;background:#fff}
table{border-collapse:collapse;margin:1rem 0;font-variant-numeric:tabular-nums;font-size:13px;display:block;
overflow-x:auto}
th,td{padding:.2rem .6rem;text-align:right;border-bottom:1px solid #ddd;white-space:nowrap}
th:first-child,td:first-child{text-align:left}
.small{color:#555;font-size:13px;overflow-wrap:anywhere}
svg{max-width:100%;height:auto}svg text{font:12px system-ui,sans-serif;fill:#333}
"""

"""What a notebook shows of policies, plans and reports: the facts that are in them, escaped."""

from __future__ import annotations

from html.parser import HTMLParser

import kvpolicy
from kvpolicy.notebook import MOST, table
from kvpolicy.simulate.simulate import Outcome
from kvpolicy.simulate.tally import Tally
from kvpolicy.simulate.trace import Facts


class Cells(HTMLParser):
    """The texts of all cells, and whether every tag was closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1] in ("td", "th"):
            self.cells[-1] += data


def test_a_policy_shows_its_rules() -> None:
    policy = kvpolicy.load("kvflow")
    cells = Cells(policy._repr_html_()).cells
    assert [rule.label for rule in policy.rules] == cells[5::5]
    assert "system, tools" in cells and any(cell.startswith("kvflow.kvp:") for cell in cells)


def test_a_plan_shows_its_directives() -> None:
    engine = kvpolicy.Engine("system { priority: 90  retention: pin }\n", blocks=8)
    asked = {"id": "<r>", "owner": {}, "tokens": 64, "spans": [{"kind": "system", "start": 0, "end": 32}]}
    text = engine.plan(asked, now=1.5)._repr_html_()
    assert "plan of &lt;r&gt; at 1.5 s" in text
    assert Cells(text).cells[8:13] == ["system", "0 to 32", "90", "pin", "never"]


def test_a_report_shows_each_policy_at_each_size() -> None:
    facts = Facts(label="<mine>")
    tallies = tuple(Tally(name, False, 100, 50, hits) for name, hits in (("lru", 10), ("mine", 20)))
    references = {("lru", 100): tallies[0], ("belady-resident", 100): Tally("belady-resident", True, 100, 50, 30)}
    text = Outcome(facts, tallies, references)._repr_html_()
    assert "simulation of &lt;mine&gt;" in text
    assert Cells(text).cells[5:] == ["lru", "100", "20.0%", "0", "0%", "mine", "100", "40.0%", "0", "50%"]


def test_long_tables_say_how_much_is_left_out() -> None:
    text = table("many", ("n",), [(number,) for number in range(MOST + 7)])
    assert len(Cells(text).cells) == MOST + 1 and "7 more rows" in text

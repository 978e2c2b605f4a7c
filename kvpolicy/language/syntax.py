"""The syntax tree of a `.kvp` text: one frozen class a construct, each with its place.

`parse` makes it from text, `load` gathers the files of one call, `check` and `policy.compile` read it. Nothing
here is resolved: names are as written, aliases (`hbm`) and units included.

One file, longer than the others: the tree is a single table that is read from top to bottom, and its classes name
each other.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kvpolicy.faults import Place
from kvpolicy.units import Quantity

# --- expressions ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Literal:
    """`12k`, `40%`, `90`; `text` is as written."""

    quantity: Quantity
    text: str
    place: Place = field(compare=False)


@dataclass(frozen=True, slots=True)
class Text:
    """`"a string"`."""

    value: str
    place: Place = field(compare=False)


@dataclass(frozen=True, slots=True)
class Name:
    """A dotted name that is no call: a `let`, a tier, a kind, `tool.duration`, `yes`, `never`."""

    path: tuple[str, ...]
    place: Place = field(compare=False)


@dataclass(frozen=True, slots=True)
class Call:
    """`p95(tool.duration)`, `reuse_probability(within 30s)` (then `within` is set and `arguments` is empty)."""

    function: str
    arguments: tuple[Expression, ...]
    within: Expression | None
    place: Place = field(compare=False)


@dataclass(frozen=True, slots=True)
class Unary:
    """`not x`, `-x`."""

    operator: str
    operand: Expression
    place: Place = field(compare=False)


@dataclass(frozen=True, slots=True)
class Binary:
    """`+ - * /`, `= != < <= > >=`, `and`, `or`, and `else` (the right side where the left has no data)."""

    operator: str
    left: Expression
    right: Expression
    place: Place = field(compare=False)


Expression = Literal | Text | Name | Call | Unary | Binary

# --- selectors and events -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Condition:
    """`agent = coder`, `tokens >= 8k`, `tool in {grep, ls}`. `values` has one member unless `operator` is `in`."""

    attribute: str
    operator: str  # = != < <= > >= in
    values: tuple[Expression, ...]  # Literal, Text or Name of one part
    place: Place = field(compare=False)


@dataclass(frozen=True, slots=True)
class Match:
    """`turn[agent = coder]`; a match without a kind is `any`."""

    kind: str
    conditions: tuple[Condition, ...]
    place: Place = field(compare=False)


@dataclass(frozen=True, slots=True)
class Event:
    """`tool_call[tool = grep]`."""

    name: str
    conditions: tuple[Condition, ...]
    place: Place = field(compare=False)


@dataclass(frozen=True, slots=True)
class Interval:
    """`on A until B at most 2h`; `until` and `at_most` may be absent."""

    start: Event
    until: Event | None
    at_most: Expression | None
    place: Place = field(compare=False)


# --- property values ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hold:
    """`hold 30s`, `hold until tool_result at most 10min`; exactly one of `duration` and `until` is set."""

    duration: Expression | None
    until: Event | None
    at_most: Expression | None
    place: Place = field(compare=False)


@dataclass(frozen=True, slots=True)
class Lasting:
    """The value of `ttl`: an expression, and whether `fixed` follows it."""

    duration: Expression
    fixed: bool
    place: Place = field(compare=False)


@dataclass(frozen=True, slots=True)
class Rung:
    """One step of a tier ladder: `cpu after 30s`; `after` is absent on the first."""

    tier: str
    after: Expression | None
    place: Place = field(compare=False)


@dataclass(frozen=True, slots=True)
class Ladder:
    """The value of `tier`."""

    rungs: tuple[Rung, ...]
    place: Place = field(compare=False)


PropertyValue = Expression | Hold | Lasting | Ladder  # `default`, `pin`, `drop`, words: a Name of one part


@dataclass(frozen=True, slots=True)
class Declaration:
    """`priority: 80`; in an `expect`, `by` may name a rule."""

    property: str
    value: PropertyValue
    by: tuple[str, ...] | None
    place: Place = field(compare=False)  # of the property's name


# --- statements -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rule:
    """`label: selector over other when guard { … }`. The enclosing `on` and `layer` are filled in by the parser."""

    label: str | None
    selector: tuple[Match, ...]
    over: tuple[tuple[str, ...], ...]
    guard: Expression | None
    declarations: tuple[Declaration, ...]
    interval: Interval | None
    layer: str | None  # None: outside any `layer` block
    place: Place = field(compare=False)
    over_places: tuple[Place, ...] = field(compare=False, default=())


@dataclass(frozen=True, slots=True)
class Bound:
    """`priority: at most 40`, `hold: at most 40% of gpu`, `priority: at least 10`."""

    property: str  # priority, hold, ttl, gpu, cpu, disk, replicas, …
    side: str  # "most" or "least"
    value: Expression
    of: str | None  # the tier of `% of gpu`
    place: Place = field(compare=False)


@dataclass(frozen=True, slots=True)
class Limit:
    """`limit any[plan = free] per tenant { … }`."""

    selector: tuple[Match, ...]
    per: str | None  # tenant, session
    bounds: tuple[Bound, ...]
    place: Place = field(compare=False)


@dataclass(frozen=True, slots=True)
class Header:
    """`policy continuum "what it is for"`."""

    name: str
    title: str | None
    place: Place = field(compare=False)


@dataclass(frozen=True, slots=True)
class Language:
    """`language 1`: the version of the language that a file is written in."""

    version: int
    place: Place = field(compare=False)


@dataclass(frozen=True, slots=True)
class Use:
    """`use continuum`, `use "limits.kvp" as limits`, `use P as n with patience = 5s`."""

    target: str
    is_file: bool
    alias: str | None
    settings: tuple[Let, ...]
    place: Place = field(compare=False)


@dataclass(frozen=True, slots=True)
class Layers:
    """`layers base, continuum, local`: earliest first, the last wins."""

    names: tuple[str, ...]
    places: tuple[Place, ...] = field(compare=False)
    place: Place = field(compare=False)


@dataclass(frozen=True, slots=True)
class Let:
    """`let patience = 20s`."""

    name: str
    value: Expression
    place: Place = field(compare=False)


@dataclass(frozen=True, slots=True)
class Edge:
    """`a -> b * n 30% at most 3`; `times`: the name or number after `*`, at `times_place`; `at_most`: how often it may
    be taken; `probability`: a literal without a unit or in per cent, of the kind and size that `check` asks for."""

    source: str
    target: str
    times: str | None
    at_most: int | None
    is_loop: bool
    place: Place = field(compare=False)
    probability: Literal | None = None
    times_place: Place | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Node:
    """`agent planner`, `tool grep`, `barrier judge`, `agent checker of writer`, `workflow lib.research as first`.

    `parent`: the node that calls it, a sub-agent. Where `role` is `workflow`, `path` is the workflow that the node
    stands for, as written, and `nested` that workflow itself, once `nesting` has looked it up. The places are those of
    `parent` and of `path`.
    """

    role: str
    name: str
    place: Place = field(compare=False)
    parent: str | None = None
    path: tuple[str, ...] = ()
    parent_place: Place | None = field(compare=False, default=None)
    path_place: Place | None = field(compare=False, default=None)
    # Shared by all who nest it, so it is neither compared nor shown: that would take as long as the graph laid flat.
    nested: Workflow | None = field(compare=False, repr=False, default=None)


@dataclass(frozen=True, slots=True)
class Workflow:
    """A `workflow` block."""

    name: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    place: Place = field(compare=False)


# --- tests ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Given:
    """`given turn[agent = coder, tokens = 12k]`."""

    span: Match
    place: Place = field(compare=False)


@dataclass(frozen=True, slots=True)
class Assume:
    """`assume p95(tool.duration) = 800ms for turn`; `value` may be the Name `nothing` or `never`."""

    call: Call
    value: Expression
    span: Match | None
    place: Place = field(compare=False)


@dataclass(frozen=True, slots=True)
class At:
    """`at tool_call[tool = grep]`."""

    event: Event
    place: Place = field(compare=False)


@dataclass(frozen=True, slots=True)
class Then:
    """`then 3min`: the clock moves."""

    duration: Expression
    place: Place = field(compare=False)


@dataclass(frozen=True, slots=True)
class Expect:
    """`expect turn { priority: 80 by quick_tool }`."""

    span: Match
    declarations: tuple[Declaration, ...]
    place: Place = field(compare=False)


TestStep = Given | Assume | At | Then | Expect


@dataclass(frozen=True, slots=True)
class Test:
    """`test "name" { … }`, its steps in the order written."""

    name: str
    steps: tuple[TestStep, ...]
    place: Place = field(compare=False)


# --- files ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class File:
    """One parsed text. `name` is as the author gave it; `text` is kept for messages; `digest` is its SHA-256;
    `language` is the version it is written in, 1 where it says none."""

    name: str
    text: str
    digest: str
    header: Header | None
    uses: tuple[Use, ...]
    layers: tuple[Layers, ...]
    layer_order: tuple[str, ...]  # `layer` blocks in order of first appearance
    lets: tuple[Let, ...]
    workflows: tuple[Workflow, ...]
    rules: tuple[Rule, ...]
    limits: tuple[Limit, ...]
    tests: tuple[Test, ...]
    language: int = 1


@dataclass(frozen=True, slots=True)
class Member:
    """A file within a set: `group` is the name its layers come in under ("" for the set's own files)."""

    file: File
    group: str
    settings: tuple[Let, ...]  # `with …`


@dataclass(frozen=True, slots=True)
class FileSet:
    """All files of one call, used ones first, each loaded once."""

    members: tuple[Member, ...]

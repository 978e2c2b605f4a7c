"""What a word means, in Markdown: words of the language from the tables, names from where they are given.

Rules have more to say (`hover_rule`). Takes a view and an offset; the server shows the answer.
"""

from __future__ import annotations

from kvpolicy import units, words
from kvpolicy.language import syntax
from kvpolicy.language.load import packaged_text
from kvpolicy.lsp import meanings, roles
from kvpolicy.lsp.hover_rule import about_rule
from kvpolicy.lsp.names import Target, targets
from kvpolicy.lsp.project import Part, View
from kvpolicy.lsp.roles import Occurrence

_LONGEST = 400  # letters of an author's own text that are shown


def hover(view: View, offset: int) -> tuple[str, Occurrence] | None:
    """The meaning of the word at an offset of the view's own file, and the word; None where nothing is known of it."""
    part = view.main
    one = part.reading.at(offset) if part is not None else None
    if part is None or one is None:
        return None
    text = _name(view, part, one) or word(one)
    return (text, one) if text else None


def word(one: Occurrence) -> str | None:
    """The meaning of a word of the language in its role."""
    name = one.name
    by_name = {
        roles.PROPERTY: _property, roles.EVENT: _event, roles.FUNCTION: _function, roles.TIER: _tier,
        roles.QUANTITY: quantity,
    }.get(one.role)  # fmt: skip
    if by_name is not None:
        return by_name(name)
    match one.role:
        case roles.STATEMENT if name in meanings.STATEMENTS:
            form, does = meanings.STATEMENTS[name]
            return f"`{form}`\n\n{does}"
        case roles.CLAUSE:
            return _said("", name, meanings.CLAUSES.get(name) or meanings.STATEMENTS.get(name, ("", ""))[1])
        case roles.KIND:
            return _said("span kind", name, words.SPAN_KINDS.get(name) or ("every kind" if name == "any" else ""))
        case roles.ATTRIBUTE:
            return _attribute(name, one.of == "event")
        case roles.SERIES:
            return _said("series", name, words.SERIES.get(name, ""))
        case roles.CONSTANT:
            of = f"value of `{one.of}`" if one.of in words.PROPERTIES else ""
            return _said(of, name, meanings.VALUES.get(name, ""))
        case roles.VALUE if (one.of == "status" and name in words.STATUSES) or name in ("yes", "no"):
            return _said("", name, meanings.VALUES[name])
    return None


def quantity(text: str) -> str | None:
    """A number with its unit, in the base unit."""
    try:
        found = units.parse_quantity(text)
    except units.UnitFault:
        return None
    what = meanings.UNITS[found.unit]
    amount = {
        units.DURATION: f"{found.value:,g} s",
        units.TOKENS: f"{found.value:,.10g} tokens",
        units.BYTES: f"{found.value:,.15g} bytes",
        units.PERCENT: f"{found.value:g} of the whole",
    }.get(found.unit)
    capped = found.unit == units.DURATION and found.value > words.LONGEST_DURATION_S
    return f"`{text}`: {what}" + (f", {amount}" if amount else "") + ("; it counts as 30 days" if capped else "")


def _said(what: str, name: str, meaning: str) -> str | None:
    return f"`{name}`{f' ({what})' if what else ''}: {meaning}" if meaning else None


def _attribute(name: str, of_event: bool) -> str | None:
    kind = words.EVENT_ATTRIBUTES.get(name) if of_event else words.ATTRIBUTES.get(name)
    if kind is None:
        return None
    where = "of an event" if of_event else "known when the request arrives"
    if name in words.STATE_ATTRIBUTES:
        where = "events change it"
    trust = "; what the service authenticated" if name in words.TRUSTED_ATTRIBUTES else ""
    return f"`{name}` (attribute): {meanings.TYPES[kind]}; {where}{trust}"


def _property(name: str) -> str | None:
    meaning = words.PROPERTIES.get(name) or ("how much may be protected, or for how long" if name == "hold" else None)
    return f"`{name}` (property): {meaning}\n\n{meanings.PROPERTY_VALUES[name]}" if meaning else None


def _event(name: str) -> str | None:
    meant = words.EVENT_ALIASES.get(name, name)
    if meant not in words.EVENTS:
        return None
    phase = words.PHASE_AFTER.get(meant)
    leads = f"\n\nThe owner's phase is `{phase}` then: {meanings_of_phase(phase)}" if phase else ""
    other = f" (written `{meant}`)" if meant != name else ""
    return f"`{name}` (event){other}: {words.EVENTS[meant]}{leads}"


def meanings_of_phase(phase: str) -> str:
    """A phase in words."""
    said = meanings.VALUES.get(phase, "")
    return "a request of it runs" if phase == "running" else said.partition(": ")[2]


def signature(name: str) -> str:
    """A function as it is written, with its type: `p95(SERIES): duration?`."""
    takes, gives, maybe = words.FUNCTIONS[name]
    spoken = {"within?": "[within DURATION]", "within": "within DURATION", "like": "VALUE", "...": "…"}
    return f"{name}({', '.join(spoken.get(one, one.upper()) for one in takes)}): {gives}{'?' if maybe else ''}"


def _function(name: str) -> str | None:
    if name not in words.FUNCTIONS:
        return None
    maybe = words.FUNCTIONS[name][2]
    note = "\n\nThere may be no data yet: write `else` and what counts until then." if maybe else ""
    return f"`{signature(name)}`\n\n{words.FUNCTION_MEANINGS[name]}{note}"


def _tier(name: str) -> str | None:
    tier = words.TIER_ALIASES.get(name, name)
    if tier not in words.TIERS:
        return None
    other = f" (written `{tier}`)" if tier != name else ""
    return f"`{name}` (tier){other}: {meanings.VALUES[tier]}; highest first: {', '.join(words.TIERS)}"


# --- names ------------------------------------------------------------------------------------------------


def _name(view: View, part: Part, one: Occurrence) -> str | None:
    if one.role not in roles.NAMES and one.role != roles.VALUE:
        return None
    found = targets(view, part, one)
    if one.role == roles.LET and found:
        return _let(found[0])
    if one.role == roles.RULE and found:
        return about_rule(view, found[0])
    if found and found[0].one is None:
        return _file(found[0].part)
    if found and found[0].one is not None and found[0].one.role == roles.LAYER:
        rules = [r for p in view.parts if p.group == part.group for r in p.file.rules if r.layer == one.name]
        return f"`{one.name}` (layer): {_count(len(rules))}"
    if one.role in {roles.WORKFLOW, roles.NODE} or (one.role == roles.VALUE and found):
        return _of_workflow(view, one, found)
    if one.role == roles.USED and one.of == "packaged" and packaged_text(one.name) is not None:
        return f"`{one.name}`: a packaged policy"
    return None


def _let(target: Target) -> str:
    let = next((let for let in target.part.file.lets if target.part.lines.of_place(let.place)[0] == target.start), None)
    if let is None:
        return f"`{target.part.file.text[target.start : target.end]}` (a named value)"
    text = target.part.file.text[target.start : (target.one.whole if target.one else 0) or target.end]
    meant = quantity(getattr(let.value, "text", ""))
    return f"```kvp\nlet {text[:_LONGEST]}\n```" + (f"\n\n{meant}" if meant else "") + f"\n\n{target.part.file.name}"


def _file(part: Part) -> str:
    header = part.file.header
    title = f": {header.title[:_LONGEST]}" if header is not None and header.title else ""
    kind = "a packaged policy" if part.packaged else "a file"
    return f"`{part.file.name}` ({kind}, {_count(len(part.file.rules))}){title}"


def _count(rules: int) -> str:
    return "1 rule" if rules == 1 else f"{rules:,} rules"


def _of_workflow(view: View, one: Occurrence, found: list[Target]) -> str | None:
    given = found[0].one if found else None
    if given is None:
        return None
    if given.role == roles.WORKFLOW:
        return f"`{one.name}`: a workflow"
    for workflow in (w for p in view.parts for w in p.file.workflows if w.name == given.of):
        return _of_node(workflow, one.name)
    return None


def _of_node(workflow: syntax.Workflow, name: str) -> str:
    """What a node is, and what it runs after."""
    node = next((n for n in workflow.nodes if n.name == name), None)
    role = node.role if node else "node"
    article = "an" if role == "agent" else "a"
    stands = f", which stands for the workflow `{'.'.join(node.path)}`" if node and node.path else ""
    role = "node" if stands else role
    before = {e.source: _shown(e) for e in workflow.edges if e.target == name}
    after = {e.target: _shown(e) for e in workflow.edges if e.source == name}
    calls = [n.name for n in workflow.nodes if n.parent == name]
    lines = [f"`{name}`: {article} {role} of the workflow `{workflow.name}`{stands}"]
    lines += [f"is called by `{node.parent}` while that runs"] if node and node.parent else []
    lines += [f"runs after {', '.join(f'`{other}`{share}' for other, share in before.items())}"] if before else []
    lines += [f"is followed by {', '.join(f'`{other}`{share}' for other, share in after.items())}"] if after else []
    lines += [f"calls {', '.join(f'`{other}`' for other in calls)}"] if calls else []
    return "\n\n".join(lines)


def _shown(edge: syntax.Edge) -> str:
    return f" ({edge.probability.text})" if edge.probability is not None else ""

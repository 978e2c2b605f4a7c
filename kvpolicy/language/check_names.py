"""Names: defined once, and known where they are used. Passes of `check` over files, layers and `over`."""

from __future__ import annotations

from collections.abc import Iterable

from kvpolicy.faults import Diagnostic, Note, Place
from kvpolicy.language import codes, syntax
from kvpolicy.language.load import group_name
from kvpolicy.language.scope import Scope
from kvpolicy.language.spelling import is_worth_it, nearest
from kvpolicy.language.synonyms import synonym
from kvpolicy.language.typer import Typer
from kvpolicy.language.types import EXAMPLES, INT, spoken, unit_missing


def unknown(
    what: str, written: str, place: Place, known: Iterable[str], otherwise: str | None = None, *, told: int = 0
) -> Diagnostic:
    """A word that does not exist, with the nearest that does. told: see `is_worth_it`."""
    table = tuple(known)
    meant = synonym(what, written)
    near = meant if meant in table else nearest(written, table) if is_worth_it(told, len(table)) else None
    fix = f"did you mean `{near}`?" if near else otherwise
    if fix is None and table:
        fix = f"it can be {', '.join(table[:24])}"
    return codes.UNKNOWN_NAME.at(place, f"there is no {what} '{written}'", fix=fix)


def check_definitions(files: syntax.FileSet, typer: Typer) -> None:
    """A name is defined once in its group: `let`, rule label, workflow; a property once in a rule."""
    first: dict[tuple[str, str, str], Place] = {}
    for member in files.members:
        for what, name, place in _defined(member.file):
            key = (what, member.group, name)
            if key in first and first[key] != place:
                note = Note(first[key], f"'{name}' is defined here already")
                message = f"the {what} '{name}' is defined twice, first at {first[key]}"
                fix = "give one of the two another name"
                typer.faults.append(codes.DEFINED_TWICE.at(place, message, notes=(note,), fix=fix))
            first.setdefault(key, place)


def _defined(file: syntax.File) -> Iterable[tuple[str, str, Place]]:
    for let in file.lets:
        yield "let", let.name, let.place
    for rule in file.rules:
        if rule.label is not None:
            yield "rule", rule.label, rule.place
    for workflow in file.workflows:
        yield "workflow", workflow.name, workflow.place


def twice_in(declarations: Iterable[syntax.Declaration], faults: list[Diagnostic]) -> None:
    """A property is set once in one rule."""
    first: dict[str, Place] = {}
    for declaration in declarations:
        name, place = declaration.property, declaration.place
        if name in first:
            note = Note(first[name], "set here already")
            message = f"'{name}' is set twice in one rule"
            faults.append(codes.DEFINED_TWICE.at(place, message, notes=(note,), fix="remove one of the two"))
        first.setdefault(name, place)


def check_uses(files: syntax.FileSet, typer: Typer) -> None:
    """`with` sets a `let` of the used policy; two used policies do not come in under one name."""
    scope = typer.scope
    for member in files.members:
        groups: dict[str, syntax.Use] = {}
        for use in member.file.uses:
            used = _used(use, files)
            if used is None:
                continue
            group = used.group
            if group in groups and group:
                note = Note(groups[group].place, "used here")
                message = f"two used policies are called '{group}'"
                fix = "give one another name: `use … as NAME`"
                typer.faults.append(codes.DEFINED_TWICE.at(use.place, message, notes=(note,), fix=fix))
            groups.setdefault(group, use)
            for setting in use.settings:
                _setting(setting, used, member.group, typer, scope)


def _setting(setting: syntax.Let, used: syntax.Member, group: str, typer: Typer, scope: Scope) -> None:
    found = typer.infer(setting.value, group)
    key = (used.group, setting.name)
    if key not in scope.lets:
        lets = [let.name for let in used.file.lets]
        what = f"let in '{used.file.name}' called"
        typer.faults.append(
            unknown(what, setting.name, setting.place, lets, "it has no `let` at all", told=len(typer.faults))
        )
        return
    wanted = typer.let(key)
    if "?" not in (found.kind, wanted.kind) and found.kind != wanted.kind:
        message = f"'{setting.name}' is {spoken(wanted.kind)} there, and this is {spoken(found.kind)}"
        fix = None
        if isinstance(setting.value, syntax.Literal) and found.kind == INT and wanted.kind in EXAMPLES:
            fix = unit_missing(setting.value, wanted.kind).fix
        typer.faults.append(codes.UNIT_MISMATCH.at(setting.value.place, message, fix=fix))


def _used(use: syntax.Use, files: syntax.FileSet) -> syntax.Member | None:
    """The member that a `use` brought in."""
    ending = use.target if use.target.endswith(".kvp") else use.target + ".kvp"
    for member in files.members:
        if member.group and member.group == group_name(use, member.file) and member.file.name.endswith(ending):
            return member
    return None


def check_layers(files: syntax.FileSet, typer: Typer) -> None:
    """`layers` names layers and groups that exist, each once."""
    scope = typer.scope
    for member in files.members:
        known = [name for group, name in scope.layers if group == member.group] + list(scope.groups)
        known += [name.removeprefix(f"{member.group}.") for name in scope.groups if member.group]
        for statement in member.file.layers:
            seen: dict[str, Place] = {}
            for name, place in zip(statement.names, statement.places, strict=True):
                if name in seen:
                    note = Note(seen[name], "listed here already")
                    message = f"layer '{name}' is listed twice"
                    typer.faults.append(
                        codes.DEFINED_TWICE.at(place, message, notes=(note,), fix="remove one of the two")
                    )
                elif name not in known and name not in scope.lost:
                    typer.faults.append(unknown("layer or used policy", name, place, known, told=len(typer.faults)))
                seen.setdefault(name, place)
        for extra in member.file.layers[1:]:
            note = Note(member.file.layers[0].place, "the first")
            message = "the order of layers is stated twice in one file"
            typer.faults.append(
                codes.DEFINED_TWICE.at(extra.place, message, notes=(note,), fix="keep one `layers` line")
            )


def check_over(files: syntax.FileSet, typer: Typer) -> None:
    """`over` names a rule."""
    for member in files.members:
        for rule in member.file.rules:
            for path, place in zip(rule.over, rule.over_places, strict=True):
                if typer.scope.find_rule(path, member.group) is rule:
                    message = "a rule cannot stand over itself"
                    typer.faults.append(codes.UNKNOWN_NAME.at(place, message, fix="name another rule"))
                elif not rule_known(path, member.group, typer.scope):
                    label = "no rule has a label here; give the one that is meant one: `NAME: turn { … }`"
                    known = typer.scope.rule_names(member.group)
                    typer.faults.append(
                        unknown("rule", ".".join(path), place, known, None if known else label, told=len(typer.faults))
                    )


def rule_known(path: tuple[str, ...], group: str, scope: Scope) -> bool:
    """Whether a path names a rule, or may have named one in text that was passed over."""
    return scope.find_rule(path, group) is not None or path[-1] in scope.lost

"""`kvpolicy.load` and `kvpolicy.check`: a policy from a file, a packaged name or a text, and what is said of it."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from kvpolicy.faults import ERROR, Diagnostic
from kvpolicy.language.load import load as load_files
from kvpolicy.language.load import load_text
from kvpolicy.policy.checked import Checked, examined
from kvpolicy.policy.policy import Policy

Source = str | PathLike[str]


def load(source: Source) -> Policy:
    """The policy of a file, of a packaged name (`"continuum"`), or of a text (one with a brace or a line break in it).

    Raises PolicyFault, which carries the diagnostics, where the policy has errors; InputFault where there is no such
    file or name.
    """
    return _examined(source).policy()


def check(source: Source) -> tuple[Diagnostic, ...]:
    """Everything that `kvp check` says of a policy, errors and warnings, by place. `source` as for `load`."""
    return with_graphs(_examined(source))


def with_graphs(checked: Checked) -> tuple[Diagnostic, ...]:
    """The diagnostics of a set, with those of its workflows that no graph can be made of, where nothing else is wrong
    with it."""
    if not any(member.file.workflows for member in checked.files.members):
        return checked.diagnostics
    if any(fault.severity == ERROR for fault in checked.diagnostics):
        return checked.diagnostics
    from kvpolicy.language.nesting import nest
    from kvpolicy.workflow.graph_large import too_large

    more = too_large(nest(checked.files).workflows)
    return tuple(sorted((*checked.diagnostics, *more), key=lambda fault: (fault.place, fault.code)))


def _examined(source: Source) -> Checked:
    if isinstance(source, str) and any(sign in source for sign in "{}\n"):
        return examined(load_text(source))
    return examined(load_files([Path(source) if isinstance(source, PathLike) else source]))

"""A set of files with everything that can be said of it before it runs, and the policy it compiles to.

Takes what `language.load` gathered; runs the checks of words and types, then those of rules. `kvp check` lists the
diagnostics, everything else takes the policy. One way through for all callers, so that none skips a check.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kvpolicy.faults import ERROR, Diagnostic, PolicyFault
from kvpolicy.language.check import examine, faulty
from kvpolicy.language.load import LoadResult, load
from kvpolicy.language.syntax import FileSet
from kvpolicy.policy.analysis import analyse
from kvpolicy.policy.compile import compile as compile_files
from kvpolicy.policy.policy import Policy


@dataclass(frozen=True, slots=True)
class Checked:
    """`files` is what could be read, faults or not; `diagnostics` are sorted by place."""

    files: FileSet
    diagnostics: tuple[Diagnostic, ...]

    def texts(self) -> dict[str, str]:
        """Each file's text by the name it has in places."""
        return {member.file.name: member.file.text for member in self.files.members}

    def policy(self) -> Policy:
        """Compiled. Raises PolicyFault, with the errors alone, where there are any."""
        errors = tuple(d for d in self.diagnostics if d.severity == ERROR)
        if errors:
            raise PolicyFault(errors)
        return compile_files(self.files)


def examined(loaded: LoadResult) -> Checked:
    """Run every check. Rules are looked at only where words and types are right: one fault, one message."""
    found = examine(loaded)
    if not faulty(found):
        found = tuple(sorted((*found, *analyse(loaded.partial)), key=lambda d: (d.place, d.code)))
    return Checked(loaded.partial, found)


def open_policy(targets: Sequence[str | Path]) -> Policy:
    """Files, or packaged policies by name, as one policy. Raises PolicyFault for a policy with errors, InputFault for
    a file that cannot be read."""
    return examined(load(targets)).policy()

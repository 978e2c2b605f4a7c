"""What is wrong with the rules of a policy whose words are right: the codes KVP201 to KVP214, and nodes that
no way leads to.

Takes a file set that `language.check` has passed, compiles it, and asks one question after the other; the questions
are functions in a visible tuple. INVARIANT: a policy that passes never meets two different unbeaten values.
"""

from __future__ import annotations

from collections.abc import Callable

from kvpolicy.faults import Diagnostic, PolicyFault
from kvpolicy.language.collector import stopped
from kvpolicy.language.syntax import FileSet
from kvpolicy.policy.analysis.bounds import holds_beyond_bounds, limits_crossed, more_than_fits
from kvpolicy.policy.analysis.disagree import disagreements
from kvpolicy.policy.analysis.loops import loops_without_exit
from kvpolicy.policy.analysis.precedence import never_deciding, precedence_cycles
from kvpolicy.policy.analysis.ranks import drops_that_take_more, lifetimes_of_nothing, stranded_tokens, this_is_lru
from kvpolicy.policy.analysis.reach import events_that_cannot_follow, matches_nothing
from kvpolicy.policy.analysis.unreachable import unreachable_nodes
from kvpolicy.policy.analysis.view import View, view_of
from kvpolicy.policy.compile import compile

_MANY = 500  # rules from which the collector is stopped
Question = Callable[[View], list[Diagnostic]]

QUESTIONS: tuple[Question, ...] = (
    disagreements,  # 201, 207
    never_deciding,  # 202
    matches_nothing,  # 203
    events_that_cannot_follow,  # 203, 204
    holds_beyond_bounds,  # 205
    limits_crossed,  # 208
    more_than_fits,  # 209
    lifetimes_of_nothing,  # 210
    this_is_lru,  # 211
    stranded_tokens,  # 212
    drops_that_take_more,  # 213
    loops_without_exit,  # 214
    unreachable_nodes,  # UNREACHABLE_NODE
)


def analyse(files: FileSet) -> tuple[Diagnostic, ...]:
    """Every fault of the rules, by place. Where precedence runs in a circle nothing else is asked, for no other
    answer would hold."""
    with stopped(where=sum(len(member.file.rules) for member in files.members) > _MANY):
        try:
            policy = compile(files)
        except PolicyFault as fault:
            return fault.diagnostics
        view = view_of(policy)
        found = precedence_cycles(view)
        if not found:
            for question in QUESTIONS:
                found += question(view)
    return tuple(sorted(found, key=lambda fault: (fault.place, fault.code)))

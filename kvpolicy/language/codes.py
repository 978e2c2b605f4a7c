"""Every code that `kvp check` can answer, in one closed table: the word checks (KVP1xx), the rule checks (KVP2xx) and
what an engine cannot honour (KVP3xx).

`language.check`, `policy.analysis` and `engine_check` make their diagnostics from it, `docs/codes/` has one page for
each.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvpolicy.faults import ERROR, NOTICE, WARNING, Diagnostic, Note, Place


@dataclass(frozen=True, slots=True)
class Code:
    """A code, the name that scripts use, how bad it is, and what it says in one line."""

    code: str
    name: str
    severity: str
    line: str

    def at(
        self,
        place: Place,
        message: str,
        *,
        notes: tuple[Note, ...] = (),
        fix: str | None = None,
        witness: dict[str, object] | None = None,
    ) -> Diagnostic:
        """A diagnostic of this code."""
        return Diagnostic(self.code, self.name, self.severity, place, message, notes, witness, fix)


SYNTAX = Code("KVP100", "syntax", ERROR, "The text is not shaped as the language is")
UNKNOWN_NAME = Code("KVP101", "unknown-name", ERROR, "A word that does not exist here")
UNIT_MISMATCH = Code("KVP102", "unit-mismatch", ERROR, "A value of another type or unit than its place asks for")
UNIT_MISSING = Code("KVP103", "unit-missing", ERROR, "A bare number where a unit is needed")
MISSING_ELSE = Code("KVP104", "missing-else", ERROR, "A value that may have no data yet is used without `else`")
OUT_OF_RANGE = Code("KVP105", "out-of-range", ERROR, "A literal outside what its place allows")
RESERVED_WORD = Code("KVP106", "reserved-word", ERROR, "A word of the language used as a name")
DEFINED_TWICE = Code("KVP107", "name-defined-twice", ERROR, "One name, two definitions")
CAPPED = Code("KVP108", "duration-capped", NOTICE, "A duration longer than 30 days counts as 30 days")
UNUSABLE = Code("KVP109", "unusable-file", ERROR, "A file that is no policy: empty, binary, too large, not UTF-8")
USE_CYCLE = Code("KVP110", "use-cycle", ERROR, "Files that use each other in a circle")
UNKNOWN_LANGUAGE = Code(
    "KVP111", "unknown-language", ERROR, "A version of the language that this program does not know"
)
WITHIN_ITSELF = Code("KVP112", "within-itself", ERROR, "A workflow that stands within itself")

TWO_RULES_DISAGREE = Code("KVP201", "two-rules-disagree", ERROR, "Two rules set one property and neither wins")
NEVER_DECIDES = Code("KVP202", "never-decides", WARNING, "A rule that is always beaten")
MATCHES_NOTHING = Code("KVP203", "matches-nothing", ERROR, "A rule or limit that no span can match")
HOLD_UNTIL_NEVER = Code("KVP204", "hold-until-never", ERROR, "A hold until an event that cannot follow")
HOLD_BEYOND_BOUND = Code("KVP205", "hold-beyond-bound", WARNING, "A hold longer than its interval's bound")
PRECEDENCE_CYCLE = Code("KVP206", "precedence-cycle", ERROR, "Rules that beat each other in a circle")
GROUP_ORDER_UNKNOWN = Code("KVP207", "group-order-unknown", ERROR, "Two used policies overlap and have no order")
LIMITS_CROSSED = Code("KVP208", "limits-crossed", ERROR, "An `at least` above an `at most`")
MORE_THAN_FITS = Code("KVP209", "more-than-fits", WARNING, "More is protected than the quota can hold")
LIFETIME_OF_NOTHING = Code("KVP210", "lifetime-of-nothing", WARNING, "A ttl on a rank that is not above the default")
THIS_IS_LRU = Code("KVP211", "this-is-lru", WARNING, "Every span gets the same rank and lifetime")
STRANDED_TOKENS = Code("KVP212", "stranded-tokens", WARNING, "A low rank in front of a higher one has no effect")
DROP_TAKES_MORE = Code("KVP213", "drop-takes-more", WARNING, "A drop takes what stands behind it along")
LOOP_WITHOUT_EXIT = Code("KVP214", "loop-without-exit", ERROR, "A workflow can run round for ever")

ENGINE_TAKES_NOTHING = Code("KVP301", "engine-takes-nothing", WARNING, "Nothing of the policy reaches the engine")
NO_RANK_BELOW_DEFAULT = Code("KVP302", "no-rank-below-default", WARNING, "A low rank or drop that the engine lacks")
RANK_CLIPPED = Code("KVP303", "rank-clipped", WARNING, "A rank that the engine's scale brings to another")
NO_LIFETIMES = Code("KVP304", "no-lifetimes", WARNING, "A ttl for an engine that takes none")
LIFETIME_ROUNDED = Code("KVP305", "lifetime-rounded", NOTICE, "A ttl that is no whole number of the engine's unit")
STEPS_MERGED = Code("KVP306", "steps-merged", WARNING, "A hold and a rank of which the engine can keep only one")
RANK_FIXED = Code("KVP307", "rank-fixed", WARNING, "A rank that changes after the engine has stored the blocks")
NO_SUCH_TIER = Code("KVP308", "no-such-tier", WARNING, "A tier that the engine does not have")
NO_PREFETCH = Code("KVP309", "no-prefetch", WARNING, "A prefetch for an engine that cannot bring blocks up")
ONE_RANK_A_REQUEST = Code("KVP310", "one-rank-a-request", WARNING, "Several ranks where the engine takes one a request")
LIMIT_NOT_KEPT = Code("KVP311", "limit-not-kept", WARNING, "A bound on memory that the engine is not told of")

CODES: dict[str, Code] = {
    row.code: row
    for row in (
        SYNTAX, UNKNOWN_NAME, UNIT_MISMATCH, UNIT_MISSING, MISSING_ELSE, OUT_OF_RANGE, RESERVED_WORD, DEFINED_TWICE,
        CAPPED, UNUSABLE, USE_CYCLE, UNKNOWN_LANGUAGE, WITHIN_ITSELF, TWO_RULES_DISAGREE, NEVER_DECIDES,
        MATCHES_NOTHING, HOLD_UNTIL_NEVER, HOLD_BEYOND_BOUND, PRECEDENCE_CYCLE, GROUP_ORDER_UNKNOWN, LIMITS_CROSSED,
        MORE_THAN_FITS, LIFETIME_OF_NOTHING, THIS_IS_LRU, STRANDED_TOKENS, DROP_TAKES_MORE, LOOP_WITHOUT_EXIT,
        ENGINE_TAKES_NOTHING, NO_RANK_BELOW_DEFAULT, RANK_CLIPPED, NO_LIFETIMES, LIFETIME_ROUNDED, STEPS_MERGED,
        RANK_FIXED, NO_SUCH_TIER, NO_PREFETCH, ONE_RANK_A_REQUEST, LIMIT_NOT_KEPT,
    )
}  # fmt: skip

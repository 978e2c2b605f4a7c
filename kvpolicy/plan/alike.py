"""Which spans of one request are sure to get the same verdicts, so that the policy is asked once for all of them.

Rules see a span by its kind and a few attributes (a policy's `menu`), and the state by functions. Where all functions
that a menu reads are about the owner, spans with one menu differ in nothing that a rule could see.
"""

from __future__ import annotations

from kvpolicy.policy.resolve import Menu


def is_of_the_owner(menu: Menu) -> bool:
    """Whether everything that the rules and limits of a menu read is the same for all its spans."""
    return menu.of_the_owner

"""From a policy's verdicts to directives: one per touched span, with clocks applied.

`plan` is called for every request, so it works on spans and never on blocks; block and span rows are made on demand
(`rows`), for `kvp plan` and for adapters.
"""

from __future__ import annotations

from kvpolicy.plan.drops import Stand, stands
from kvpolicy.plan.make import Resolver, outline, plan, say
from kvpolicy.plan.outline import Outline
from kvpolicy.plan.said import Said

__all__ = ["Outline", "Resolver", "Said", "Stand", "outline", "plan", "say", "stands"]

"""From a policy's verdicts to directives: one per touched span, with clocks applied.

`plan` is called for every request, so it works on spans and never on blocks; block and span rows are made on demand
(`rows`), for `kvp plan` and for adapters.
"""

from __future__ import annotations

from kvpolicy.plan.drops import Stand, stands
from kvpolicy.plan.make import Resolver, outline, plan
from kvpolicy.plan.outline import Outline

__all__ = ["Outline", "Resolver", "Stand", "outline", "plan", "stands"]

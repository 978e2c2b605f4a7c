"""What a policy in force says that some engine is never told: it changes plans between requests, without a channel.

Asked by `assembly` for each policy that comes into force, at the start and later; said once in the log of the operator.
A plan that is known when its request goes out is written into the request, so this is about what comes after it: events
(`on …`), conditions and values that are read again, and plans of prompts whose places were not known yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kvpolicy.policy.policy import Policy
from kvpolicy.service.config import Config

_SHOWN = 3  # rules named in a sentence
MEND = "--channel ADDRESS, or channel in [[upstream]]"


def changing(policy: Policy) -> tuple[str, ...]:
    """The rules whose say may change after a request has gone out, by name: those between events first, and the
    policy's own before those of policies that it uses."""
    rules = policy.rules[::-1]
    between = [rule.name for rule in rules if rule.interval is not None]
    read = [
        rule.name
        for rule in rules
        if rule.interval is None and (rule.guard is not None or not all(v.fixed for v in rule.values.values()))
    ]
    return (*between, *read)


def without_channel(config: Config) -> tuple[str, ...]:
    """Engines without a control channel, where plans are acted on at all."""
    modes = {config.policy.mode, *(section.mode for section in config.tenant if section.mode is not None)}
    if "enforce" not in modes:
        return ()
    return tuple(each.url for each in config.upstream if each.channel is None)


def unheard(policy: Policy, urls: Iterable[str]) -> str | None:
    """What the operator should know of a policy before engines at these addresses, None where there is nothing."""
    rules, engines = changing(policy), tuple(urls)
    if not rules or not engines:
        return None
    named = ", ".join(rules[:_SHOWN]) + (f" and {len(rules) - _SHOWN} more" if len(rules) > _SHOWN else "")
    return (
        f"policy {policy.name}: what rules decide between requests is not carried out at {', '.join(engines)} "
        f"({named}): there is no control channel to tell it by; give one: {MEND}"
    )


def watching(config: Config, say: Callable[[str], object]) -> Callable[[Policy], None]:
    """Told of every policy that comes into force; says each sentence once."""
    urls, said = without_channel(config), set[str]()

    def came(policy: Policy) -> None:
        told = unheard(policy, urls)
        if told is not None and told not in said:
            said.add(told)
            say(told)

    return came

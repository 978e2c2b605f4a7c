"""How much one tenant may ask at once and in a minute: counted at the edge, answered with 429 and when to come again.

`proxy` and `own_routes` each have one, and admit every request by it. A bucket holds a
minute's requests and fills evenly, so that a pause saves up one minute and no more. Of several replicas each grants its
even share of a cap, so that no request waits for another's count; a tenant whose requests all reach one of them gets
that share.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil

from kvpolicy.service.config import Caps
from kvpolicy.service.edge import CLOSE, Refusal, has_body
from kvpolicy.service.tenants import Tenant, Tenants

MOST_TENANTS = 10_000
_MINUTE = 60.0


@dataclass(slots=True)
class _Account:
    """running: requests on their way. left: requests that may come now; at: when that was reckoned, seconds."""

    running: int
    left: float
    at: float


class Admission:
    """clock: seconds. replicas: how many gateways share the load now; this one alone, unless the store knows more."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.replicas: Callable[[], int] = lambda: 1
        self._accounts: OrderedDict[str, _Account] = OrderedDict()

    @contextmanager
    def admit(
        self, tenants: Tenants, headers: Mapping[str, str], check: Callable[[], object] = lambda: None
    ) -> Iterator[Tenant]:
        """The tenant of a request while that is answered. check: raises Refusal for what nobody may ask. Raises Refusal
        for that, for nobody's, and for one too many; the connection ends with it where a body would follow."""
        try:
            check()
            tenant = _known(tenants, headers)
            self.enter(tenant)
        except Refusal as refusal:
            if has_body(headers):
                refusal.headers |= CLOSE
            raise
        try:
            yield tenant
        finally:
            self.leave(tenant)

    def enter(self, tenant: Tenant) -> None:
        """A request of the tenant begins. Raises Refusal where it asks too much; then there is nothing to leave."""
        now, caps = self._clock(), tenant.caps
        account = self._account(tenant, now)
        among = 1 if caps.concurrent is None and caps.requests_per_minute is None else max(1, self.replicas())
        if caps.concurrent is not None and account.running >= ceil(caps.concurrent / among):
            raise _slower(f"{caps.concurrent} requests at once are allowed{_here(among)}", 1)
        _take(account, caps, among, now)
        account.running += 1

    def another(self, tenants: Tenants, headers: Mapping[str, str]) -> Tenant:
        """One that was let in asks again on its way: whose it is by now, for keys and caps may have changed. Raises
        Refusal where it is nobody's, and where that is one too many; it is still in."""
        now, tenant = self._clock(), _known(tenants, headers)
        among = 1 if tenant.caps.requests_per_minute is None else max(1, self.replicas())
        _take(self._account(tenant, now), tenant.caps, among, now)
        return tenant

    def leave(self, tenant: Tenant) -> None:
        """One that was let in has ended."""
        account = self._accounts.get(tenant.name)
        if account is not None:
            account.running -= 1

    def _account(self, tenant: Tenant, now: float) -> _Account:
        account = self._accounts.get(tenant.name)
        if account is None:
            account = self._accounts[tenant.name] = _Account(0, float(tenant.caps.requests_per_minute or 0), now)
            self._forget()
        self._accounts.move_to_end(tenant.name)
        return account

    def _forget(self) -> None:
        """Tenants named by tokens are not bounded: the longest silent ones go, unless something of theirs runs."""
        for name in list(self._accounts):
            if len(self._accounts) <= MOST_TENANTS:
                return
            if not self._accounts[name].running:
                del self._accounts[name]


def _known(tenants: Tenants, headers: Mapping[str, str]) -> Tenant:
    """Whose a request is. Raises Refusal for nobody's."""
    tenant = tenants.of(headers)
    if tenant is None:
        raise Refusal(401, "authentication_error", "a known API key is needed", {"www-authenticate": "Bearer"})
    return tenant


def _take(account: _Account, caps: Caps, among: int, now: float) -> None:
    """One of a minute's requests. Raises Refusal where none is left."""
    if caps.requests_per_minute is None:
        return
    pace = caps.requests_per_minute / among
    account.left = min(account.left + (now - account.at) * pace / _MINUTE, max(pace, 1.0))
    account.at = now
    if account.left < 1:
        raise _slower(
            f"{caps.requests_per_minute} requests in a minute are allowed{_here(among)}",
            ceil((1 - account.left) * _MINUTE / pace),
        )
    account.left -= 1


def _here(among: int) -> str:
    return "" if among == 1 else f", at this one of {among} gateways its share"


def _slower(message: str, seconds: int) -> Refusal:
    return Refusal(429, "rate_limit_error", message, {"retry-after": str(max(seconds, 1))})

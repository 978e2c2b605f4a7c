"""The HTTP questions of the doctor: what a vLLM server tells about itself, and small completions.

Asks a running server; every fault becomes an InputFault that names the URL.
"""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any

from kvpolicy.faults import InputFault

TIMEOUT_S = 60.0


class Server:
    """One server, by its URL without a path."""

    def __init__(self, url: str) -> None:
        if not url.startswith(("http://", "https://")):
            raise InputFault(f"{url}: an address such as http://127.0.0.1:8000 is needed")
        self.url = url.removesuffix("/v1")

    def version(self) -> str:
        """vLLM's version. Raises InputFault where no vLLM answers."""
        try:
            row = self._json("/version")
        except _Status as fault:
            raise InputFault(f"{self.url}: no vLLM: GET /version answers {fault}") from None
        version = row.get("version") if isinstance(row, dict) else None
        if not isinstance(version, str):
            raise InputFault(f"{self.url}: no vLLM: GET /version tells no version")
        return version

    def model(self) -> str:
        """The first model that it serves."""
        row = self._asked("/v1/models")
        models = row.get("data") if isinstance(row, dict) else None
        if not isinstance(models, list) or not models or not isinstance(models[0], dict):
            raise InputFault(f"{self.url}: /v1/models names no model")
        return str(models[0].get("id"))

    def settings(self) -> dict[str, str]:
        """Its cache's settings as the metrics tell them; empty where they do not."""
        try:
            text = self._get("/metrics").decode(errors="replace")
        except _Status:
            return {}
        line = re.search(r"^vllm:cache_config_info\{(.*)\}", text, re.MULTILINE)
        return dict(re.findall(r'(\w+)="([^"]*)"', line.group(1))) if line else {}

    def event_sources(self) -> dict[str, Any] | None:
        """The settings of its KV events by data-parallel rank; None where it does not tell."""
        try:
            row = self._json("/kv_event_sources")
        except _Status:
            return None
        return row if isinstance(row, dict) else None

    def counts_cached(self, model: str) -> bool:
        """Whether it tells cached tokens."""
        usage = self._completion(model, [7, 8, 9], {}).get("usage")
        return isinstance(usage, dict) and isinstance(usage.get("prompt_tokens_details"), dict)

    def cached(self, model: str, prompt: list[int], **more: object) -> int:
        """Send a prompt of token ids; how many tokens of it were cached."""
        usage = self._completion(model, prompt, more).get("usage") or {}
        return int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)

    def _completion(self, model: str, prompt: list[int], more: dict[str, object]) -> dict[str, Any]:
        body = {"model": model, "prompt": prompt, "max_tokens": 1, "temperature": 0, **more}
        row = self._asked("/v1/completions", body)
        if not isinstance(row, dict):
            raise InputFault(f"{self.url}: /v1/completions answers no object")
        return row

    def _asked(self, path: str, body: object = None) -> Any:
        try:
            return self._json(path, body)
        except _Status as fault:
            raise InputFault(f"{self.url}: {path} answers {fault}") from None

    def _json(self, path: str, body: object = None) -> Any:
        try:
            return json.loads(self._get(path, body))
        except ValueError:
            raise InputFault(f"{self.url}: {path} answers no JSON") from None

    def _get(self, path: str, body: object = None) -> bytes:
        data = None if body is None else json.dumps(body).encode()
        try:
            request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                said: bytes = answer.read()
                return said
        except urllib.error.HTTPError as fault:
            raise _Status(f"{fault.code}: {fault.read(300).decode(errors='replace')}") from fault
        except (OSError, HTTPException, ValueError) as fault:
            raise InputFault(f"{self.url}: no answer: {getattr(fault, 'reason', None) or fault}") from fault


class _Status(Exception):
    """An answer that is not 200."""

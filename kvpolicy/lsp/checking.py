"""Checking while the author types: one thread beside the one that answers, always on the newest texts.

`server` says what changed; the thread loads, checks, and hands the diagnostics back. What was overtaken by the next
keystroke is not told. Sets of many rules are told twice: words at once, rules when the author pauses.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Condition, Thread

from kvpolicy.faults import Diagnostic, InputFault, Place
from kvpolicy.language import codes
from kvpolicy.language.check import examine
from kvpolicy.lsp.documents import Document
from kvpolicy.lsp.project import Project, View

_MANY = 1_500  # rules of a set from which comparing them waits for a pause
_PAUSE_S = 1.0
_FIRST_S = 0.01  # a completion that was asked for with the same keystroke goes first


@dataclass(frozen=True, slots=True)
class Result:
    """What the check of one version found. `view`: None where the file could not be loaded."""

    document: Document
    view: View | None
    faults: tuple[Diagnostic, ...]
    complete: bool = True


class Checker:
    """The thread. `tell` is called in it, once or twice for a version that was not overtaken."""

    def __init__(self, project: Project, tell: Callable[[Result], None]) -> None:
        self._project = project
        self._tell = tell
        self._waiting: dict[str, None] = {}
        self._changed = Condition()
        self._over = False
        self.users: dict[str, frozenset[str]] = {}  # URI of an open text -> the files that its set has
        self._thread = Thread(target=self._work, name="checking", daemon=True)
        self._thread.start()

    def changed(self, document: Document) -> None:
        """A text has another version: it and all open texts that use it are to be checked."""
        with self._changed:
            users = [uri for uri, files in list(self.users.items()) if document.identity in files]
            for uri in (document.uri, *users):
                self._waiting.setdefault(uri)
            self._changed.notify()

    def all_changed(self) -> None:
        """Files may have changed: everything is to be checked."""
        with self._changed:
            for uri in list(self._project.documents.open):
                self._waiting.setdefault(uri)
            self._changed.notify()

    def closed(self, document: Document) -> None:
        """A text was closed; those that use it see the file again."""
        self.users.pop(document.uri, None)
        self.changed(document)

    def stop(self) -> None:
        """No more."""
        with self._changed:
            self._over = True
            self._changed.notify()

    # --- in the thread ----------------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._over:
                    self._changed.wait()
                if self._over:
                    return
            time.sleep(_FIRST_S)
            with self._changed:
                uri = next(iter(self._waiting), None)
                if uri is not None:
                    del self._waiting[uri]
            document = self._project.documents.open.get(uri or "")
            if document is not None:
                self._check(document)

    def _check(self, document: Document) -> None:
        try:
            view = self._project.view(document.path)
            self.users[document.uri] = frozenset({document.identity, *view.loaded.origins.values()})
            if sum(len(part.file.rules) for part in view.parts) > _MANY:
                self._send(Result(document, view, examine(view.loaded), complete=False))
                if self._overtaken(document, _PAUSE_S):
                    return
            self._send(Result(document, view, view.checked.diagnostics))
        except InputFault as fault:
            place = Place(document.path.name, 1, 1)
            self._send(Result(document, None, (codes.UNUSABLE.at(place, str(fault)),)))
        except Exception as fault:  # whatever is wrong on our side, the editor goes on
            place = Place(document.path.name, 1, 1)
            message = f"this file cannot be checked: internal fault, please report it: {type(fault).__name__}: {fault}"
            self._send(Result(document, None, (codes.UNUSABLE.at(place, message),)))

    def _send(self, result: Result) -> None:
        if not self._overtaken(result.document, 0.0):
            self._tell(result)

    def _overtaken(self, document: Document, wait_s: float) -> bool:
        """Whether the text has changed since, after waiting whether it does."""
        until = time.monotonic() + wait_s
        while True:
            now = self._project.documents.open.get(document.uri)
            if now is None or now.version != document.version or self._over:
                return True
            if time.monotonic() >= until:
                return False
            time.sleep(0.05)

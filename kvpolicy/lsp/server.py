"""The language server: messages of the editor in, answers and diagnostics out.

Three threads: this one reads messages and completes words, so that a keystroke is answered at once; a second answers
everything else, one request after the other, and drops what is cancelled meanwhile; the third checks (`checking`).
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, TypeVar, cast

from lsprotocol import types
from pygls.lsp.server import LanguageServer

from kvpolicy import __version__
from kvpolicy.lsp import answers
from kvpolicy.lsp.checking import Checker, Result
from kvpolicy.lsp.documents import Document, normal, path_of
from kvpolicy.lsp.lines import Lines
from kvpolicy.lsp.project import Project, View, unread
from kvpolicy.lsp.protocol import Protocol, or_fault
from kvpolicy.lsp.streams import Output, converse
from kvpolicy.lsp.told import told

TRIGGERS = [".", ":", "[", "(", "{", "=", ","]
_OFTEN = 50_000  # new objects after which garbage is looked for
_SWITCH_S = 0.001  # how long a thread may keep another waiting
T = TypeVar("T")


class Server(LanguageServer):
    """The server and what it knows of the editor's texts."""

    def __init__(self) -> None:
        super().__init__("kvp", __version__, protocol_cls=Protocol)
        self.project = Project()
        self.views: dict[str, View] = {}  # as last checked
        self.versioned = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._answering = ThreadPoolExecutor(1, "answering")
        self.checker = Checker(self.project, self._checked)

    async def answered(self, uri: str, make: Callable[[Document], T]) -> T | None:
        """An answer of the second thread; None where the text is not open."""
        document = self.project.documents.open.get(uri)
        if document is None:
            return None
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._answering, lambda: or_fault(lambda: make(document)))

    def started(self, params: types.InitializeParams) -> None:
        """The editor has said what it can do and where it works."""
        self._loop = asyncio.get_running_loop()
        folders = [folder.uri for folder in params.workspace_folders or ()]
        folders = folders or ([params.root_uri] if params.root_uri else [])
        roots = tuple(path for path in map(path_of, folders) if path is not None and path.is_dir())
        self.project.roots = roots
        self.project.documents.folder = roots[0] if roots else Path.cwd()
        self.project.documents.encoding = str(
            getattr(self.workspace.position_encoding, "value", self.workspace.position_encoding)
        )
        edits = params.capabilities.workspace and params.capabilities.workspace.workspace_edit
        self.versioned = bool(edits and edits.document_changes)

    def _checked(self, result: Result) -> None:
        """The checking thread has found something."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._show, result)

    def _show(self, result: Result) -> None:
        document = result.document
        now = self.project.documents.open.get(document.uri)
        if now is None or now.version != document.version:
            return
        lines = Lines(normal(document.text), document.lines.encoding)
        view = result.view
        if view is not None:
            self.views[document.uri] = view
        else:
            view = unread(document.path)
        self.text_document_publish_diagnostics(
            types.PublishDiagnosticsParams(document.uri, told(view, lines, result.faults), document.version)
        )

    def closed(self, uri: str) -> None:
        """A text was closed: its diagnostics go, its file counts again."""
        document = self.project.documents.open.get(uri)
        if document is None:
            return
        self.project.documents.close(uri)
        self.views.pop(uri, None)
        self.checker.closed(document)
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, []))

    def watch(self) -> None:
        """Ask to be told of files that change outside the editor, where it can do that."""
        able = self.client_capabilities.workspace
        watching = able.did_change_watched_files if able is not None else None
        if watching is None or not watching.dynamic_registration:
            return
        options = types.DidChangeWatchedFilesRegistrationOptions([types.FileSystemWatcher("**/*.kvp")])
        method = types.WORKSPACE_DID_CHANGE_WATCHED_FILES
        self.client_register_capability(types.RegistrationParams([types.Registration("kvp", method, options)]))

    def ended(self) -> None:
        """The editor is done."""
        self.checker.stop()
        self._answering.shutdown(wait=False, cancel_futures=True)

    def report_server_error(self, error: Exception, source: object) -> None:
        """Say what could not be done outside of a request."""
        logging.getLogger(__name__).error("%s", error)


def make_server() -> Server:  # one handler below the other
    """A server with a handler for every message that it answers."""
    server = Server()
    documents, project = server.project.documents, server.project

    @server.feature(types.INITIALIZE)
    def initialize(params: types.InitializeParams) -> None:
        server.started(params)

    @server.feature(types.INITIALIZED)
    def initialized(params: types.InitializedParams) -> None:
        server.watch()

    @server.feature(types.SHUTDOWN)
    def shutdown(params: None) -> None:
        server.checker.stop()

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def did_open(params: types.DidOpenTextDocumentParams) -> None:
        item = params.text_document
        server.checker.changed(documents.put(item.uri, item.version, item.text))

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def did_change(params: types.DidChangeTextDocumentParams) -> None:
        named = params.text_document
        document = documents.change(named.uri, named.version, params.content_changes)
        if document is not None:
            server.checker.changed(document)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    def did_save(params: types.DidSaveTextDocumentParams) -> None:
        server.checker.all_changed()

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def did_close(params: types.DidCloseTextDocumentParams) -> None:
        server.closed(params.text_document.uri)

    @server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    def files_changed(params: types.DidChangeWatchedFilesParams) -> None:
        server.checker.all_changed()

    @server.feature(types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(trigger_characters=TRIGGERS))
    def completion(params: types.CompletionParams) -> types.CompletionList | None:
        document = documents.open.get(params.text_document.uri)
        if document is None:
            return None
        view = server.views.get(document.uri)
        return or_fault(lambda: answers.completion(project, document, params.position, view))

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    async def hover(params: types.HoverParams) -> types.Hover | None:
        return await server.answered(params.text_document.uri, lambda d: answers.hover(project, d, params.position))

    @server.feature(types.TEXT_DOCUMENT_DEFINITION)
    async def definition(params: types.DefinitionParams) -> list[types.Location] | None:
        return await server.answered(
            params.text_document.uri, lambda d: answers.definition(project, d, params.position)
        )

    @server.feature(types.TEXT_DOCUMENT_REFERENCES)
    async def references(params: types.ReferenceParams) -> list[types.Location] | None:
        given = params.context.include_declaration
        return await server.answered(
            params.text_document.uri, lambda d: answers.references(project, d, params.position, given)
        )

    @server.feature(types.TEXT_DOCUMENT_PREPARE_RENAME)
    async def prepare_rename(params: types.PrepareRenameParams) -> types.PrepareRenamePlaceholder | None:
        return await server.answered(params.text_document.uri, lambda d: answers.prepared(project, d, params.position))

    @server.feature(types.TEXT_DOCUMENT_RENAME, types.RenameOptions(prepare_provider=True))
    async def rename(params: types.RenameParams) -> types.WorkspaceEdit | None:
        return await server.answered(
            params.text_document.uri,
            lambda d: answers.rename(project, d, params.position, params.new_name, server.versioned),
        )

    @server.feature(types.TEXT_DOCUMENT_FORMATTING)
    async def formatting(params: types.DocumentFormattingParams) -> list[types.TextEdit] | None:
        return await server.answered(params.text_document.uri, answers.formatted)

    @server.feature(types.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    async def symbols(params: types.DocumentSymbolParams) -> list[types.DocumentSymbol] | None:
        return await server.answered(params.text_document.uri, lambda d: answers.outlined(project, d))

    @server.feature(
        types.TEXT_DOCUMENT_CODE_ACTION, types.CodeActionOptions(code_action_kinds=[types.CodeActionKind.QuickFix])
    )
    async def code_action(params: types.CodeActionParams) -> list[types.CodeAction] | None:
        only = params.context.only
        if only is not None and not any(types.CodeActionKind.QuickFix.value.startswith(str(kind)) for kind in only):
            return []
        return await server.answered(
            params.text_document.uri,
            lambda d: answers.actions(project, d, params.range, list(params.context.diagnostics), server.versioned),
        )

    return server


def serve(stdin: BinaryIO | None = None, stdout: BinaryIO | None = None) -> int:
    """Serve one editor over the standard streams, until it ends the session (0) or goes away without (1)."""
    sys.setswitchinterval(_SWITCH_S)
    gc.collect()
    gc.freeze()  # what is imported stays; walking it again and again would take longer than a check
    gc.set_threshold(_OFTEN)
    level = logging.DEBUG if os.environ.get("KVPOLICY_DEBUG") else logging.CRITICAL
    logging.basicConfig(stream=sys.stderr, level=level, force=True)
    server = make_server()
    protocol = cast(Protocol, server.protocol)
    protocol.set_writer(Output(stdout or sys.stdout.buffer))
    # A stream of its own: Python closes the standard one at its end, and would wait for the thread that reads it.
    stream = stdin or os.fdopen(os.dup(sys.stdin.fileno()), "rb")
    with suppress(SystemExit, KeyboardInterrupt):  # the first is how pygls leaves
        asyncio.run(converse(stream, protocol.structure_message, protocol.handle_message))
    server.ended()
    return int(not protocol.was_shut_down)

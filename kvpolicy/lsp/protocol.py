"""The protocol as pygls has it, where it is too trusting: broken messages, and texts as editors count them.

A request that cannot be read is answered with an error (else its sender waits for ever), one that is nonsense is
dropped, and open texts are kept by `documents`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any, TypeVar

from lsprotocol import types
from pygls.exceptions import JsonRpcException, JsonRpcInvalidRequest, JsonRpcServerNotInitialized
from pygls.protocol import LanguageServerProtocol, lsp_method

from kvpolicy.faults import KvpError
from kvpolicy.lsp.rename import Refused

REQUEST_FAILED = -32803
T = TypeVar("T")


class Protocol(LanguageServerProtocol):
    """Messages of the editor."""

    @property
    def was_shut_down(self) -> bool:
        """Whether the editor has ended the session before it left."""
        return bool(self._shutdown)

    def structure_message(self, data: dict[str, Any]) -> Any:
        """A message from its JSON. Part of one are dictionaries, which come here, too."""
        if "jsonrpc" not in data:
            return data
        try:
            return super().structure_message(data)
        except JsonRpcException as fault:
            number = data.get("id")
            if isinstance(number, int | str) and isinstance(data.get("method"), str):
                self._send_response(number, error=fault.to_response_error())
            return None

    def handle_message(self, message: Any) -> None:
        """Act on a message; what is none is dropped."""
        if message is None or not hasattr(message, "jsonrpc"):
            return
        number, method = getattr(message, "id", None), getattr(message, "method", "")
        if number is not None and method and self._shutdown:
            over = JsonRpcInvalidRequest("the server is shutting down")
            self._send_response(number, error=over.to_response_error())
            return
        if self._workspace is None and method not in {types.INITIALIZE, types.EXIT, ""}:
            if number is not None:
                early = JsonRpcServerNotInitialized("the server is not initialized")
                self._send_response(number, error=early.to_response_error())
            return
        super().handle_message(message)

    # The texts are kept by `documents`, which counts lines as the protocol does; these would keep a second copy.

    @lsp_method(types.TEXT_DOCUMENT_DID_OPEN)
    def lsp_text_document__did_open(self, params: types.DidOpenTextDocumentParams) -> Any:
        """A text was opened."""
        yield self.fm.features[types.TEXT_DOCUMENT_DID_OPEN], (params,), None

    @lsp_method(types.TEXT_DOCUMENT_DID_CHANGE)
    def lsp_text_document__did_change(self, params: types.DidChangeTextDocumentParams) -> Any:
        """A text was changed."""
        yield self.fm.features[types.TEXT_DOCUMENT_DID_CHANGE], (params,), None

    @lsp_method(types.TEXT_DOCUMENT_DID_CLOSE)
    def lsp_text_document__did_close(self, params: types.DidCloseTextDocumentParams) -> Any:
        """A text was closed."""
        yield self.fm.features[types.TEXT_DOCUMENT_DID_CLOSE], (params,), None


def or_fault(make: Callable[[], T]) -> T:
    """An answer, or what the editor shows instead."""
    try:
        return make()
    except (Refused, KvpError) as fault:
        raise JsonRpcException(str(fault), code=REQUEST_FAILED) from None
    except Exception as fault:  # a fault of ours is one sentence, and the server goes on
        if os.environ.get("KVPOLICY_DEBUG"):
            logging.getLogger(__name__).exception("answering")
        message = f"internal fault, please report it: {type(fault).__name__}: {fault}"
        raise JsonRpcException(message, code=REQUEST_FAILED) from None

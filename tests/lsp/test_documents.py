"""Open texts are asked for in one thread while another opens and closes them."""

from __future__ import annotations

import threading
from pathlib import Path

from kvpolicy.lsp.documents import Documents


def test_texts_may_be_opened_and_closed_while_they_are_read(tmp_path: Path) -> None:
    documents = Documents()
    uris = [(tmp_path / f"{number}.kvp").as_uri() for number in range(64)]
    stop = threading.Event()
    faults: list[BaseException] = []

    def read() -> None:
        try:
            while not stop.is_set():
                documents.texts()
                documents.by_identity("nowhere")
        except BaseException as fault:
            faults.append(fault)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for _ in range(60):
        for uri in uris:
            documents.put(uri, 1, "turn { priority: 40 }")
        for uri in uris:
            documents.close(uri)
    stop.set()
    for reader in readers:
        reader.join()
    assert not faults

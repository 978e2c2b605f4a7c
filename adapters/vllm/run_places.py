"""Where a vLLM started by `kvp run` has its sockets: a private folder by port, so that `kvp doctor` finds them again.

`$XDG_RUNTIME_DIR/kvpolicy/vllm-PORT/`, or a folder of the user under the temporary one: `channel` (directives in),
`events` and `replay` (KV events out). Unix sockets of mode 0700 folders: token ids leave no machine by accident, as
they would on vLLM's own default, a port on every interface.
"""

from __future__ import annotations

import os
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

from kvpolicy.faults import InputFault

DEFAULT_PORT = 8000


@dataclass(frozen=True, slots=True)
class Places:
    """The folder and the addresses in it."""

    folder: Path

    @property
    def channel(self) -> str:
        """For KVPOLICY_CHANNEL and `ChannelClient`."""
        return f"unix:{self.folder / 'channel'}"

    @property
    def events(self) -> str:
        """vLLM publishes there."""
        return f"ipc://{self.folder / 'events'}"

    @property
    def replay(self) -> str:
        """And answers there for what was missed."""
        return f"ipc://{self.folder / 'replay'}"


def places_of(port: int) -> Places:
    """Of the server at that port of this machine; the folder may not exist."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    root = Path(runtime) / "kvpolicy" if runtime else Path(tempfile.gettempdir()) / f"kvpolicy-{os.getuid()}"
    return Places(root / f"vllm-{port}")


def make(places: Places) -> None:
    """The folder, for this user alone. Raises InputFault where another user's is in its place."""
    for folder in (places.folder.parent, places.folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise InputFault(f"{folder}: is not a folder of this user; set XDG_RUNTIME_DIR to one that is")
        if stat.S_IMODE(found.st_mode) & 0o077:
            folder.chmod(0o700)

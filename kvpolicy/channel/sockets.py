"""Sockets of the control channel: who may listen where, and who is let in. In the engine's process."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct
from pathlib import Path

from kvpolicy.channel.wire import Address, ChannelFault

BACKLOG = 16


def listen(address: Address, token: str | None) -> socket.socket:
    """A listening socket. A Unix socket is made with mode 0600; a socket file that nobody answers at any more is taken
    over. Raises ChannelFault or OSError."""
    if address.path is None and not token:
        raise ChannelFault("a port needs a token (KVPOLICY_CHANNEL_TOKEN), a Unix socket needs none")
    listener = socket.socket(address.family, socket.SOCK_STREAM)
    try:
        if address.path is None:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address.target)
        else:
            _take_over(Path(address.path))
            before = os.umask(0o177)
            try:
                listener.bind(address.path)
            finally:
                os.umask(before)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def same_user(connection: socket.socket) -> bool:
    """Whether the other end of a Unix socket runs as our user, or as root. Where the system does not tell, the file's
    mode has to do."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    size = struct.calcsize("3i")
    try:
        _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    except OSError:
        return False
    return user in (0, os.getuid())


def _take_over(path: Path) -> None:
    """Remove a socket file left behind. A living one, or another kind of file, stays, and `bind` fails on it."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.stat().st_mode):
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1.0)
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink(missing_ok=True)
            except OSError:
                return

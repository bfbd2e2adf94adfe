"""Messages between the pool and its workers: a JSON header and a body of bytes.

On a stream socket: header size and body size (4 and 8 bytes, big-endian), the CRC-32 of both,
the header, the body. The checksum tells a whole message from one whose sender was killed while
sending, with another sender's message behind it.
"""

from __future__ import annotations

import json
import socket
import struct
import zlib
from typing import Any

_SIZES = struct.Struct(">IQI")


class Broken(Exception):
    """The sender went away within a message, or before it."""


def send(connection: socket.socket, header: dict[str, Any], body: bytes = b"") -> None:
    """Send one message; blocks until all of it is on its way."""
    head = json.dumps(header).encode()
    checksum = zlib.crc32(body, zlib.crc32(head))
    connection.sendall(_SIZES.pack(len(head), len(body), checksum) + head + body)


def receive(connection: socket.socket) -> tuple[dict[str, Any], bytes]:
    """Receive one message.

    Raises:
        Broken: the connection ended, or the message was cut.
        TimeoutError: the connection's own time limit passed.
    """
    head_size, body_size, checksum = _SIZES.unpack(_exactly(connection, _SIZES.size))
    head = _exactly(connection, head_size)
    body = _exactly(connection, body_size)
    if zlib.crc32(body, zlib.crc32(head)) != checksum:
        raise Broken
    header: dict[str, Any] = json.loads(head)
    return header, body


def _exactly(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        try:
            part = connection.recv(min(size - len(parts), 1 << 20))
        except ConnectionError:
            part = b""
        if not part:
            raise Broken
        parts += part
    return bytes(parts)

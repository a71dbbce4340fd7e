"""Messages between a kernel and its server of warm ranks: one JSON object a packet, over an unnamed socket."""

import json
import socket

_BYTES = 2**20  # an environment and a command line, with room


def send(to: socket.socket, message: dict) -> None:
    """Send one message; who has hung up does not hear it."""
    try:
        to.sendall(json.dumps(message).encode())
    except (BrokenPipeError, ConnectionResetError):
        return


def receive(source: socket.socket) -> dict | None:
    """Wait for one message; `None` once the other end has closed."""
    try:
        data = source.recv(_BYTES)
    except ConnectionResetError:
        return None
    return json.loads(data) if data else None


def receive_now(source: socket.socket) -> dict | None:
    """One message that is there already, else `None`. Raises `EOFError` once the other end has closed."""
    try:
        data = source.recv(_BYTES, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return None
    except ConnectionResetError as error:
        raise EOFError("the other end is gone") from error
    if not data:
        raise EOFError("the other end is gone")
    return json.loads(data)

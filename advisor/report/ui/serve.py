"""Serving the local page until Ctrl-C."""

from __future__ import annotations

import importlib.util
import secrets
import socket
from collections.abc import Callable

from advisor.errors import InputError

HOST = "127.0.0.1"


def serve(port: int, ready: Callable[[str], None]) -> None:
    """Listen on 127.0.0.1 alone (port 0: any free one) and call ``ready`` with the address; returns at Ctrl-C.

    Raises InputError when the port is taken or the extra ``ui`` is not installed.
    """
    for name in ("starlette", "uvicorn"):
        if importlib.util.find_spec(name) is None:
            raise InputError("advisor ui", f"needs {name}", expected="pip install 'advisor[ui]'")
    import uvicorn

    from advisor.report.ui.app import make_app

    token = secrets.token_urlsafe(24)
    listening = _listen(port)
    # No access log: the address holds the token.
    config = uvicorn.Config(make_app(token), log_level="warning", access_log=False, timeout_graceful_shutdown=2)
    server = uvicorn.Server(config)
    with listening:
        ready(f"http://{HOST}:{listening.getsockname()[1]}/?token={token}")
        try:
            server.run(sockets=[listening])
        except KeyboardInterrupt:
            return  # the way this command ends


def _listen(port: int) -> socket.socket:
    if not 0 <= port < 65536:
        raise InputError("--port", "is no port", found=port, expected="0 to 65535")
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
    except OSError as error:
        listening.close()
        raise InputError(
            "--port", f"cannot be opened ({error.strerror})", found=port, expected="a free port"
        ) from error
    listening.listen()
    return listening

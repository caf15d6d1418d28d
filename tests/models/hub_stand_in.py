"""A stand-in for the Hub that speaks what huggingface_hub asks of it, and writes down every request."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Repo:
    """One repository: its text files, what the API tells of it, and whether it asks for a token."""

    files: dict[str, str]
    info: dict[str, Any] = field(default_factory=dict)
    gated: bool = False
    token: str | None = None  # whoever brings it may read
    info_status: int = 200


class Hub:
    """The server's state: repositories by id, and the requests (method, path) that came."""

    def __init__(self, repos: dict[str, Repo]) -> None:
        self.repos = repos
        self.requests: list[tuple[str, str]] = []
        self.url = ""


@contextmanager
def serve(repos: dict[str, Repo]) -> Iterator[Hub]:
    """Serve ``repos`` on a free port of this machine."""
    hub = Hub(repos)

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            """Quiet: the tests look at ``requests``."""

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _answer(self, *, body: bool) -> None:
            path = self.path.split("?")[0]
            hub.requests.append((self.command, path))
            status, headers, text = self._find(path)
            data = text.encode()
            self.send_response(status)
            for name, value in {"Content-Length": str(len(data)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if body:
                self.wfile.write(data)

        def _find(self, path: str) -> tuple[int, dict[str, str], str]:
            parts = path.strip("/").split("/")
            api = parts[:2] == ["api", "models"]
            repo = hub.repos.get("/".join(parts[2:4] if api else parts[:2]))
            if repo is None:
                return 401, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"}, ""
            if api:
                return repo.info_status, {"Content-Type": "application/json"}, json.dumps(repo.info)
            allowed = repo.token is not None and self.headers.get("Authorization") == f"Bearer {repo.token}"
            if repo.gated and not allowed:
                return 403, {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted"}, ""
            name = "/".join(parts[4:])
            if name not in repo.files:
                return 404, {"X-Error-Code": "EntryNotFound", "X-Error-Message": "Entry not found"}, ""
            etag = f'"{abs(hash((name, repo.files[name]))):040x}"'
            return 200, {"ETag": etag, "X-Repo-Commit": COMMIT, "Content-Type": "text/plain"}, repo.files[name]

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

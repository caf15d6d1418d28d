"""The local page's application: a form, the answer below it, the plan as a file. Stateless; every request names the token.

Who may ask: only a browser on this machine that was given the token, under this machine's own name. A page elsewhere
that learns the port can neither guess the token nor, by pointing its own name at 127.0.0.1, pass the check of the Host
header.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from advisor import __version__, advise
from advisor.advise import Advice
from advisor.archive import archive_path
from advisor.curves import curves
from advisor.errors import AdvisorError
from advisor.record import read_records
from advisor.report.page.answer import of_advice
from advisor.report.page.page import assets, environment, render
from advisor.report.ui.form import FIELDS, chosen, command, names, question

HOSTS = ("127.0.0.1", "localhost")
_POLICY = {"form-action": "'self'"}


def make_app(token: str) -> Starlette:
    """The application that answers who knows ``token``."""
    page = _Page(token)
    routes = [Route("/", page.show, methods=["GET"]), Route("/plan.json", page.plan, methods=["GET"])]
    return Starlette(routes=routes, middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(HOSTS))])


class _Page:
    def __init__(self, token: str) -> None:
        self._token = token.encode()
        # Tracing patches torch for its moment: one question at a time.
        self._one = threading.Lock()

    def show(self, request: Request) -> Response:
        """The form, and the answer when something was asked."""
        typed = self._typed(request)
        if typed is None:
            return _forbidden()
        if not typed.get("model"):
            return _html(_empty(typed, token=self._token.decode()))
        try:
            with self._one:
                advice = self._advice(typed)
                plan = advice.plan
                drawn = curves(advice.model, advice.machine, plan.main.job) if plan else ()
            archive = archive_path()
            records = read_records(archive) if archive.is_file() else ()
            text = render(
                of_advice(advice, drawn), records=records, template="ui.html.j2", asked=command(typed),
                **_form(typed, self._token.decode()),
            )  # fmt: skip
        except AdvisorError as error:
            return _html(_empty(typed, token=self._token.decode(), error=str(error)), status=400)
        return _html(text)

    def plan(self, request: Request) -> Response:
        """The plan of the same question, to keep."""
        typed = self._typed(request)
        if typed is None:
            return _forbidden()
        try:
            with self._one:
                plan = self._advice(typed).plan
        except AdvisorError as error:
            return PlainTextResponse(f"{error}\n", 400, _headers())
        if plan is None:
            return PlainTextResponse("nothing fits, so there is no plan\n", 404, _headers())
        headers = {**_headers(), "content-disposition": 'attachment; filename="plan.json"'}
        text = plan.model_dump_json(indent=2, exclude_none=True) + "\n"
        return Response(text, media_type="application/json", headers=headers)

    def _typed(self, request: Request) -> dict[str, str] | None:
        """The fields of a request that names the token; None for any other."""
        given = request.query_params.get("token", "").encode()
        if not secrets.compare_digest(given, self._token):
            return None
        return {name: value for name, value in request.query_params.items() if name != "token"}

    @staticmethod
    def _advice(typed: Mapping[str, str]) -> Advice:
        asked = question(typed)
        return advise.recommend(asked.model, asked.machine, asked.workload)


def _form(typed: Mapping[str, str], token: str) -> dict[str, Any]:
    return {
        "fields": FIELDS,
        "typed": typed,
        "names": names(),
        "plan_link": f"/plan.json?{urlencode({**typed, 'token': token})}",
        "token": token,
        "policy": assets(**_POLICY)["policy"],
        "error": "",
        "opened": any(field.more and chosen(field, typed) for field in FIELDS),
    }


def _empty(typed: Mapping[str, str], *, token: str, error: str = "") -> str:
    """The form alone, with what is wrong."""
    values = {**_form(typed, token), "error": error}
    return environment().get_template("ui-empty.html.j2").render(version=__version__, **{**assets(), **values})


def _headers() -> dict[str, str]:
    return {
        "cache-control": "no-store",
        "content-security-policy": assets(**_POLICY)["policy"] + "; frame-ancestors 'none'",
        "referrer-policy": "no-referrer",  # the address holds the token
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
    }


def _html(text: str, status: int = 200) -> Response:
    return Response(text, status, media_type="text/html", headers=_headers())


def _forbidden() -> Response:
    return PlainTextResponse("This page opens at the whole address that `advisor ui` printed.\n", 403, _headers())

"""Which endpoint answers a request: a table of methods and paths, with the redirects and refusals around it.

What happens to a path that is not in the table follows httprouter, which nsqd uses: a path that would match with or
without its trailing slash, or cleaned, or in another case, is redirected; a path that other methods have is 405 with
a sorted `Allow`; OPTIONS is answered from the same knowledge; the rest is 404. This file knows no endpoint.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from polymq import limits
from polymq.protocols.http.decode import BodyRule
from polymq.protocols.http.target import clean_path, escape_path
from polymq.wire.exchange import Request, Response, Retry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["Route", "Router"]

Context = TypeVar("Context")

_DISCARD: Final = BodyRule(size_bytes_max=limits.HTTP_BODY_DISCARDED_BYTES_MAX, reads=False)


@dataclass(frozen=True, slots=True)
class Route(Generic[Context]):
    """One row of the table. In `path`, an element in braces (`{name}`) takes any text and becomes a parameter."""

    method: str
    path: str
    endpoint: Callable[[Request, Context], Response | Retry]
    body: BodyRule = _DISCARD


class Router(Generic[Context]):
    """The table, made for looking up. `refuse(status)` makes the body of a 404 or 405."""

    def __init__(self, routes: Iterable[Route[Context]], *, refuse: Callable[[int], Response]) -> None:
        self._refuse = refuse
        self._exact: dict[str, dict[str, Route[Context]]] = {}
        self._patterns: list[tuple[list[str], Route[Context]]] = []
        self._methods: set[str] = set()
        for route in routes:
            self._methods.add(route.method)
            if "{" in route.path:
                self._patterns.append((route.path.split("/"), route))
            else:
                self._exact.setdefault(route.path, {})[route.method] = route

    def body_rule(self, method: str, path: str) -> BodyRule:
        """Say what is done with the body of such a request."""
        found = self._find(method, path)
        return found[0].body if found else _DISCARD

    def answer(self, request: Request, context: Context) -> Response | Retry:
        """Call the endpoint, or say why there is none."""
        found = self._find(request.method, request.path)
        if found:
            route, parameters = found
            return route.endpoint(replace(request, parameters=parameters) if parameters else request, context)
        return self._redirected(request) or self._refused(request)

    def _find(self, method: str, path: str) -> tuple[Route[Context], dict[str, str]] | None:
        route = self._exact.get(path, {}).get(method)
        if route:
            return route, {}
        elements = path.split("/")
        for pattern, candidate in self._patterns:
            if candidate.method == method and (parameters := _matched(pattern, elements)) is not None:
                return candidate, parameters
        return None

    def _allowed(self, path: str) -> str:
        methods = set(self._methods) if path == "*" else {method for method in self._methods if self._find(method, path)}
        return ", ".join(sorted(methods | {"OPTIONS"})) if methods else ""

    def _refused(self, request: Request) -> Response:
        if request.method == "OPTIONS" and request.path == "*":
            return Response()
        allowed = self._allowed(request.path)
        if not allowed:
            return self._refuse(404)
        if request.method == "OPTIONS":
            return Response(headers=(("Allow", allowed),))
        response = self._refuse(405)
        return replace(response, headers=(*response.headers, ("Allow", allowed)))

    def _redirected(self, request: Request) -> Response | None:
        path = self._corrected(request.method, request.path)
        if path is None:
            return None
        location = request.origin + escape_path(path) + (f"?{request.query}" if request.query else "")
        if request.method != "GET":
            return Response(status=307, headers=(("Location", location),))
        # Go escapes quotes as numbers.
        link = escape(location, quote=False).replace('"', "&#34;").replace("'", "&#39;")
        return Response(
            status=301,
            headers=(("Location", location), ("Content-Type", "text/html; charset=utf-8")),
            body=f'<a href="{link}">Moved Permanently</a>.\n\n'.encode(),
        )

    def _corrected(self, method: str, path: str) -> str | None:
        """Find the path in the table that such a request must have meant."""
        if path in ("", "/", "*") or method == "CONNECT":
            return None
        for candidate in (path, clean_path(path)):
            for other in _with_other_slash(candidate):
                if self._find(method, other):
                    return other
        wanted = clean_path(path)
        for other in (wanted, *_with_other_slash(wanted)):
            spelled = self._in_other_case(method, other)
            if spelled is not None:
                return spelled
        return None

    def _in_other_case(self, method: str, path: str) -> str | None:
        for known, methods in self._exact.items():
            if method in methods and known.lower() == path.lower():
                return known
        elements = path.split("/")
        for pattern, candidate in self._patterns:
            parameters = _matched([part.lower() for part in pattern], [part.lower() for part in elements])
            if candidate.method == method and parameters is not None:
                return "/".join(found if part.startswith("{") else part for part, found in zip(pattern, elements, strict=True))
        return None


def _with_other_slash(path: str) -> list[str]:
    if path == "/":
        return []
    return [path[:-1]] if path.endswith("/") else [path + "/"]


def _matched(pattern: list[str], elements: list[str]) -> dict[str, str] | None:
    if len(pattern) != len(elements):
        return None
    parameters = {}
    for part, element in zip(pattern, elements, strict=True):
        if part.startswith("{"):
            if not element:
                return None
            parameters[part[1:-1]] = element
        elif part != element:
            return None
    return parameters

from __future__ import annotations

import pytest

from polymq.gateways.nats import route_rules as module
from polymq.gateways.nats.route_rules import RouteRules
from polymq.limits import INTEREST_CACHED_NAME_SIZE_BYTES_MAX
from polymq.protocols.nats.info import Permissions


@pytest.mark.parametrize(
    ("allow", "deny", "name", "expected"),
    [
        ((), (), b"any.thing", True),
        (("foo",), (), b"foo", True),
        (("foo",), (), b"bar", False),
        (("foo.*",), (), b"foo.a", True),
        (("foo.*",), (), b"foo", False),
        (("foo.*",), (), b"foo.a.b", False),
        (("foo.*",), (), b"foo.*", True),
        (("foo.*",), (), b"foo.>", False),
        (("foo.>",), (), b"foo.a.b", True),
        (("foo.>",), (), b"foo", False),
        (("foo.>",), (), b"foo.>", True),
        (("foo.a",), (), b"foo.*", False),
        (("a", "b"), (), b"b", True),
        ((), ("secret.>",), b"secret.a", False),
        ((), ("secret.a",), b"secret.*", True),
        ((), ("secret.a",), b">", True),
        (("foo.>",), ("foo.secret",), b"foo.secret", False),
        (("foo.>",), ("foo.secret",), b"foo.public", True),
        ((), (">",), b"a", False),
    ],
)
def test_what_may_pass(allow: tuple[str, ...], deny: tuple[str, ...], name: bytes, expected: bool) -> None:
    said = Permissions(allow, deny)
    assert RouteRules(imports=said).may_import(name) is expected
    assert RouteRules(exports=said).may_export(name) is expected


def test_each_direction_has_its_own() -> None:
    rules = RouteRules(imports=Permissions(("in",)), exports=Permissions(("out",)))
    assert (rules.may_import(b"in"), rules.may_import(b"out")) == (True, False)
    assert (rules.may_export(b"in"), rules.may_export(b"out")) == (False, True)
    assert RouteRules().may_import(b"x")
    assert RouteRules().may_export(b"x")
    assert (RouteRules().imports, RouteRules().exports) == (None, None)


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REMEMBERED_MAX", 4)
    rules = RouteRules(imports=Permissions(("a.*",)))
    for _ in range(2):
        for number in range(10):
            assert rules.may_import(b"a.%d" % number)
            assert not rules.may_import(b"b.%d" % number)
    assert len(rules._import._remembered) <= 4


def test_long_names_are_not_remembered() -> None:
    rules = RouteRules(imports=Permissions(("a.*",)))
    assert rules.may_import(b"a.".ljust(INTEREST_CACHED_NAME_SIZE_BYTES_MAX, b"x"))
    assert rules.may_import(b"a.".ljust(INTEREST_CACHED_NAME_SIZE_BYTES_MAX + 1, b"x"))
    assert len(rules._import._remembered) == 1

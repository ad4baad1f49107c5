from __future__ import annotations

from typing import Any

import pytest

from polymq.server.yaml_lists import YamlProblem, read_yaml

# As RocketMQ ships it, but for the licence.
PLAIN_ACL = """
# a comment

globalWhiteRemoteAddresses:
  - 10.10.103.*
  - 192.168.0.*

accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB
      - topicC=SUB
    groupPerms:
      # the group should convert to retry topic
      - groupA=DENY

  - accessKey: rocketmq2
    secretKey: "1234#5678"   # quoted
    whiteRemoteAddress: 192.168.1.*
    # if it is admin, it could access all resources
    admin: true
"""


def test_the_file_of_rocketmq() -> None:
    assert read_yaml(PLAIN_ACL) == {
        "globalWhiteRemoteAddresses": ["10.10.103.*", "192.168.0.*"],
        "accounts": [
            {
                "accessKey": "RocketMQ",
                "secretKey": "12345678",
                "whiteRemoteAddress": None,
                "admin": "false",
                "defaultTopicPerm": "DENY",
                "defaultGroupPerm": "SUB",
                "topicPerms": ["topicA=DENY", "topicB=PUB|SUB", "topicC=SUB"],
                "groupPerms": ["groupA=DENY"],
            },
            {"accessKey": "rocketmq2", "secretKey": "1234#5678", "whiteRemoteAddress": "192.168.1.*", "admin": "true"},
        ],
    }


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("", None),
        ("---\n# nothing\n", None),
        ("just text", "just text"),
        ("a: 1\nb:\n- x\n- y\nc: [p, 'q', ]\n", {"a": "1", "b": ["x", "y"], "c": ["p", "q"]}),
        ("- - a\n  - b\n-\n  c: d\n-\n", [["a", "b"], {"c": "d"}, None]),
        ("a: it's #1 # two\nb: ~\nc: 'x: y'\n\"d\": null\n", {"a": "it's", "b": None, "c": "x: y", "d": None}),
        ("a: http://h:1/#x\n", {"a": "http://h:1/#x"}),
    ],
)
def test_maps_lists_and_texts(text: str, tree: Any) -> None:
    assert read_yaml(text) == tree


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: &x 1", "line 1: '&x 1' is more of YAML than is understood here; write plain or quoted text"),
        ("a: {b: c}", "line 1: '{b: c}' is more of YAML than is understood here; write plain or quoted text"),
        ("a:\n  b: |\n", "line 2: '|' is more of YAML than is understood here; write plain or quoted text"),
        ("a: 1\na: 2", "line 2: a is there twice"),
        ("a: 1\nsomething", "line 2: expected NAME: VALUE"),
        ("a: 1\n   b: 2", "line 2: indented more than the line before it allows"),
        ("- a\n    - b", "line 2: indented more than the line before it allows"),
        ("  a: 1\nb: 2", "line 2: indented less than what it belongs to"),
        ("a:\n\tb: 1", "line 2: lines are indented by blanks, not by tabs"),
        ("- " * 40 + "a", "line 1: more than 16 levels"),
    ],
)
def test_what_cannot_be_read_is_said_with_its_line(text: str, problem: str) -> None:
    with pytest.raises(YamlProblem) as caught:
        read_yaml(text)
    assert str(caught.value) == problem

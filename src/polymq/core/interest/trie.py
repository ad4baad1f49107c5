"""All patterns of a namespace as a tree of tokens, so that a name finds those that match it in one walk.

A node's way from the root is its pattern. Walks go level by level, not by recursion: patterns come from outside. A node
without children and takers does not exist. Hot module: see docs/adr/0001. Read next: `interest.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

from polymq.core.interest.names import ONE, REST, tokens_of_name

if TYPE_CHECKING:
    from polymq.core.interest.groups import Group
    from polymq.core.interest.targets import Entry

__all__ = ["Node", "Trie"]


@cython.no_gc  # type: ignore[attr-defined]  # Cython's stub lacks it.
@cython.cclass
class Node:
    """One pattern or the beginning of some: who takes what matches it, and how it goes on.

    Most nodes have one child, or one taker, or one group, so these have places of their own and cost nothing more.
    `first` and `others` are the plain entries (place 0, and 1 on), `local_count` those of them that others are told of. Not
    seen by the garbage collector, as Entry: nodes know their children and nobody above.
    """

    def __init__(self) -> None:
        self.token = b""
        self.child: Node | None = None
        self.children: dict[bytes, Node] | None = None
        self.star: Node | None = None
        self.rest: Node | None = None
        self.first: Entry | None = None
        self.others: list[Entry] | None = None
        self.group: Group | None = None
        self.groups: dict[bytes, Group] | None = None
        self.local_count = 0

    def has_entries(self) -> bool:
        """Say whether the pattern itself is wanted by anybody; groups count until their last member is removed."""
        return self.first is not None or self.group is not None or self.groups is not None

    def is_needless(self) -> bool:
        """Say whether the node may go."""
        return not self.has_entries() and self.child is None and self.children is None and self.star is None and self.rest is None

    def link(self, entry: Entry) -> None:
        """Add a plain entry."""
        if entry.target.counted:
            self.local_count += 1
        if self.first is None:
            self.first = entry
            entry.place = 0
            return
        if self.others is None:
            self.others = []
        self.others.append(entry)
        entry.place = len(self.others)

    def unlink(self, entry: Entry) -> None:
        """Take a plain entry out: the last one takes its place."""
        assert entry.place >= 0
        if entry.target.counted:
            self.local_count -= 1
        if not self.others:
            self.first = None
        else:
            last: Entry = self.others.pop()
            if last is not entry:
                last.place = entry.place
                if last.place == 0:
                    self.first = last
                else:
                    self.others[last.place - 1] = last
            if not self.others:
                self.others = None
        entry.place = -1

    def find_group(self, queue: bytes) -> Group | None:
        """Find a queue group of this pattern."""
        if self.groups is not None:
            return self.groups.get(queue)
        group: Group | None = self.group
        if group is not None and group.queue == queue:
            return group
        return None

    def add_group(self, group: Group) -> None:
        """Add a queue group that is not there yet."""
        if self.groups is not None:
            self.groups[group.queue] = group
        elif self.group is None:
            self.group = group
        else:
            only: Group = self.group
            self.groups = {only.queue: only, group.queue: group}
            self.group = None

    def drop_group(self, group: Group) -> None:
        """Forget a queue group."""
        if self.groups is None:
            self.group = None
            return
        del self.groups[group.queue]
        if not self.groups:
            self.groups = None

    def list_groups(self) -> list[Group]:
        """List all queue groups of this pattern."""
        if self.groups is not None:
            return list(self.groups.values())
        return [] if self.group is None else [self.group]

    def find_child(self, token: bytes) -> Node | None:
        """Find the child of a token that stands for itself."""
        if self.children is not None:
            return self.children.get(token)
        if self.child is not None and self.token == token:
            return self.child
        return None

    def add_child(self, token: bytes) -> Node:
        """Add the child of a token that stands for itself."""
        node = Node()
        if self.children is not None:
            self.children[token] = node
        elif self.child is None:
            self.token = token
            self.child = node
        else:
            self.children = {self.token: self.child, token: node}
            self.token = b""
            self.child = None
        return node

    def drop_child(self, token: bytes) -> None:
        """Forget a child, whatever the token stands for."""
        if token == ONE:
            self.star = None
        elif token == REST:
            self.rest = None
        elif self.children is None:
            self.token = b""
            self.child = None
        else:
            del self.children[token]
            if not self.children:
                self.children = None


@cython.cclass
class Trie:
    """The tree of one namespace. `node_count` does not count the root, `visited` is what `matching` has visited since it was set to 0."""

    def __init__(self) -> None:
        self.root = Node()
        self.node_count = 0
        self.visited = 0

    def reach(self, tokens: list[bytes]) -> Node:
        """Find the node of a pattern, made if it is not there. Cost: O(tokens)."""
        node: Node = self.root
        following: Node | None
        token: bytes
        for token in tokens:
            if token == ONE:
                following = node.star
                if following is None:
                    following = node.star = Node()
                    self.node_count += 1
            elif token == REST:
                following = node.rest
                if following is None:
                    following = node.rest = Node()
                    self.node_count += 1
            else:
                following = node.find_child(token)
                if following is None:
                    following = node.add_child(token)
                    self.node_count += 1
            node = following
        return node

    def path(self, tokens: list[bytes]) -> list[Node] | None:
        """List the nodes from the root to a pattern's; None if it has none. Cost: O(tokens)."""
        node: Node = self.root
        following: Node | None
        nodes = [node]
        token: bytes
        for token in tokens:
            if token == ONE:
                following = node.star
            elif token == REST:
                following = node.rest
            else:
                following = node.find_child(token)
            if following is None:
                return None
            node = following
            nodes.append(node)
        return nodes

    def prune(self, tokens: list[bytes], nodes: list[Node]) -> None:
        """Remove what is needless at the end of a path."""
        i: cython.Py_ssize_t = len(tokens)
        node: Node = nodes[i]
        while i > 0 and node.is_needless():
            i -= 1
            node = nodes[i]
            node.drop_child(tokens[i])
            self.node_count -= 1

    def matching(self, name: bytes) -> list[Node]:
        """List the nodes of all patterns that match a name.

        Cost: 0.1 µs per token; at most a visit to every node that is not deeper than the name.
        """
        found: list[Node] = []
        level: list[Node] = [self.root]
        following: list[Node]
        tokens: list[bytes] = tokens_of_name(name)
        token: bytes
        node: Node
        child: Node | None
        if not tokens:
            return found
        for token in tokens:
            following = []
            self.visited += len(level)
            for node in level:
                if node.rest is not None:
                    found.append(node.rest)
                if node.star is not None:
                    following.append(node.star)
                child = node.find_child(token)
                if child is not None:
                    following.append(child)
            if not following:
                return found
            level = following
        self.visited += len(level)
        for node in level:
            if node.has_entries():
                found.append(node)
        return found

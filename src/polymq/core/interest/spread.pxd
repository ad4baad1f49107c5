from polymq.core.interest.cache cimport Match, MatchCache
from polymq.core.interest.groups cimport Chooser, Group
from polymq.core.interest.interest cimport Interest
from polymq.core.interest.targets cimport Entry, Target
from polymq.core.interest.trie cimport Node
from polymq.wire.inline cimport bytes_at, equal_bytes

"""Who wants what is published now: patterns of names, those who inserted them, and what a batch of messages means to each.

A name is bytes made of tokens with dots between them; in a pattern a token `*` stands for any one token, and `>` at the
end for one or more. Nothing here is kept on disk, and nothing is made per message. Read in this order: `names.py`,
`targets.py` (who takes), `groups.py` (one of several takes), `trie.py`, `cache.py`, `interest.py` (one namespace), and
`spread.py`, the hot path.
"""

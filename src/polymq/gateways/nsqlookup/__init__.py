"""polymq as nsqlookupd: who has which topics (`registry.py`), told over TCP (`tcp.py`) and asked over HTTP (`http.py`).

What polymq itself serves is in the registry too (`own.py`). Nothing is kept on the disk: nodes tell it again.
"""

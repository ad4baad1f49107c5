"""The command line: `polymq serve`, `publish`, `consume`, `tail`, `inspect`, `stats`, and what optional parts add.

`commands.py` says which commands there are, `main.py` is the entry; each command is a module of its own, imported
only when it is asked for, so that `polymq serve` starts as quickly as its own imports allow.
"""

"""Compares pump ÷ inverted across platforms, measured and simulated, with what is expected of each.

`read.py` turns artifacts into rows of cells, `expect.py` reads expectations.toml, `judge.py` holds the ones against the
others, `table.py` prints; `gather.py` makes artifacts on the machine that it runs on. `python3 -m matrix --help`.
"""

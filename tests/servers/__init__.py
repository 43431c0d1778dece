"""Servers that tests stand on: found where they run already, else brought along. `fixtures.py` is the way in."""

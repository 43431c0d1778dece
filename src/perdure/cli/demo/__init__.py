"""The demo: index the standard library, kill the worker part way, finish all the same, and prove it.

`workflows` is what a user of Perdure would write; everything else drives it and checks on it.
"""

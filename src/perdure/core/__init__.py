"""The replay core: from a history and an inbox to commands. No clock, no I/O, no threads, no global random.

`loop` is the deterministic asyncio loop, `operation` what a body can issue, `instance` one run in memory (a turn at a time),
`replay` holds history against what the code issues, `settle` turns a turn into the one value that stores apply.
"""

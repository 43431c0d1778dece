"""The SQL of each schema as it was released: what runs at our users' is never edited, only added to.

`python -m tests.integration.releases` keeps a copy of every migration that has none yet; with `--again` also of the newest one,
while that is not released.
"""

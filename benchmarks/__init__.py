"""How fast Perdure is, measured through its public API: `python -m benchmarks`. See docs/performance.md."""

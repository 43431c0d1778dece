"""Adapters of the Store port, side by side. They see `ports`, `wire` and `model` only and never import each other."""

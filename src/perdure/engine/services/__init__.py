"""Background loops, one a file, each with the same shape: `start()` and `await stop()`."""

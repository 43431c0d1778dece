"""The shell around the core: claim, load, advance, settle, commit, announce. Everything here runs on one event loop, but for
the renewal and watchdog threads and the threads of synchronous steps. `services` holds one background loop a file."""

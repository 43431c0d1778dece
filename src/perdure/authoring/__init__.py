"""What a user imports: workflows, steps, the context, the registry. No clock, I/O, threads or chance."""

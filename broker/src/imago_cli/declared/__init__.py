"""Topics and groups as a file says them: `imago export`, `imago apply`."""

"""ImagoMirrors: the objects that a mirror's process runs in, and what is said of it."""

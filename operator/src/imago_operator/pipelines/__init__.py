"""ImagoPipeline: what is to run, what is there, what to do about it, what to say of it."""

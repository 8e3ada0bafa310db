"""Parts of the offline check: one module a kind of file. The door is `imago_log.check`."""

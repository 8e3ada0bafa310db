"""Every key of the configuration: default, range, meaning, what it has to do with others."""

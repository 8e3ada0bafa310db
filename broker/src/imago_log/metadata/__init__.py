"""Topics, groups, offsets and producers: state that lives in the log."""

"""Break a whole cluster under load, one fault after another, and check every promise."""

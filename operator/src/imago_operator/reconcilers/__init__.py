"""One reconciler for each kind."""

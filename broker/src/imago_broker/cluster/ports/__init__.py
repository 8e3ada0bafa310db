"""The ports of `imago_broker.ports` over a tree of nodes."""

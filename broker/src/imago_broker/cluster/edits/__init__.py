"""Safe changes of nodes that many processes share: compare and set, claims."""

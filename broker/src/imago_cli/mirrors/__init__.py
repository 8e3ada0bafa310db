"""`imago mirror`: copy topics of one cluster to another."""

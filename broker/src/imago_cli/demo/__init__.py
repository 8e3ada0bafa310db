"""`imago demo`: both protocols and Spark agree on real records."""

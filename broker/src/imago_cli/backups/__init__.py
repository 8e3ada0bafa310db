"""`imago backup`: what a running cluster does (`taking`), and what the bucket alone tells
(`buckets`, `checking`, `restored`)."""

"""The public tree in which MetaQ's clients look for brokers, and what they write there."""

"""What a shard's master does by itself so that all shards serve as one cluster.

Topics that sends have made are opened on other shards, users and rules are exchanged, and a shard
that is drained is read out. It runs whether or not this broker has an admin interface; others are
asked over theirs. So of two shards one at least needs an admin interface for them to exchange
users, and nothing is opened on a shard whose master has none.
"""

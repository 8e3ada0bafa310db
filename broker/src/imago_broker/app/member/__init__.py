"""This broker as a member of its shard, alone or among others, and what its role means."""

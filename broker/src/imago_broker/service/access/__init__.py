"""Users, rules and limits: kept in the log, copied between shards, decided on the fast path."""

"""Routes by what they show and change: topics, groups, users, messages, the whole cluster."""

"""All queues of a store: found, opened, written behind, refilled."""

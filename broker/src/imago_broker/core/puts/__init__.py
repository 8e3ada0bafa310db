"""What a put waits for, and whether an idempotent producer's is new."""

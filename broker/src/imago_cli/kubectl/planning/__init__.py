"""What an edit of a cluster would bring about."""

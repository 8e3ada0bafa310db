"""What this process wants in the registry, and the pass that makes it stand there."""

"""Routes about what is there at this moment and kept nowhere: who is connected."""

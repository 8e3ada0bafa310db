"""Routes about what there is at this moment: who is connected, and which messages wait."""

"""`imago doctor`: common mistakes on this machine, each with its cure."""

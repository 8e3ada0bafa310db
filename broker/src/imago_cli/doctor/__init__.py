"""`imago doctor`: the usual mistakes on this machine, each with its cure."""

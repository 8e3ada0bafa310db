"""`imago up`: a cluster of real processes on this machine."""

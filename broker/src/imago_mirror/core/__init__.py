"""What the mirror decides, without a socket or a clock."""

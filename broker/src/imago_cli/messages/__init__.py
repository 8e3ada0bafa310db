"""Commands that send, read and measure messages."""

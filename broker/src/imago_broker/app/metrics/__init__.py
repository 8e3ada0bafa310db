"""The metrics of a broker: name, help, and where each is read from."""

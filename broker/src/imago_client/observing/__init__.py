"""What a program can see of its clients: interceptors, counters, and hooks for what shows them."""

"""The operator as a process: lease, work queue, events, its own HTTP and metrics."""

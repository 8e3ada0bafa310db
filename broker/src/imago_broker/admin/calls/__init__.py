"""What stands around every call: who calls, forms of errors, repetitions, calls between brokers."""

"""Settings of brokers as data, made from the brokers' own: keys, bounds, what goes with what."""

"""Commands that run servers: broker, name service, operator, ZooKeeper."""

"""ImagoCluster, part by part: brokers, ZooKeeper, TLS, status."""

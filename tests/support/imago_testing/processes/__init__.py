"""Processes that tests start: brokers, `imago up`, ZooKeeper; ports that are theirs."""

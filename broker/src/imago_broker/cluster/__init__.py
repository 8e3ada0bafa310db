"""The cluster registry over a tree of nodes: ZooKeeper's, or one in memory."""

"""The session with ZooKeeper: how it is had, how long it surely lasts, who may touch our nodes."""

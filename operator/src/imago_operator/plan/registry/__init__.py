"""What the plan does about ZooKeeper: what the registry says, where its servers run."""

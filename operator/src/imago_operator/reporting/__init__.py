"""What a cluster's status says: conditions, addresses for clients, whether they can put and get."""

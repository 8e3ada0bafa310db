"""Commands about clusters, shards and topics."""

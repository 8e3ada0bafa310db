"""Routes of MetaQ's management operations, its dashboard and its messages over HTTP."""

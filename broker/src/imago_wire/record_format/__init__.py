"""Where everything stands in a record: fixed fields, properties, entries, tags, sequences."""

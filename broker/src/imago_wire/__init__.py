"""Both protocols and the record format as sans-IO codecs."""

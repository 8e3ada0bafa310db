"""Keys and certificates: made by `openssl`, written into Secrets."""

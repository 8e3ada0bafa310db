"""Users, rules, limits per tenant and lists of addresses as values."""

"""How a kind is declared: fields, bounds, rules, columns, and the schema that follows."""

"""The custom resources as typed values: schemas, rules, pages and checks all come from here."""

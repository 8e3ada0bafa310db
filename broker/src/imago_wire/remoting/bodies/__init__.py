"""JSON bodies, one module for each group of request codes; `fields` declares them."""

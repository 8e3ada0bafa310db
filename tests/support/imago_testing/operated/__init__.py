"""A model of operated clusters, on which the plans of the operator are carried out."""

"""Texts inside of headers and bodies: message ids, handles, subscriptions, traces, properties."""

"""The hot part of the port of SDKs, each function twice: plain and compiled."""

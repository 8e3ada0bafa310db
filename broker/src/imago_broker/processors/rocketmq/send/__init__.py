"""Sends in all their forms, from bytes to answer: plain, delayed, half, given back."""

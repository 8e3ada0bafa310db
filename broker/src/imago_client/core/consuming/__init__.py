"""Operations that read: membership, pulls, POP, what is in work."""

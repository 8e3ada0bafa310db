"""Commands about users, rights and secrets."""

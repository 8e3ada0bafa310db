"""What somebody on call asks first: one command each, and all of it in one file."""

"""What one step of a member does: it stands for election, follows, leads, hands over."""

"""What the nodes say about their OS definitions."""

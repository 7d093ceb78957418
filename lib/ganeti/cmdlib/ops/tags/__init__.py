"""Parts of the operations on tags."""

"""What Sphinx needs to make HTML pages of the documentation."""

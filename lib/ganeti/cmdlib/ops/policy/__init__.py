"""Instance policies."""

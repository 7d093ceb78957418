"""Network interfaces of instances: specifications and changes."""

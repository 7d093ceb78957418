"""Running guests: power, location, console, hot-plugging, helper guests."""

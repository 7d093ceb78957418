"""Running guests: power, console, hot-plugging, helper guests, removal."""

"""The checks of cluster verification, a module for each subject."""

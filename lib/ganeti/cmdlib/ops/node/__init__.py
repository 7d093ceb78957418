"""Functions and base classes which the operations on nodes share: roles, candidates, evacuation,
storage."""

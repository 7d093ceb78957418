"""Parts of the operations on nodes: roles, candidates, evacuation, storage queries."""

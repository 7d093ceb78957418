"""Creation of an instance: the steps of ``OP_INSTANCE_CREATE``."""

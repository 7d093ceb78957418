"""Parts of the operations which test the daemons themselves."""

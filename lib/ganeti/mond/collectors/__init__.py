"""What the monitoring daemon measures: a module for each subject, without state but for loads."""

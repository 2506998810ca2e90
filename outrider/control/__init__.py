"""The watch: jobs, progress, supervisor, watchdog."""

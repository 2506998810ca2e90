"""SQLite: one writing thread with group commit, readers beside it, and the text of every statement."""

"""What two processes do at once on PostgreSQL: at every statement of the one, the other runs as far as it can."""

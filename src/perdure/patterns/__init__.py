"""Programs built only on what a user imports: free functions and workflows, no private door."""

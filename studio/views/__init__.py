"""What a view shows, computed from the session: pages draw it, routes send it."""

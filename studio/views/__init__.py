"""What an address asks for, from the session: pages draw it, routes send it."""

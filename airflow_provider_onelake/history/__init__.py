"""Where rows are now, and which commit took them."""

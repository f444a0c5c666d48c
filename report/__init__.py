"""What people read: the text of a divergence, Markdown and HTML."""

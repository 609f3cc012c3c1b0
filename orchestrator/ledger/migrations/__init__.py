"""How the tables came to be: one revision a change, run by Alembic."""

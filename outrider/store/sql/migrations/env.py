"""Alembic's entry point: runs the versions on the connection that `migrate` hands over."""

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    version_table="outrider_version",
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()

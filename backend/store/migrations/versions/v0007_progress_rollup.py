"""The figures of batches per minute and per hour, and which batches they hold.

Rule: a released migration never changes; the next one amends it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

SUMS = ("output_rows", "dropped_rows", "input_rows_per_s", "processed_rows_per_s", "duration_ms")


def upgrade() -> None:
    op.add_column("progress", sa.Column("counted", sa.Boolean))
    is_new = sa.text("counted IS NULL")
    op.create_index("ix_progress_new", "progress", ["stream", "id"], sqlite_where=is_new, postgresql_where=is_new)
    whole, exact = sa.BigInteger(), sa.Float(53)
    op.create_table(
        "progress_rollup",
        sa.Column("stream", sa.Text, primary_key=True),
        sa.Column("grain_s", sa.Integer, primary_key=True),
        sa.Column("at", sa.DateTime(timezone=True), primary_key=True),
        sa.Column("run_id", sa.Text, primary_key=True),
        sa.Column("query_id", sa.Text, nullable=False),
        sa.Column("batches", whole, nullable=False),
        sa.Column("first_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("first_batch", whole, nullable=False),
        sa.Column("last_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_batch", whole, nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("input_rows", whole, nullable=False),
        *(
            sa.Column(f"{name}{part}", exact if name.endswith("_per_s") and not part else whole, nullable=False)
            for name in SUMS
            for part in ("", "_known")
        ),
        sa.Column("longest_ms", whole),
        sa.Column("phases_ms", sa.JSON, nullable=False),
        sa.Column("watermark", sa.DateTime(timezone=True)),
        sa.Column("state_rows", whole),
        sa.Column("most_behind_ms", whole),
        sa.Column("most_unread_rows", whole),
        sa.Column("expectations", sa.JSON, nullable=False),
    )
    op.create_index("ix_progress_rollup_age", "progress_rollup", ["grain_s", "at"])


def downgrade() -> None:
    op.drop_table("progress_rollup")
    op.drop_index("ix_progress_new", "progress")
    op.drop_column("progress", "counted")

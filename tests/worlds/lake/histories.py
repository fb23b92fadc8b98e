"""A table that grows by random commits, as its tests ask for them."""

from pathlib import Path
from random import Random

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake


class History:
    """A table that grows by random commits; `has_key`: ids stay unique."""

    def __init__(self, root: Path, random: Random, *, has_key: bool) -> None:
        self.path = root / "t"
        self.random, self.has_key, self.next_id, self.extra = random, has_key, 0, 0
        self.days = random.choice([["mon", "tue", None], ["mon", "tue/wed", "50%", None]])  # the feed misses the latter
        partition = random.choice([None, ["day"]])
        feed = {"delta.enableChangeDataFeed": "true"}
        write_deltalake(self.path, self.rows(8), partition_by=partition, configuration=feed)

    def rows(self, count: int) -> pa.Table:
        ids = [self.next_id + i for i in range(count)] if self.has_key else [self.random.randrange(4)] * count
        self.next_id += count
        columns = {
            "id": pa.array([*ids[:-1], None] if not self.has_key else ids, pa.int64()),
            "day": pa.array([self.random.choice(self.days) for _ in ids], pa.string()),
            "v": pa.array([self.random.choice("abc") for _ in ids], pa.string()),
            "f": pa.array([self.random.choice([0.5, float("nan"), None, -0.0]) for _ in ids], pa.float64()),
        }
        for number in range(self.extra):
            columns[f"x{number}"] = pa.array([self.random.choice([1, 2, None]) for _ in ids], pa.int32())
        return pa.table(columns)

    def grow(self) -> None:
        acts = [self.append, self.append, self.update, self.update, self.delete, self.compact, self.widen]
        self.random.choice([*acts, self.overwrite, self.upsert])()

    def append(self) -> None:
        write_deltalake(self.path, self.rows(self.random.randint(1, 5)), mode="append", schema_mode="merge")

    def update(self) -> None:
        column, value = self.random.choice([("v", "'z'"), ("day", "'sun'"), ("f", "f + 1")])
        table = DeltaTable(self.path)
        table.update(updates={column: value}, predicate=f"id % {self.random.randint(1, 3)} = 0")

    def overwrite(self) -> None:
        write_deltalake(self.path, self.rows(self.random.randint(1, 5)), mode="overwrite")

    def upsert(self) -> None:
        """A MERGE of a row that is there, or was, and of one that is not."""
        if not self.has_key:
            return self.append()
        rows = self.rows(2)
        rows = rows.set_column(0, "id", pa.array([self.random.randrange(self.next_id - 2), self.next_id - 1]))
        merge = DeltaTable(self.path).merge(rows, "t.id = s.id", source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
        return None

    def delete(self) -> None:
        DeltaTable(self.path).delete(f"v = '{self.random.choice('abc')}' AND id > {self.next_id // 2}")

    def compact(self) -> None:
        DeltaTable(self.path).optimize.compact()

    def repeat(self) -> None:
        """Rows whose keys are null, or those of other rows."""
        ids = [self.random.choice([None, self.random.randrange(self.next_id)]) for _ in range(3)]
        rows = self.rows(3)
        rows = rows.set_column(rows.schema.get_field_index("id"), "id", pa.array(ids, pa.int64()))
        write_deltalake(self.path, rows, mode="append", schema_mode="merge")

    def widen(self) -> None:
        self.extra += 1
        self.append()

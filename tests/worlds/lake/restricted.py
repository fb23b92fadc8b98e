"""A lake with a restricted table, a table with restricted columns and an open one; the values that may not be seen."""

import json
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from tests.worlds.lake import builders

PEOPLE, CUSTOMERS, ORDERS = "silver/people", "silver/customers", "silver/orders"
SECRETS = ("zzoe", "yyuri", "987654", "876543", "987,654", "876,543", "@secret", "hush lane", "nowhere")
GRANTS = json.dumps(
    [
        {"role": "viewer", "user": "ann", "on": [PEOPLE, CUSTOMERS]},
        {"role": "admin", "user": "bob", "on": ["silver/*", "silver/peopl?", "SILVER/PEOPLE", "stream:silver/people"]},
        {"role": "admin", "user": "cem"},
    ]
)
TAG = {"catalog.table.classification": " Restricted"}


def restricted_lake(root: Path) -> Path:
    """silver/people: 0 two rows, 1 one more, 2 one changed, 3 its tag. silver/customers: email and address.street are
    restricted, 0 two rows, 1 one changed. silver/orders is open."""
    people = root / PEOPLE
    builders.write(
        people,
        {"id": [1, 2], "name": ["zzoe", "bo"], "salary": [987654, 10], "town": ["Nowhere", "Ulm"]},
        partition_by=["town"],
        configuration=builders.CHANGE_FEED,
    )
    builders.write(people, {"id": [3], "name": ["yyuri"], "salary": [876543], "town": ["Nowhere"]})
    DeltaTable(str(people)).update(updates={"salary": "salary + 1"}, predicate="id = 2")
    DeltaTable(str(people)).alter.set_table_properties(TAG, raise_if_not_exists=False)
    street = pa.field("street", pa.string(), metadata={"classification": "restricted"})
    fields = [
        pa.field("id", pa.int64()),
        pa.field("email", pa.string(), metadata={"classification": "RESTRICTED"}),
        pa.field("address", pa.struct([pa.field("city", pa.string()), street])),
        pa.field("amount", pa.int64()),
    ]
    where = [{"city": "Ulm", "street": "1 hush lane"}, {"city": "Bonn", "street": "2 hush lane"}]
    rows = [[1, 2], ["zzoe@secret.example", "bo@secret.example"], where, [5, 7]]
    table = pa.table([pa.array(each, field.type) for each, field in zip(rows, fields, strict=True)], pa.schema(fields))
    builders.write(root / CUSTOMERS, table)
    changed = {"email": "'ann@secret.example'", "amount": "6"}
    DeltaTable(str(root / CUSTOMERS)).update(updates=changed, predicate="id = 1")
    builders.write(root / ORDERS, {"order_id": [10, 11], "person_id": [1, 3]})
    return root


def leaked(text: str) -> list[str]:
    """The values of a text that may not be seen."""
    return [secret for secret in SECRETS if secret in text.lower()]

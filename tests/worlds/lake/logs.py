"""Random Delta logs, small and legal, with everything that writers are seen to leave in them.

Rule: one seed, one log. `grow` adds one commit and perhaps what lies beside it; nothing here reads through Weir.
"""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from tests.worlds.lake.builders import ADD_FIELDS, CHECKPOINT_TYPES, HandLog, shaped
from tests.worlds.streams.replay import Action, Key, State, key_of, marked_rows, replayed

START_MS = 1_700_000_000_000
SIZES = (0, 1, 7, 99, 100, 101, 4096, 2**31, 2**53 - 1, 2**53 + 1, 2**57)
VALUES: dict[str, tuple[str | None, ...]] = {  # partition columns and what is found in them
    "p": (None, "", "a b", "x=y", "c/d", "ü%20", "2026-01-01", "100%", "ключ", "'\"", "a\\b", "12.50", "+:&?#"),
    "day": (None, "", "2026-01-01", "2026-01-02", "0001-01-01"),
    "n m": (None, "0", "-5", "9223372036854775807"),
}
COLUMNS = {"id": "long", "p": "string", "day": "date", "n m": "long", "amount": "decimal(10,2)", "naïve col": "string"}
FEATURES = ("deletionVectors", "v2Checkpoint", "columnMapping", "timestampNtz", "typeWidening", "vacuumProtocolCheck")
WRITER_FEATURES = ("appendOnly", "domainMetadata", "rowTracking", "inCommitTimestamp", "clustering", "fromTheFuture")
OPERATIONS = ("WRITE", "MERGE", "DELETE", "OPTIMIZE", "STREAMING UPDATE", "RESTORE", "VACUUM END", "UNKNOWN")
ODD_INFOS: tuple[Any, ...] = ("text", 5, [], {}, {"timestamp": "yesterday", "operation": 7}, {"operationMetrics": [1]})
STATISTICS = ("json", "json", "json", "both", "struct", "none")  # of checkpoints: "none" forgets the rows
KINDS = ("classic", "classic-v2", "multi", "json", "json-inline", "parquet", "parquet-inline")


def commit_name(version: int) -> str:
    return f"{version:020d}.json"


class RandomLog:
    """A table that grows by chance. `commits` and `states` are its actions and what they came to, by version."""

    def __init__(self, table: Path, random: Random, statistics: Sequence[str] = STATISTICS) -> None:
        self.table, self.random, self.checkpoint_statistics = table, random, statistics
        self.hand = HandLog(table)
        self.log = self.hand.log
        self.commits: list[list[Action]] = []
        self.state = State()
        self.states: list[State] = []
        self.tombstones: dict[Key, Action] = {}
        self.transactions: dict[str, Action] = {}
        self.domains: dict[str, Action] = {}
        self.checkpoints: list[int] = []
        self.wrong_checksums: set[int] = set()
        self.paths = 0
        self._draw_habits()

    def _draw_habits(self) -> None:
        """What this table's writers do, the same in all its commits."""
        random = self.random
        self.partition_by: list[str] = random.choice([[], [], ["p"], ["day", "n m"]])
        self.mapping = random.choice(["none", "none", "none", "name", "id"])
        self.has_vectors = random.random() < 0.5
        self.has_statistics = random.choice([1.0, 1.0, 1.0, 0.7, 0.0])
        self.has_v2 = random.random() < 0.5
        self.checkpoint_share = random.choice([0.0, 0.1, 0.1, 0.3])
        self.checksum_share = random.choice([0.0, 0.0, 0.3, 1.0])
        self.wrong_share = random.choice([0.0, 0.0, 0.0, 0.5])
        self.value_pool = {name: random.sample(values, 3) for name, values in VALUES.items()}
        self.in_commit_times = random.random() < 0.2

    @property
    def version(self) -> int:
        return len(self.commits) - 1

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    # -- commits ---------------------------------------------------------------------------------------------------

    def grow(self) -> None:
        """One more commit, and by chance a checkpoint, a checksum and a log compaction."""
        actions = self._start() if not self.commits else []
        if self.commits and self.chance(0.08):
            actions += self._replace() if self.chance(0.3) else [self._metadata()]
        if self.commits and self.chance(0.05):
            actions.append(self._protocol())
        actions += self._file_actions({key_of(a["remove"])[0] for a in actions if "remove" in a})
        actions += self._other_actions()
        self._shuffle_in_info(actions)
        self._write_commit(actions)
        if self.chance(self.checksum_share):
            self._write_checksum()
        if self.chance(self.checkpoint_share):
            self.checkpoint()
        if self.version and self.chance(0.04):
            self.compact(self.random.randrange(self.version), self.version)

    def _start(self) -> list[Action]:
        first = [self._protocol(), self._metadata()]
        self.random.shuffle(first)
        return first

    def _protocol(self) -> Action:
        if self.has_vectors or self.has_v2 or self.chance(0.3):
            readers = [*FEATURES[:3], *self.random.sample(FEATURES[3:], self.random.randint(0, 3))]
            writers = [*readers, *self.random.sample(WRITER_FEATURES, self.random.randint(0, 6))]
            versions = {"minReaderVersion": 3, "minWriterVersion": 7}
            return {"protocol": versions | {"readerFeatures": readers, "writerFeatures": writers}}
        reader = 1 if self.mapping == "none" else 2
        return {"protocol": {"minReaderVersion": reader, "minWriterVersion": self.random.choice([5, 6])}}

    def _metadata(self) -> Action:
        random = self.random
        columns = ["id", *self.partition_by, *random.sample(["amount", "naïve col"], random.randint(0, 2))]
        configuration = {f"custom.{n}": f'wert {n} "ü"' for n in range(random.randint(0, 2))}
        if self.chance(0.5):
            configuration["delta.targetFileSize"] = random.choice(["200", "1kb", "128mb"])
        if self.mapping != "none":
            configuration["delta.columnMapping.mode"] = self.mapping
        body: Action = {
            "id": f"{random.getrandbits(128):032x}" if self.state.metadata is None else self.state.metadata["id"],
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": [self._column(name) for name in columns]}),
            "partitionColumns": list(self.partition_by),
            "configuration": configuration,
        }
        if self.chance(0.7):
            body |= {"name": random.choice([None, "orders"]), "description": "line 1\nline 2", "createdTime": START_MS}
        return {"metaData": body}

    def _column(self, name: str) -> Action:
        about: Action = {}
        if self.mapping != "none":
            number = 1 + list(COLUMNS).index(name)
            about = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": self._physical(name)}
        return {"name": name, "type": COLUMNS[name], "nullable": True, "metadata": about}

    def _physical(self, name: str) -> str:
        return name if self.mapping == "none" else f"col-{name.encode().hex()}"

    def _replace(self) -> list[Action]:
        """CREATE OR REPLACE: every file leaves, and the partitioning may be another one."""
        gone = [{"remove": self._tombstone(add)} for add in self.state.files.values()]
        self.tombstones.clear()  # from here on they are history: their partitions may not be the new ones
        self.state = State(protocol=self.state.protocol, metadata=self.state.metadata)
        self.partition_by = self.random.choice([[], ["p"], ["day", "n m"]])
        return [*gone, self._metadata()]

    def _file_actions(self, touched: set[str]) -> list[Action]:
        """A commit names a file once, or removes it under one deletion vector and adds it under another."""
        actions: list[Action] = []
        for _ in range(self.random.choice([0, 1, 1, 2, 3, 4])):
            live = [add for key, add in self.state.files.items() if key[0] not in touched]
            gone = [add for key, add in self.tombstones.items() if key[0] not in touched]
            gone = [add for add in gone if not any(key[0] == key_of(add)[0] for key in self.state.files)]
            made = self._file_step(live, gone)
            touched |= {key_of(body)[0] for action in made for body in action.values()}
            actions += made
        if actions and self.chance(0.05):
            actions.append(dict(self.random.choice(actions)))  # the same action once more
        return actions

    def _file_step(self, live: list[Action], gone: list[Action]) -> list[Action]:
        """One file added, added once more (new statistics), removed, brought back or given another vector."""
        choice = self.random.random()
        if not live or choice < 0.45:
            if gone and self.chance(0.3):
                return [{"add": {**self.random.choice(gone)}}]
            return [{"add": self._new_file()}]
        add = self.random.choice(live)
        if choice < 0.55:
            return [{"add": {**add, "dataChange": False, "modificationTime": add["modificationTime"] + 1}}]
        if choice < 0.75 or not self.has_vectors:
            return [{"remove": self._tombstone(add)}]
        return self._new_vector(add)

    def _new_vector(self, add: Action) -> list[Action]:
        vector = None if add.get("deletionVector") and self.chance(0.3) else self._vector()
        changed = {key: value for key, value in add.items() if key != "deletionVector"}
        if vector is not None:
            changed["deletionVector"] = vector
        made: list[Action] = [{"remove": self._tombstone(add)}, {"add": changed}]
        if key_of(changed) == key_of(add):
            return made[1:]
        self.random.shuffle(made)
        return made

    def _vector(self) -> Action:
        kind = self.random.choice(["u", "u", "i", "p"])
        number = self.random.randrange(10**6)
        text = {"u": f"{number:020d}", "i": f"inline{number}", "p": f"{self.table}/dv-{number}.bin"}[kind]
        if kind == "u" and self.chance(0.3):
            text = f"ab{text}"  # in a folder with a random name
        body = {
            "storageType": kind,
            "pathOrInlineDv": text,
            "sizeInBytes": 36,
            "cardinality": self.random.randint(0, 3),
        }
        return body if kind == "i" else body | {"offset": self.random.choice([1, 45])}

    def _new_file(self) -> Action:
        random = self.random
        values = {self._physical(name): random.choice(self.value_pool[name]) for name in self.partition_by}
        body: Action = {
            "path": self._new_path(values),
            "partitionValues": values,
            "size": random.choice(SIZES) if self.chance(0.5) else random.randrange(2_000_000),
            "modificationTime": START_MS + random.randrange(10**9),
            "dataChange": True,
        }
        if self.chance(self.has_statistics):
            body["stats"] = self._statistics(random.choice([3, 10, 1000, 2**40]))
        if self.has_vectors and self.chance(0.2):
            body["deletionVector"] = self._vector()
        if self.chance(0.2):
            body |= {"tags": {"ZCUBE_ID": "x"}, "baseRowId": 5, "defaultRowCommitVersion": 1, "clusteringProvider": "l"}
        return body

    def _new_path(self, values: dict[str, str | None]) -> str:
        """As Spark escapes it for Hive and then for a URI, or shorter."""
        self.paths += 1
        name = f"part-{self.paths:05d}.parquet"
        style = self.random.choice(["plain", "hive", "hive", "odd"])
        if style == "hive":
            parts = [f"{key}={quote(value or '__HIVE_DEFAULT_PARTITION__', safe='')}" for key, value in values.items()]
            return quote("/".join([*parts, name]), safe="/=")
        odd = self.random.choice(["a b/", "ü/", "a%20b/", "%C3%BC/", "x+y/", "..a/", "a%2525/"])
        return odd + name if style == "odd" else name

    def _statistics(self, rows: int) -> str:
        stats: Action = {"numRecords": rows}
        if self.chance(0.5):
            stats |= {"minValues": {"id": 1, "numRecords": 9}, "maxValues": {"id": 5}, "nullCount": {"id": 0}}
        if self.chance(0.3):
            stats = dict(reversed(stats.items())) | {"tightBounds": True}
        return json.dumps(stats, separators=self.random.choice([(",", ":"), (", ", ": "), (" , ", " : ")]))

    def _tombstone(self, add: Action) -> Action:
        body: Action = {"path": add["path"], "deletionTimestamp": START_MS, "dataChange": True}
        if add.get("deletionVector"):
            body["deletionVector"] = add["deletionVector"]
        if self.chance(0.7):
            body |= {"extendedFileMetadata": True, "partitionValues": add["partitionValues"], "size": add["size"]}
            if "stats" in add and self.random.getrandbits(2):
                body["stats"] = add["stats"]
        return body

    def _other_actions(self) -> list[Action]:
        """What a reader of files may pass over."""
        actions: list[Action] = []
        if self.chance(0.2):
            actions.append({"txn": {"appId": self.random.choice("ab"), "version": len(self.commits)}})
        if self.chance(0.1):
            removed = self.chance(0.3)
            actions.append({"domainMetadata": {"domain": "d.x", "configuration": '{"a":1}', "removed": removed}})
        if self.chance(0.1):
            change = {"path": "_change_data/c.parquet", "partitionValues": {}, "size": 5, "dataChange": False}
            actions.append({"cdc": change})
        if self.chance(0.05):
            actions.append({"actionFromTheFuture": {"path": "z", "size": 1}})
        return actions

    def _shuffle_in_info(self, actions: list[Action]) -> None:
        info = self._info()
        if info is None and not actions:
            actions.append({"txn": {"appId": "quiet", "version": len(self.commits)}})
        if info is not None:
            actions.insert(0 if self.in_commit_times else self.random.choice([0, len(actions)]), {"commitInfo": info})

    def _info(self) -> Any:
        if not self.in_commit_times and self.chance(0.1):
            return self.random.choice([None, *ODD_INFOS])
        at = START_MS + 1000 * len(self.commits)
        info: Action = {"timestamp": at + self.random.randint(-5000, 5), "operation": self.random.choice(OPERATIONS)}
        if self.in_commit_times:
            info["inCommitTimestamp"] = at
        if self.chance(0.5):
            info |= {"operationParameters": {"mode": "Append"}, "operationMetrics": {"numOutputRows": "7"}}
        return info

    def _write_commit(self, actions: list[Action]) -> None:
        lines = [json.dumps(self._dressed(action), ensure_ascii=self.chance(0.5)) for action in actions]
        end = "" if lines and self.chance(0.1) else "\n"
        gap = "\r\n" if self.chance(0.05) else "\n\n" if self.chance(0.05) else "\n"
        self.commits.append(actions)
        self._remember(actions)  # first, so that whoever reads the commit finds what to compare it with
        path = self.hand.raw(commit_name(self.version), gap.join(lines) + end)
        at_ns = (START_MS + 1000 * len(self.commits)) * 10**6  # grows: a clean-up moves no commit's time
        os.utime(path, ns=(at_ns, at_ns))

    def _dressed(self, action: Action) -> Action:
        """Some writers spell the other kinds of a line as null."""
        if not self.chance(0.03):
            return action
        return {"add": None, "remove": None, "metaData": None, "protocol": None, "txn": None} | action

    def _remember(self, actions: list[Action]) -> None:
        before, self.state = self.state, replayed(self.state, actions)
        self.states.append(self.state)
        for key in before.files.keys() - self.state.files.keys():
            self.tombstones[key] = before.files[key]
        for key in self.state.files:
            self.tombstones.pop(key, None)
        for action in actions:
            if "txn" in action:
                self.transactions[action["txn"]["appId"]] = action
            if "domainMetadata" in action:
                self.domains[action["domainMetadata"]["domain"]] = action

    # -- beside the commits ------------------------------------------------------------------------------------------

    def compact(self, first: int, last: int) -> None:
        """`<first>.<last>.compacted.json`: what the commits of a range come to."""
        live: dict[tuple[str, Key], Action] = {}
        other: dict[str, Action] = {}
        for action in (action for commit in self.commits[first : last + 1] for action in commit):
            for kind, body in action.items():
                if kind in ("add", "remove"):
                    live.pop(("add", key_of(body)), None)
                    live.pop(("remove", key_of(body)), None)
                    live[kind, key_of(body)] = action
                elif kind in ("protocol", "metaData"):
                    other[kind] = action
        lines = [json.dumps(action) + "\n" for action in [*other.values(), *live.values()]]
        self.hand.raw(f"{first:020d}.{last:020d}.compacted.json", "".join(lines))

    def _write_checksum(self) -> None:
        files = self.state.files.values()
        body: Action = {
            "tableSizeBytes": sum(add["size"] for add in files),
            "numFiles": len(files),
            "numMetadata": 1,
            "numProtocol": 1,
            "metadata": self.state.metadata,
            "protocol": self.state.protocol,
        }
        if self.chance(0.5):
            body |= {"fileSizeHistogram": size_histogram([add["size"] for add in files])}
        if self.chance(0.5):
            vectors = [add for add in files if add.get("deletionVector")]
            deleted = sum(marked_rows(add) for add in vectors)
            body |= {"numDeletedRecordsOpt": deleted, "numDeletionVectorsOpt": len(vectors)}
        text = json.dumps(body)
        if self.chance(self.wrong_share):
            self.wrong_checksums.add(self.version)
            more = ({"numFiles": len(files) + 1}, {"tableSizeBytes": body["tableSizeBytes"] + 1})
            wrong = [*(json.dumps(body | each) for each in more), "garbage", "", "[]", text[: len(text) // 2]]
            text = self.random.choice(wrong)
        self.hand.raw(f"{self.version:020d}.crc", text)

    def checkpoint(self, kind: str | None = None) -> None:
        """A checkpoint of the newest version, whole or (rarely) in pieces, and perhaps `_last_checkpoint`."""
        kind = kind or self.random.choice(KINDS)
        files: list[Action] = [{"add": add} for add in self.state.files.values()]
        files += [{"remove": self._tombstone(add)} for add in self.tombstones.values() if self.chance(0.7)]
        self.random.shuffle(files)
        rest: list[Action] = [{"protocol": self.state.protocol}, {"metaData": self.state.metadata}]
        rest += [*self.transactions.values(), *self.domains.values()]
        self.random.shuffle(rest)
        classic = f"{self.version:020d}.checkpoint.parquet"
        write: dict[str, Callable[[list[Action], list[Action]], object]] = {
            "classic": lambda f, r: self._parquet(classic, r + f),
            "classic-v2": lambda f, r: self._parquet(classic, self._top(r) + self._sidecars(f)),
            "multi": self._multi,
            "json": lambda f, r: self._json(self._top(r) + self._sidecars(f)),
            "json-inline": lambda f, r: self._json(self._top(r) + f),
            "parquet": lambda f, r: self._parquet(self._unique("parquet"), self._top(r) + self._sidecars(f)),
            "parquet-inline": lambda f, r: self._parquet(self._unique("parquet"), self._top(r) + f),
        }
        write[kind](files, rest)
        self.checkpoints.append(self.version)
        self._write_hint()

    def _top(self, rest: list[Action]) -> list[Action]:
        return [{"checkpointMetadata": {"version": self.version}}, *rest]

    def _unique(self, end: str) -> str:
        text = f"{self.random.getrandbits(128):032x}"
        uuid = "-".join([text[:8], text[8:12], text[12:16], text[16:20], text[20:]])
        return f"{self.version:020d}.checkpoint.{uuid}.{end}"

    def _json(self, actions: list[Action]) -> None:
        self.hand.raw(self._unique("json"), "".join(json.dumps(action) + "\n" for action in actions))

    def _sidecars(self, files: list[Action]) -> list[Action]:
        made: list[Action] = []
        count = self.random.choice([1, 1, 2]) if files else self.random.choice([0, 1])
        for number in range(count):
            path = f"_sidecars/{self.random.getrandbits(64):016x}.parquet"
            (self.log / "_sidecars").mkdir(exist_ok=True)
            size = self._parquet(path, files[number::count]).stat().st_size
            made.append({"sidecar": {"path": path[10:], "sizeInBytes": size, "modificationTime": START_MS}})
        return made

    def _multi(self, files: list[Action], rest: list[Action]) -> None:
        count = self.random.choice([2, 3])
        for number in range(count):
            name = f"{self.version:020d}.checkpoint.{number + 1:010d}.{count:010d}.parquet"
            self._parquet(name, (rest + files)[number::count])

    def _parquet(self, name: str, actions: list[Action]) -> Path:
        table = checkpoint_table(actions, self.random.choice(self.checkpoint_statistics))
        draft = self.log / f".{Path(name).name}.tmp"
        options: dict[str, Any] = {} if self.chance(0.2) else {"compression": "none", "use_dictionary": False}
        pq.write_table(table, draft, row_group_size=self.random.choice([1, 3, None, None, None]), **options)
        return draft.rename(self.log / name)

    def _write_hint(self) -> None:
        hint = {"version": self.version, "size": len(self.state.files) + 2}
        style = self.random.choice(["right", "right", "right", "stale", "ahead", "garbage", "empty", "odd", "absent"])
        if style == "stale" and len(self.checkpoints) < 2:
            return
        texts = {
            "right": json.dumps(hint),
            "ahead": json.dumps(hint | {"version": self.version + 7}),
            "garbage": "\x00garbage",
            "empty": "",
            "odd": self.random.choice(["[]", "5", '{"version":"3"}', '{"version":-1}', "{}"]),
        }
        if style in texts:
            self.hand.raw("_last_checkpoint", texts[style])

    def damage(self) -> str:
        """Something that happens to logs; says what it was. Whatever can still be read must be read right."""
        accident = self.random.choice(["gap", "cut checkpoint", "missing part", "litter"])
        names = sorted(path.name for path in self.log.iterdir() if path.is_file())
        if accident == "gap" and self.version > 1:
            (self.log / commit_name(self.random.randrange(1, self.version))).unlink(missing_ok=True)
        elif accident == "cut checkpoint" and commit_name(0) in names:
            for name in [name for name in names if name.endswith(".parquet")][-1:]:
                path = self.log / name
                path.write_bytes(path.read_bytes()[: self.random.choice([0, 3, 100])])
        elif accident == "missing part" and commit_name(0) in names:
            for name in [name for name in names if name.count(".") == 4][-1:]:
                (self.log / name).unlink()
        else:
            for name in ("notes.txt", "00000000000000000000.json.crc~", f".{commit_name(3)}.crc", "99.json", "x.crc"):
                (self.log / name).write_text("litter")
            (self.log / "_staged_commits").mkdir(exist_ok=True)
        return accident

    def clean(self, before: int) -> None:
        """Metadata cleanup: everything older than a version that has a checkpoint."""
        for path in list(self.log.iterdir()):
            if path.name[:20].isdigit() and int(path.name[:20]) < before:
                path.unlink()
        if self.chance(0.2):
            (self.log / commit_name(before)).unlink(missing_ok=True)


def size_histogram(sizes: list[int]) -> Action:
    edges = [0, 8192, 2**20, 2**31, 2**50]
    places = [sum(size >= edge for edge in edges) - 1 for size in sizes]
    return {
        "sortedBinBoundaries": edges,
        "fileCounts": [places.count(n) for n in range(len(edges))],
        "totalBytes": [sum(s for s, p in zip(sizes, places, strict=True) if p == n) for n in range(len(edges))],
    }


# -- checkpoints as parquet ----------------------------------------------------------------------------------------

_BOUNDS = dict.fromkeys(("minValues", "maxValues", "nullCount"), pa.struct({"id": pa.int64()}))
_TEXT, _PARSED = {"stats": pa.string()}, {"stats_parsed": pa.struct({"numRecords": pa.int64()} | _BOUNDS)}
_STATISTICS_FIELDS = {"json": _TEXT, "struct": _PARSED, "both": _TEXT | _PARSED, "none": {}}


def checkpoint_table(actions: list[Action], statistics: str) -> pa.Table:
    """The rows of one checkpoint file. `statistics`: as `json` text, parsed `struct`, `both` or `none`."""
    types = {"add": pa.struct(ADD_FIELDS | _STATISTICS_FIELDS[statistics])} | {
        kind: kind_type for kind, kind_type in CHECKPOINT_TYPES.items() if any(kind in action for action in actions)
    }
    rows = [{kind: _with_parsed(kind, body) for kind, body in action.items()} for action in actions]
    columns = [pa.array([row.get(kind) for row in rows], kind_type) for kind, kind_type in types.items()]
    return pa.Table.from_arrays(columns, names=list(types))


def _with_parsed(kind: str, body: Action) -> Action:
    has_statistics = kind == "add" and body.get("stats")
    return shaped(kind, body) | ({"stats_parsed": json.loads(body["stats"])} if has_statistics else {})

"""Spark's JSON of a micro-batch, packed: half of what zlib alone makes of it, for every text has the same words.

Rule: `_WORDS` is a part of the format. What was packed with it can be read with the very same bytes alone, so it never
changes; what was packed without is read as well.
"""

import zlib

_WORDS = (
    b'"stateOperators":[{"operatorName":"dedupeWithinWatermark","numRowsTotal":0,"numRowsUpdated":0,'
    b'"allUpdatesTimeMs":0,"numRowsRemoved":0,"allRemovalsTimeMs":0,"commitTimeMs":0,"memoryUsedBytes":0,'
    b'"numRowsDroppedByWatermark":0,"numShufflePartitions":0,"numStateStoreInstances":0,"customMetrics":{'
    b'"loadedMapCacheHitCount":0,"loadedMapCacheMissCount":0,"numDroppedDuplicateRows":0,'
    b'"stateOnCurrentVersionSizeBytes":0}}],"eventTime":{"avg":"2026-01-01T00:00:00.000Z",'
    b'"max":"2026-01-01T00:00:00.000Z","min":"2026-01-01T00:00:00.000Z","watermark":"2026-01-01T00:00:00.000Z"},'
    b'"sources":[{"description":"KafkaV2[Subscribe[","startOffset":{"0":0},"endOffset":{"0":0},"latestOffset":{"0":0},'
    b'"metrics":{"avgOffsetsBehindLatest":"0.0","maxOffsetsBehindLatest":"0","minOffsetsBehindLatest":"0"}}],'
    b'"sources":[{"description":"FileStreamSource[file:/","startOffset":{"logOffset":0},"endOffset":{"logOffset":0},'
    b'"latestOffset":null,"description":"RateStreamV2[rowsPerSecond=1, rampUpTimeSeconds=0, numPartitions=default",'
    b'"startOffset":0,"endOffset":0,"latestOffset":0,{"id":"","runId":"","name":"",'
    b'"timestamp":"2026-01-01T00:00:00.000Z","batchId":0,"batchDuration":0,"numInputRows":0,"inputRowsPerSecond":0.0,'
    b'"processedRowsPerSecond":0.0,"durationMs":{"addBatch":0,"commitOffsets":0,"getBatch":0,"latestOffset":0,'
    b'"queryPlanning":0,"triggerExecution":0,"walCommit":0},"stateOperators":[],"sources":[{'
    b'"description":"DeltaSource[file:/","startOffset":{"sourceVersion":1,"reservoirId":"","reservoirVersion":0,'
    b'"index":-1,"isStartingVersion":false},"endOffset":{"sourceVersion":1,"reservoirId":"","reservoirVersion":0,'
    b'"index":-1,"isStartingVersion":false},"latestOffset":null,"numInputRows":0,"inputRowsPerSecond":0.0,'
    b'"processedRowsPerSecond":0.0}],"sink":{"description":"DeltaSink[file:/"},'
    b'"sink":{"description":"ForeachBatchSink","numOutputRows":-1},'
    b'"observedMetrics":{"expectations":{"_passed":0,"_failed":0}}}'
)


def pack(text: str) -> bytes:
    packing = zlib.compressobj(6, zdict=_WORDS)
    return packing.compress(text.encode()) + packing.flush()


def unpack(packed: bytes) -> str:
    unpacking = zlib.decompressobj(zdict=_WORDS)
    return (unpacking.decompress(packed) + unpacking.flush()).decode()

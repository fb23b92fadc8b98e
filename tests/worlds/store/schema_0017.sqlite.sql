BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0017');
CREATE TABLE attached_app (
	host_id TEXT NOT NULL, 
	name TEXT NOT NULL, 
	hostname TEXT NOT NULL, 
	pid INTEGER NOT NULL, 
	started_at DATETIME NOT NULL, 
	beat_at DATETIME NOT NULL, 
	spark_version TEXT, 
	spark_ui_url TEXT, 
	PRIMARY KEY (host_id)
);
CREATE TABLE attached_event (
	id INTEGER NOT NULL, 
	app_id TEXT NOT NULL, 
	body TEXT NOT NULL, 
	at FLOAT DEFAULT ((julianday('now') - 2440587.5) * 86400.0) NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE audit (
	id INTEGER NOT NULL, 
	at DATETIME NOT NULL, 
	actor TEXT NOT NULL, 
	action TEXT NOT NULL, 
	subject TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	detail TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "audit" VALUES(1,'2026-03-01 12:00:00.123456','ann','start','silver_orders','first','new → RUNNING, generation 1');
INSERT INTO "audit" VALUES(2,'2026-03-01 12:00:00.123456','ann','pin','silver/orders','the audit','v3 as may');
INSERT INTO "audit" VALUES(3,'2026-03-01 12:00:00.123456','ann','save query','Totals','for all','of ann: SELECT 1');
INSERT INTO "audit" VALUES(4,'2026-03-01 12:00:00.123456','ann','diff job','silver_orders','a first look','job 5c2cc1821588');
CREATE TABLE backlog (
	stream TEXT NOT NULL, 
	seen_at DATETIME NOT NULL, 
	body JSON NOT NULL, 
	PRIMARY KEY (stream)
);
INSERT INTO "backlog" VALUES('silver_orders','2026-03-01 12:00:00.123456','{"sources": [], "lags": [], "has_planned": null}');
CREATE TABLE declaration (
	name TEXT NOT NULL, 
	body JSON NOT NULL, 
	declared_at DATETIME NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "declaration" VALUES('silver_orders','{"name": "silver_orders", "description": "Orders as they stand", "source": "change feed of bronze/orders", "sink_uri": "/lake/silver/orders", "sink_table": "silver/orders", "source_tables": ["bronze/orders"], "layer": "silver", "trigger_interval_ms": 5000, "checkpoint_location": "/checkpoints/silver_orders", "expectations": ["amount > 0"], "kind": "streaming table", "pipeline": "", "inputs": [], "side_tables": [], "tags": {}, "reset_allowed": true, "sink": "append", "outside": "", "also": [], "spark_conf": {}, "tables": [], "code": ""}','2026-03-01 12:00:00.123456');
CREATE TABLE desired (
	name TEXT NOT NULL, 
	state TEXT NOT NULL, 
	generation INTEGER NOT NULL, 
	reason TEXT NOT NULL, 
	actor TEXT NOT NULL, 
	requested_at DATETIME NOT NULL, 
	overrides JSON, 
	PRIMARY KEY (name)
);
INSERT INTO "desired" VALUES('silver_orders','RUNNING',1,'first','ann','2026-03-01 12:00:00.123456','{}');
CREATE TABLE host (
	host_id TEXT NOT NULL, 
	hostname TEXT NOT NULL, 
	pid INTEGER NOT NULL, 
	started_at DATETIME NOT NULL, 
	beat_at DATETIME NOT NULL, 
	spark_version TEXT, 
	spark_ui_url TEXT, 
	tags JSON, 
	streams JSON, streams_key TEXT, max_streams INTEGER, 
	PRIMARY KEY (host_id)
);
INSERT INTO "host" VALUES('a','box',1,'2026-03-01 12:00:00.123456','2026-03-01 12:00:00.123456','4.2.0',NULL,'["gpu"]','["silver_orders"]','180d0651af3c43ccd5cdcb76881e1dfb',NULL);
CREATE TABLE job (
	job_id TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	subject TEXT NOT NULL, 
	fingerprint TEXT NOT NULL, 
	request TEXT NOT NULL, 
	actor TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	time_limit_s FLOAT NOT NULL, 
	state TEXT NOT NULL, 
	requested_at DATETIME NOT NULL, 
	started_at DATETIME, 
	ended_at DATETIME, 
	host_id TEXT, 
	attempts INTEGER NOT NULL, 
	phase TEXT NOT NULL, 
	done_units BIGINT NOT NULL, 
	total_units BIGINT, 
	cancel_requested BOOLEAN NOT NULL, 
	result_uri TEXT, 
	error TEXT NOT NULL, 
	hint TEXT NOT NULL, answer TEXT, 
	PRIMARY KEY (job_id)
);
INSERT INTO "job" VALUES('5c2cc1821588','diff','silver_orders','f1','{}','ann','a first look',60.0,'QUEUED','2026-03-01 12:00:00.123456',NULL,NULL,NULL,0,'',0,NULL,0,NULL,'','',NULL);
CREATE TABLE lease (
	resource TEXT NOT NULL, 
	owner TEXT NOT NULL, 
	token BIGINT NOT NULL, 
	expires_at DATETIME NOT NULL, 
	PRIMARY KEY (resource)
);
INSERT INTO "lease" VALUES('declarations','',0,'1970-01-01 00:00:00.000000');
INSERT INTO "lease" VALUES('stream/silver_orders','host-a',1,'2026-11-28 14:28:49.733000');
INSERT INTO "lease" VALUES('job-questions','',0,'1970-01-01 00:00:00.000000');
INSERT INTO "lease" VALUES('saved queries','',0,'1970-01-01 00:00:00.000000');
CREATE TABLE notice (
	uri TEXT NOT NULL, 
	version BIGINT NOT NULL, 
	kind TEXT NOT NULL, 
	subject TEXT NOT NULL, 
	"table" TEXT NOT NULL, 
	"before" TEXT NOT NULL, 
	"after" TEXT NOT NULL, 
	condition TEXT NOT NULL, 
	"by" TEXT NOT NULL, 
	committed_at DATETIME, 
	mended_at BIGINT, 
	seen_by TEXT NOT NULL, 
	seen_reason TEXT NOT NULL, 
	noticed_at DATETIME NOT NULL, 
	PRIMARY KEY (uri, version, kind, subject)
);
INSERT INTO "notice" VALUES('s3://lake/orders',31,'highest','amount','orders','498.2','47,189','amount <= 550','MERGE by stream silver_orders','2026-03-01 12:00:00.123456',NULL,'','','2026-03-01 12:00:00.123456');
CREATE TABLE observed (
	name TEXT NOT NULL, 
	state TEXT NOT NULL, 
	host_id TEXT NOT NULL, 
	generation INTEGER NOT NULL, 
	observed_at DATETIME NOT NULL, 
	query_id TEXT, 
	run_id TEXT, 
	started_at DATETIME, 
	next_start_at DATETIME, 
	failures JSON NOT NULL, 
	last_trigger_at DATETIME, 
	PRIMARY KEY (name)
);
INSERT INTO "observed" VALUES('silver_orders','RUNNING','host-a',1,'2026-03-01 12:00:00.123456','q','r','2026-03-01 12:00:00.123456',NULL,'[{"error_class": "SparkException", "message": "job aborted", "batch_id": 7, "failed_at": "2026-03-01T12:00:00.123456Z"}]','2026-03-01 12:00:00.123456');
CREATE TABLE pin (
	uri TEXT NOT NULL, 
	version BIGINT NOT NULL, 
	actor TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	pinned_at DATETIME NOT NULL, name TEXT, until DATETIME, 
	PRIMARY KEY (uri, version)
);
INSERT INTO "pin" VALUES('/lake/silver/orders',3,'ann','the audit','2026-03-01 12:00:00.123456','may',NULL);
CREATE TABLE progress (
	id INTEGER NOT NULL, 
	stream TEXT NOT NULL, 
	query_id TEXT NOT NULL, 
	run_id TEXT NOT NULL, 
	batch_id BIGINT NOT NULL, 
	progressed_at DATETIME NOT NULL, 
	num_input_rows BIGINT NOT NULL, 
	input_rows_per_s FLOAT, 
	processed_rows_per_s FLOAT, 
	batch_duration_ms BIGINT, 
	durations_ms JSON NOT NULL, 
	watermark DATETIME, 
	state_rows BIGINT, 
	state_bytes BIGINT, 
	rows_dropped_by_watermark BIGINT, 
	output_rows BIGINT, 
	expectations JSON NOT NULL, 
	raw BLOB NOT NULL, 
	counted BOOLEAN, 
	PRIMARY KEY (id), 
	CONSTRAINT uq_progress_event UNIQUE (run_id, batch_id, progressed_at)
);
INSERT INTO "progress" VALUES(1,'silver_orders','q','run-silver_orders',1,'2026-03-01 12:00:01.123456',10,1.5,NULL,900,'{"addBatch": 700, "triggerExecution": 900}','2026-03-01 12:00:00.123456',4,NULL,NULL,NULL,'[{"name": "amount > 0", "passed": 9, "failed": null}]',X'78BB2F367E55AB86E61905A01372CA528BE2F38B528061A4540B006F9D08FF',1);
INSERT INTO "progress" VALUES(2,'silver_orders','q','run-silver_orders',2,'2026-03-01 12:00:02.123456',10,1.5,NULL,900,'{"addBatch": 700, "triggerExecution": 900}','2026-03-01 12:00:00.123456',4,NULL,NULL,NULL,'[{"name": "amount > 0", "passed": 9, "failed": null}]',X'78BB2F367E55AB86E61905A01372CA528BE2F38B528061A4540B006F9D08FF',NULL);
CREATE TABLE progress_rollup (
	stream TEXT NOT NULL, 
	grain_s INTEGER NOT NULL, 
	at DATETIME NOT NULL, 
	run_id TEXT NOT NULL, 
	query_id TEXT NOT NULL, 
	batches BIGINT NOT NULL, 
	first_at DATETIME NOT NULL, 
	first_batch BIGINT NOT NULL, 
	last_at DATETIME NOT NULL, 
	last_batch BIGINT NOT NULL, 
	ended_at DATETIME NOT NULL, 
	input_rows BIGINT NOT NULL, 
	output_rows BIGINT NOT NULL, 
	output_rows_known BIGINT NOT NULL, 
	dropped_rows BIGINT NOT NULL, 
	dropped_rows_known BIGINT NOT NULL, 
	input_rows_per_s FLOAT NOT NULL, 
	input_rows_per_s_known BIGINT NOT NULL, 
	processed_rows_per_s FLOAT NOT NULL, 
	processed_rows_per_s_known BIGINT NOT NULL, 
	duration_ms BIGINT NOT NULL, 
	duration_ms_known BIGINT NOT NULL, 
	longest_ms BIGINT, 
	phases_ms JSON NOT NULL, 
	watermark DATETIME, 
	state_rows BIGINT, 
	most_behind_ms BIGINT, 
	most_unread_rows BIGINT, 
	expectations JSON NOT NULL, 
	PRIMARY KEY (stream, grain_s, at, run_id)
);
INSERT INTO "progress_rollup" VALUES('silver_orders',60,'2026-03-01 12:00:00.000000','run-silver_orders','q',1,'2026-03-01 12:00:01.123456',1,'2026-03-01 12:00:01.123456',1,'2026-03-01 12:00:02.023456',10,0,0,0,0,1.5,1,0.0,0,900,1,900,'{"addBatch": 700, "other": 200}','2026-03-01 12:00:00.123456',4,NULL,NULL,'[["amount > 0", 9, null, null]]');
INSERT INTO "progress_rollup" VALUES('silver_orders',3600,'2026-03-01 12:00:00.000000','run-silver_orders','q',1,'2026-03-01 12:00:01.123456',1,'2026-03-01 12:00:01.123456',1,'2026-03-01 12:00:02.023456',10,0,0,0,0,1.5,1,0.0,0,900,1,900,'{"addBatch": 700, "other": 200}','2026-03-01 12:00:00.123456',4,NULL,NULL,'[["amount > 0", 9, null, null]]');
CREATE TABLE saved_query (
	name TEXT NOT NULL, 
	owner TEXT NOT NULL, 
	text TEXT NOT NULL, 
	chart JSON, 
	saved_at DATETIME NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "saved_query" VALUES('Totals','ann','SELECT 1','null','2026-03-01 12:00:00.123456');
CREATE TABLE table_expectation (
	uri TEXT NOT NULL, 
	name TEXT NOT NULL, 
	pipeline TEXT NOT NULL, 
	host_id TEXT NOT NULL, 
	judged_at DATETIME NOT NULL, 
	broken_since DATETIME, 
	expectation JSON NOT NULL, 
	finding JSON NOT NULL, 
	PRIMARY KEY (uri, name)
);
INSERT INTO "table_expectation" VALUES('/lake/gold/orders','fresh','shop','host-a','2026-03-01 12:00:00.123456',NULL,'{"uri": "/lake/gold/orders", "table": "gold_orders", "kind": "fresh", "pipeline": "shop", "within_s": 900.0, "columns": [], "other": "", "other_uri": "", "other_column": "", "condition": "", "by": "", "why": ""}','{"state": "unknown", "reason": "not judged yet", "since": null, "version": null, "other_version": null, "last_data_at": null, "day": "", "rows": null, "usual": null, "days": 0, "broken_keys": null, "broken_rows": null, "examples": [], "is_early": true, "seen": {}}');
CREATE TABLE told (
	receiver TEXT NOT NULL, 
	items JSON NOT NULL, 
	error TEXT NOT NULL, 
	failed_at DATETIME, 
	PRIMARY KEY (receiver)
);
INSERT INTO "told" VALUES('webhook','[["warning", "stale", "silver/orders", ""]]','',NULL);
CREATE TABLE topic_ends (
	stream TEXT NOT NULL, 
	source TEXT NOT NULL, 
	at DATETIME NOT NULL, 
	body JSON NOT NULL, 
	PRIMARY KEY (stream, source)
);
INSERT INTO "topic_ends" VALUES('silver_orders','0','2026-03-01 12:00:00.123456','{"at": "2026-03-01T12:00:00.123456Z", "firsts": {}, "ends": {"t": {"0": 7}}, "starts": {}, "read": {}, "unread": {}, "retention_ms": {}, "problem": ""}');
CREATE INDEX ix_progress_age ON progress (progressed_at);
CREATE INDEX ix_progress_new ON progress (stream, id) WHERE counted IS NULL;
CREATE INDEX ix_progress_stream ON progress (stream, progressed_at);
CREATE INDEX ix_progress_rollup_age ON progress_rollup (grain_s, at);
CREATE INDEX ix_attached_event_app ON attached_event (app_id, id);
CREATE INDEX ix_job_fingerprint ON job (fingerprint, requested_at);
CREATE INDEX ix_job_state ON job (state, requested_at);
CREATE INDEX ix_audit_subject ON audit (subject, at);
CREATE UNIQUE INDEX ix_pin_name ON pin (uri, name);
COMMIT;

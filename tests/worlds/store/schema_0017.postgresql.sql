SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
SET default_tablespace = '';
SET default_table_access_method = heap;
CREATE TABLE public.alembic_version (
    version_num character varying(32) NOT NULL
);
CREATE TABLE public.attached_app (
    host_id text NOT NULL,
    name text NOT NULL,
    hostname text NOT NULL,
    pid integer NOT NULL,
    started_at timestamp with time zone NOT NULL,
    beat_at timestamp with time zone NOT NULL,
    spark_version text,
    spark_ui_url text
);
CREATE TABLE public.attached_event (
    id bigint NOT NULL,
    app_id text NOT NULL,
    body text NOT NULL,
    at double precision DEFAULT EXTRACT(epoch FROM clock_timestamp()) NOT NULL
);
CREATE SEQUENCE public.attached_event_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.attached_event_id_seq OWNED BY public.attached_event.id;
CREATE TABLE public.audit (
    id bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    actor text NOT NULL,
    action text NOT NULL,
    subject text NOT NULL,
    reason text NOT NULL,
    detail text NOT NULL
);
CREATE SEQUENCE public.audit_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.audit_id_seq OWNED BY public.audit.id;
CREATE TABLE public.backlog (
    stream text NOT NULL,
    seen_at timestamp with time zone NOT NULL,
    body json NOT NULL
);
CREATE TABLE public.declaration (
    name text NOT NULL,
    body json NOT NULL,
    declared_at timestamp with time zone NOT NULL
);
CREATE TABLE public.desired (
    name text NOT NULL,
    state text NOT NULL,
    generation integer NOT NULL,
    reason text NOT NULL,
    actor text NOT NULL,
    requested_at timestamp with time zone NOT NULL,
    overrides json
);
CREATE TABLE public.host (
    host_id text NOT NULL,
    hostname text NOT NULL,
    pid integer NOT NULL,
    started_at timestamp with time zone NOT NULL,
    beat_at timestamp with time zone NOT NULL,
    spark_version text,
    spark_ui_url text,
    tags json,
    streams json,
    streams_key text,
    max_streams integer
);
CREATE TABLE public.job (
    job_id text NOT NULL,
    kind text NOT NULL,
    subject text NOT NULL,
    fingerprint text NOT NULL,
    request text NOT NULL,
    actor text NOT NULL,
    reason text NOT NULL,
    time_limit_s double precision NOT NULL,
    state text NOT NULL,
    requested_at timestamp with time zone NOT NULL,
    started_at timestamp with time zone,
    ended_at timestamp with time zone,
    host_id text,
    attempts integer NOT NULL,
    phase text NOT NULL,
    done_units bigint NOT NULL,
    total_units bigint,
    cancel_requested boolean NOT NULL,
    result_uri text,
    error text NOT NULL,
    hint text NOT NULL,
    answer text
);
CREATE TABLE public.lease (
    resource text NOT NULL,
    owner text NOT NULL,
    token bigint NOT NULL,
    expires_at timestamp with time zone NOT NULL
);
CREATE TABLE public.notice (
    uri text NOT NULL,
    version bigint NOT NULL,
    kind text NOT NULL,
    subject text NOT NULL,
    "table" text NOT NULL,
    before text NOT NULL,
    after text NOT NULL,
    condition text NOT NULL,
    by text NOT NULL,
    committed_at timestamp with time zone,
    mended_at bigint,
    seen_by text NOT NULL,
    seen_reason text NOT NULL,
    noticed_at timestamp with time zone NOT NULL
);
CREATE TABLE public.observed (
    name text NOT NULL,
    state text NOT NULL,
    host_id text NOT NULL,
    generation integer NOT NULL,
    observed_at timestamp with time zone NOT NULL,
    query_id text,
    run_id text,
    started_at timestamp with time zone,
    next_start_at timestamp with time zone,
    failures json NOT NULL,
    last_trigger_at timestamp with time zone
);
CREATE TABLE public.pin (
    uri text NOT NULL,
    version bigint NOT NULL,
    actor text NOT NULL,
    reason text NOT NULL,
    pinned_at timestamp with time zone NOT NULL,
    name text,
    until timestamp with time zone
);
CREATE TABLE public.progress (
    id bigint NOT NULL,
    stream text NOT NULL,
    query_id text NOT NULL,
    run_id text NOT NULL,
    batch_id bigint NOT NULL,
    progressed_at timestamp with time zone NOT NULL,
    num_input_rows bigint NOT NULL,
    input_rows_per_s double precision,
    processed_rows_per_s double precision,
    batch_duration_ms bigint,
    durations_ms json NOT NULL,
    watermark timestamp with time zone,
    state_rows bigint,
    state_bytes bigint,
    rows_dropped_by_watermark bigint,
    output_rows bigint,
    expectations json NOT NULL,
    raw bytea NOT NULL,
    counted boolean
);
CREATE SEQUENCE public.progress_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.progress_id_seq OWNED BY public.progress.id;
CREATE TABLE public.progress_rollup (
    stream text NOT NULL,
    grain_s integer NOT NULL,
    at timestamp with time zone NOT NULL,
    run_id text NOT NULL,
    query_id text NOT NULL,
    batches bigint NOT NULL,
    first_at timestamp with time zone NOT NULL,
    first_batch bigint NOT NULL,
    last_at timestamp with time zone NOT NULL,
    last_batch bigint NOT NULL,
    ended_at timestamp with time zone NOT NULL,
    input_rows bigint NOT NULL,
    output_rows bigint NOT NULL,
    output_rows_known bigint NOT NULL,
    dropped_rows bigint NOT NULL,
    dropped_rows_known bigint NOT NULL,
    input_rows_per_s double precision NOT NULL,
    input_rows_per_s_known bigint NOT NULL,
    processed_rows_per_s double precision NOT NULL,
    processed_rows_per_s_known bigint NOT NULL,
    duration_ms bigint NOT NULL,
    duration_ms_known bigint NOT NULL,
    longest_ms bigint,
    phases_ms json NOT NULL,
    watermark timestamp with time zone,
    state_rows bigint,
    most_behind_ms bigint,
    most_unread_rows bigint,
    expectations json NOT NULL
);
CREATE TABLE public.saved_query (
    name text NOT NULL,
    owner text NOT NULL,
    text text NOT NULL,
    chart json,
    saved_at timestamp with time zone NOT NULL
);
CREATE TABLE public.table_expectation (
    uri text NOT NULL,
    name text NOT NULL,
    pipeline text NOT NULL,
    host_id text NOT NULL,
    judged_at timestamp with time zone NOT NULL,
    broken_since timestamp with time zone,
    expectation json NOT NULL,
    finding json NOT NULL
);
CREATE TABLE public.told (
    receiver text NOT NULL,
    items json NOT NULL,
    error text NOT NULL,
    failed_at timestamp with time zone
);
CREATE TABLE public.topic_ends (
    stream text NOT NULL,
    source text NOT NULL,
    at timestamp with time zone NOT NULL,
    body json NOT NULL
);
ALTER TABLE ONLY public.attached_event ALTER COLUMN id SET DEFAULT nextval('public.attached_event_id_seq'::regclass);
ALTER TABLE ONLY public.audit ALTER COLUMN id SET DEFAULT nextval('public.audit_id_seq'::regclass);
ALTER TABLE ONLY public.progress ALTER COLUMN id SET DEFAULT nextval('public.progress_id_seq'::regclass);
INSERT INTO public.alembic_version VALUES ('0017');
INSERT INTO public.audit VALUES (1, '2026-03-01 12:00:00.123456+00', 'ann', 'start', 'silver_orders', 'first', 'new → RUNNING, generation 1');
INSERT INTO public.audit VALUES (2, '2026-03-01 12:00:00.123456+00', 'ann', 'pin', 'silver/orders', 'the audit', 'v3 as may');
INSERT INTO public.audit VALUES (3, '2026-03-01 12:00:00.123456+00', 'ann', 'save query', 'Totals', 'for all', 'of ann: SELECT 1');
INSERT INTO public.audit VALUES (4, '2026-03-01 12:00:00.123456+00', 'ann', 'diff job', 'silver_orders', 'a first look', 'job b204fdb2d895');
INSERT INTO public.backlog VALUES ('silver_orders', '2026-03-01 12:00:00.123456+00', '{"sources": [], "lags": [], "has_planned": null}');
INSERT INTO public.declaration VALUES ('silver_orders', '{"name": "silver_orders", "description": "Orders as they stand", "source": "change feed of bronze/orders", "sink_uri": "/lake/silver/orders", "sink_table": "silver/orders", "source_tables": ["bronze/orders"], "layer": "silver", "trigger_interval_ms": 5000, "checkpoint_location": "/checkpoints/silver_orders", "expectations": ["amount > 0"], "kind": "streaming table", "pipeline": "", "inputs": [], "side_tables": [], "tags": {}, "reset_allowed": true, "sink": "append", "outside": "", "also": [], "spark_conf": {}, "tables": [], "code": ""}', '2026-03-01 12:00:00.123456+00');
INSERT INTO public.desired VALUES ('silver_orders', 'RUNNING', 1, 'first', 'ann', '2026-03-01 12:00:00.123456+00', '{}');
INSERT INTO public.host VALUES ('a', 'box', 1, '2026-03-01 12:00:00.123456+00', '2026-03-01 12:00:00.123456+00', '4.2.0', NULL, '["gpu"]', '["silver_orders"]', '180d0651af3c43ccd5cdcb76881e1dfb', NULL);
INSERT INTO public.job VALUES ('b204fdb2d895', 'diff', 'silver_orders', 'f1', '{}', 'ann', 'a first look', 60, 'QUEUED', '2026-03-01 12:00:00.123456+00', NULL, NULL, NULL, 0, '', 0, NULL, false, NULL, '', '', NULL);
INSERT INTO public.lease VALUES ('declarations', '', 0, '1970-01-01 00:00:00+00');
INSERT INTO public.lease VALUES ('stream/silver_orders', 'host-a', 1, '2026-11-28 14:28:51.476419+00');
INSERT INTO public.lease VALUES ('job-questions', '', 0, '1970-01-01 00:00:00+00');
INSERT INTO public.lease VALUES ('saved queries', '', 0, '1970-01-01 00:00:00+00');
INSERT INTO public.notice VALUES ('s3://lake/orders', 31, 'highest', 'amount', 'orders', '498.2', '47,189', 'amount <= 550', 'MERGE by stream silver_orders', '2026-03-01 12:00:00.123456+00', NULL, '', '', '2026-03-01 12:00:00.123456+00');
INSERT INTO public.observed VALUES ('silver_orders', 'RUNNING', 'host-a', 1, '2026-03-01 12:00:00.123456+00', 'q', 'r', '2026-03-01 12:00:00.123456+00', NULL, '[{"error_class": "SparkException", "message": "job aborted", "batch_id": 7, "failed_at": "2026-03-01T12:00:00.123456Z"}]', '2026-03-01 12:00:00.123456+00');
INSERT INTO public.pin VALUES ('/lake/silver/orders', 3, 'ann', 'the audit', '2026-03-01 12:00:00.123456+00', 'may', NULL);
INSERT INTO public.progress VALUES (1, 'silver_orders', 'q', 'run-silver_orders', 1, '2026-03-01 12:00:01.123456+00', 10, 1.5, NULL, 900, '{"addBatch": 700, "triggerExecution": 900}', '2026-03-01 12:00:00.123456+00', 4, NULL, NULL, NULL, '[{"name": "amount > 0", "passed": 9, "failed": null}]', '\x78bb2f367e55ab86e61905a01372ca528be2f38b528061a4540b006f9d08ff', true);
INSERT INTO public.progress VALUES (2, 'silver_orders', 'q', 'run-silver_orders', 2, '2026-03-01 12:00:02.123456+00', 10, 1.5, NULL, 900, '{"addBatch": 700, "triggerExecution": 900}', '2026-03-01 12:00:00.123456+00', 4, NULL, NULL, NULL, '[{"name": "amount > 0", "passed": 9, "failed": null}]', '\x78bb2f367e55ab86e61905a01372ca528be2f38b528061a4540b006f9d08ff', NULL);
INSERT INTO public.progress_rollup VALUES ('silver_orders', 60, '2026-03-01 12:00:00+00', 'run-silver_orders', 'q', 1, '2026-03-01 12:00:01.123456+00', 1, '2026-03-01 12:00:01.123456+00', 1, '2026-03-01 12:00:02.023456+00', 10, 0, 0, 0, 0, 1.5, 1, 0, 0, 900, 1, 900, '{"addBatch": 700, "other": 200}', '2026-03-01 12:00:00.123456+00', 4, NULL, NULL, '[["amount > 0", 9, null, null]]');
INSERT INTO public.progress_rollup VALUES ('silver_orders', 3600, '2026-03-01 12:00:00+00', 'run-silver_orders', 'q', 1, '2026-03-01 12:00:01.123456+00', 1, '2026-03-01 12:00:01.123456+00', 1, '2026-03-01 12:00:02.023456+00', 10, 0, 0, 0, 0, 1.5, 1, 0, 0, 900, 1, 900, '{"addBatch": 700, "other": 200}', '2026-03-01 12:00:00.123456+00', 4, NULL, NULL, '[["amount > 0", 9, null, null]]');
INSERT INTO public.saved_query VALUES ('Totals', 'ann', 'SELECT 1', 'null', '2026-03-01 12:00:00.123456+00');
INSERT INTO public.table_expectation VALUES ('/lake/gold/orders', 'fresh', 'shop', 'host-a', '2026-03-01 12:00:00.123456+00', NULL, '{"uri": "/lake/gold/orders", "table": "gold_orders", "kind": "fresh", "pipeline": "shop", "within_s": 900.0, "columns": [], "other": "", "other_uri": "", "other_column": "", "condition": "", "by": "", "why": ""}', '{"state": "unknown", "reason": "not judged yet", "since": null, "version": null, "other_version": null, "last_data_at": null, "day": "", "rows": null, "usual": null, "days": 0, "broken_keys": null, "broken_rows": null, "examples": [], "is_early": true, "seen": {}}');
INSERT INTO public.told VALUES ('webhook', '[["warning", "stale", "silver/orders", ""]]', '', NULL);
INSERT INTO public.topic_ends VALUES ('silver_orders', '0', '2026-03-01 12:00:00.123456+00', '{"at": "2026-03-01T12:00:00.123456Z", "firsts": {}, "ends": {"t": {"0": 7}}, "starts": {}, "read": {}, "unread": {}, "retention_ms": {}, "problem": ""}');
SELECT pg_catalog.setval('public.attached_event_id_seq', 1, false);
SELECT pg_catalog.setval('public.audit_id_seq', 4, true);
SELECT pg_catalog.setval('public.progress_id_seq', 2, true);
ALTER TABLE ONLY public.alembic_version
    ADD CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY public.attached_app
    ADD CONSTRAINT attached_app_pkey PRIMARY KEY (host_id);
ALTER TABLE ONLY public.attached_event
    ADD CONSTRAINT attached_event_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.audit
    ADD CONSTRAINT audit_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.backlog
    ADD CONSTRAINT backlog_pkey PRIMARY KEY (stream);
ALTER TABLE ONLY public.declaration
    ADD CONSTRAINT declaration_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.desired
    ADD CONSTRAINT desired_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.host
    ADD CONSTRAINT host_pkey PRIMARY KEY (host_id);
ALTER TABLE ONLY public.job
    ADD CONSTRAINT job_pkey PRIMARY KEY (job_id);
ALTER TABLE ONLY public.lease
    ADD CONSTRAINT lease_pkey PRIMARY KEY (resource);
ALTER TABLE ONLY public.notice
    ADD CONSTRAINT notice_pkey PRIMARY KEY (uri, version, kind, subject);
ALTER TABLE ONLY public.observed
    ADD CONSTRAINT observed_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.pin
    ADD CONSTRAINT pin_pkey PRIMARY KEY (uri, version);
ALTER TABLE ONLY public.progress
    ADD CONSTRAINT progress_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.progress_rollup
    ADD CONSTRAINT progress_rollup_pkey PRIMARY KEY (stream, grain_s, at, run_id);
ALTER TABLE ONLY public.saved_query
    ADD CONSTRAINT saved_query_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.table_expectation
    ADD CONSTRAINT table_expectation_pkey PRIMARY KEY (uri, name);
ALTER TABLE ONLY public.told
    ADD CONSTRAINT told_pkey PRIMARY KEY (receiver);
ALTER TABLE ONLY public.topic_ends
    ADD CONSTRAINT topic_ends_pkey PRIMARY KEY (stream, source);
ALTER TABLE ONLY public.progress
    ADD CONSTRAINT uq_progress_event UNIQUE (run_id, batch_id, progressed_at);
CREATE INDEX ix_attached_event_app ON public.attached_event USING btree (app_id, id);
CREATE INDEX ix_audit_subject ON public.audit USING btree (subject, at);
CREATE INDEX ix_job_fingerprint ON public.job USING btree (fingerprint, requested_at);
CREATE INDEX ix_job_state ON public.job USING btree (state, requested_at);
CREATE UNIQUE INDEX ix_pin_name ON public.pin USING btree (uri, name);
CREATE INDEX ix_progress_age ON public.progress USING btree (progressed_at);
CREATE INDEX ix_progress_new ON public.progress USING btree (stream, id) WHERE (counted IS NULL);
CREATE INDEX ix_progress_rollup_age ON public.progress_rollup USING btree (grain_s, at);
CREATE INDEX ix_progress_stream ON public.progress USING btree (stream, progressed_at);

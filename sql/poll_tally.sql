-- The present script of poll_tally, readable from top to bottom; over 500 lines,
-- since an extension has one script and a reader one place to look.
--
-- While it runs, the search path is this schema and pg_temp, behind pg_catalog,
-- and the schema holds nothing but what stands here.  Views and BEGIN ATOMIC
-- bodies bind their names and operators now, so that no search path of a caller
-- matters later.

\echo Use "CREATE EXTENSION poll_tally" to load this file. \quit

-- ---------------------------------------------------------------------------
-- The schema has to be ours alone
-- ---------------------------------------------------------------------------

DO $$
DECLARE
    stranger text;
    schema_owner oid;
BEGIN
    SELECT pg_describe_object(d.classid, d.objid, d.objsubid) INTO stranger
    FROM pg_depend AS d
    WHERE d.refclassid = 'pg_namespace'::regclass
      AND d.refobjid = 'poll_tally'::regnamespace
      -- Something elsewhere may name the schema; default privileges in it would reach what is installed.
      AND ((pg_identify_object(d.classid, d.objid, d.objsubid)).schema = 'poll_tally'
           OR d.classid = 'pg_default_acl'::regclass)
    LIMIT 1;
    IF stranger IS NOT NULL THEN
        RAISE EXCEPTION 'schema "poll_tally" is not empty'
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  DETAIL = format('It holds %s.', stranger),
                  HINT = 'Drop the schema, or what is in it, and install again.';
    END IF;
    SELECT n.nspowner INTO schema_owner
    FROM pg_namespace AS n WHERE n.oid = 'poll_tally'::regnamespace;
    IF schema_owner <> (SELECT r.oid FROM pg_roles AS r WHERE r.rolname = current_user)
       AND NOT (SELECT r.rolsuper FROM pg_roles AS r WHERE r.oid = schema_owner) THEN
        RAISE EXCEPTION 'schema "poll_tally" belongs to role "%"', pg_get_userbyid(schema_owner)
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  DETAIL = 'Its owner could replace what is installed there.',
                  HINT = 'Drop the schema, or give it to the role that installs.';
    END IF;
END
$$;

--
-- Identifiers and outcomes
--

CREATE DOMAIN poll_tally.ident AS pg_catalog.text COLLATE pg_catalog."C"
	CONSTRAINT ident_form
	CHECK (VALUE OPERATOR(pg_catalog.~) '^[]!#-[^-~]{1,64}$');
COMMENT ON DOMAIN poll_tally.ident IS
	'identifier: 1 to 64 visible ASCII characters other than double quote and backslash, compared byte by byte';
COMMENT ON CONSTRAINT ident_form ON DOMAIN poll_tally.ident IS
	'the identifier rule: 1 to 64 characters from 0x21 to 0x7E other than double quote and backslash';

CREATE TYPE poll_tally.outcome AS ENUM (
	'invalid',
	'duplicate',
	'conflict',
	'source_conflict',
	'expired',
	'unknown_poll',
	'closed',
	'not_open',
	'not_eligible',
	'unknown_choice',
	'already_responded',
	'limit_reached',
	'accepted',
	'unknown_event',
	'nothing_to_retract'
);
COMMENT ON TYPE poll_tally.outcome IS
	'verdict on one event or retraction';

--
-- tally: text and binary form
--

CREATE TYPE poll_tally.tally;

CREATE FUNCTION poll_tally.tally_in(pg_catalog.cstring) RETURNS poll_tally.tally
	AS 'MODULE_PATHNAME', 'tally_in'
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION poll_tally.tally_in(pg_catalog.cstring) IS
	'read the text form of a tally, a JSON object of integer counts';

CREATE FUNCTION poll_tally.tally_out(poll_tally.tally) RETURNS pg_catalog.cstring
	AS 'MODULE_PATHNAME', 'tally_out'
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION poll_tally.tally_out(poll_tally.tally) IS
	'write the text form of a tally';

CREATE FUNCTION poll_tally.tally_recv(pg_catalog.internal) RETURNS poll_tally.tally
	AS 'MODULE_PATHNAME', 'tally_recv'
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION poll_tally.tally_recv(pg_catalog.internal) IS
	'read the binary form of a tally';

CREATE FUNCTION poll_tally.tally_send(poll_tally.tally) RETURNS pg_catalog.bytea
	AS 'MODULE_PATHNAME', 'tally_send'
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION poll_tally.tally_send(poll_tally.tally) IS
	'write the binary form of a tally';

CREATE TYPE poll_tally.tally (
	INPUT = poll_tally.tally_in,
	OUTPUT = poll_tally.tally_out,
	RECEIVE = poll_tally.tally_recv,
	SEND = poll_tally.tally_send,
	INTERNALLENGTH = VARIABLE,
	ALIGNMENT = int4,
	STORAGE = extended
);
COMMENT ON TYPE poll_tally.tally IS
	'map from choice to bigint, where a choice that is absent counts 0';

--
-- tally: arithmetic and look-up
--

CREATE FUNCTION poll_tally.add(a poll_tally.tally, b poll_tally.tally) RETURNS poll_tally.tally
	AS 'MODULE_PATHNAME', 'tally_add_sql'
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION poll_tally.add(poll_tally.tally, poll_tally.tally) IS
	'sum of two tallies, choice by choice';

CREATE OPERATOR poll_tally.+ (
	FUNCTION = poll_tally.add, LEFTARG = poll_tally.tally, RIGHTARG = poll_tally.tally,
	COMMUTATOR = OPERATOR(poll_tally.+)
);
COMMENT ON OPERATOR poll_tally.+ (poll_tally.tally, poll_tally.tally) IS
	'sum of two tallies, choice by choice';

CREATE FUNCTION poll_tally.subtract(a poll_tally.tally, b poll_tally.tally) RETURNS poll_tally.tally
	AS 'MODULE_PATHNAME', 'tally_subtract_sql'
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION poll_tally.subtract(poll_tally.tally, poll_tally.tally) IS
	'difference of two tallies, choice by choice';

CREATE OPERATOR poll_tally.- (
	FUNCTION = poll_tally.subtract, LEFTARG = poll_tally.tally, RIGHTARG = poll_tally.tally
);
COMMENT ON OPERATOR poll_tally.- (poll_tally.tally, poll_tally.tally) IS
	'difference of two tallies, choice by choice';

CREATE FUNCTION poll_tally.negate(tally poll_tally.tally) RETURNS poll_tally.tally
	AS 'MODULE_PATHNAME', 'tally_negate_sql'
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION poll_tally.negate(poll_tally.tally) IS
	'tally with the sign of each count changed';

CREATE OPERATOR poll_tally.- (
	FUNCTION = poll_tally.negate, RIGHTARG = poll_tally.tally
);
COMMENT ON OPERATOR poll_tally.- (NONE, poll_tally.tally) IS
	'tally with the sign of each count changed';

CREATE FUNCTION poll_tally.get(tally poll_tally.tally, choice pg_catalog.text) RETURNS pg_catalog.int8
	AS 'MODULE_PATHNAME', 'tally_get_sql'
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION poll_tally.get(poll_tally.tally, pg_catalog.text) IS
	'count of a choice, 0 when absent';

CREATE OPERATOR poll_tally.-> (
	FUNCTION = poll_tally.get, LEFTARG = poll_tally.tally, RIGHTARG = pg_catalog.text
);
COMMENT ON OPERATOR poll_tally.-> (poll_tally.tally, pg_catalog.text) IS
	'count of a choice, 0 when absent';

CREATE FUNCTION poll_tally.total(tally poll_tally.tally) RETURNS pg_catalog.int8
	AS 'MODULE_PATHNAME', 'tally_total'
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION poll_tally.total(poll_tally.tally) IS
	'sum of all counts of a tally';

CREATE FUNCTION poll_tally.each(tally poll_tally.tally, OUT choice pg_catalog.text, OUT count pg_catalog.int8)
	RETURNS SETOF pg_catalog.record
	AS 'MODULE_PATHNAME', 'tally_each'
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE ROWS 10;
COMMENT ON FUNCTION poll_tally.each(poll_tally.tally) IS
	'the choices of a tally and their counts, one row each, sorted bytewise';

CREATE FUNCTION poll_tally.make_tally(choices pg_catalog.text[], counts pg_catalog.int8[]) RETURNS poll_tally.tally
	AS 'MODULE_PATHNAME', 'tally_make'
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION poll_tally.make_tally(pg_catalog.text[], pg_catalog.int8[]) IS
	'tally of choices and their counts, given as two arrays of equal length';

--
-- tally: comparison, hashing and their operator classes
--

CREATE FUNCTION poll_tally.equal(a poll_tally.tally, b poll_tally.tally) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME', 'tally_equal_sql'
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION poll_tally.equal(poll_tally.tally, poll_tally.tally) IS
	'are the two tallies equal?';

CREATE FUNCTION poll_tally.not_equal(a poll_tally.tally, b poll_tally.tally) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME', 'tally_not_equal_sql'
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION poll_tally.not_equal(poll_tally.tally, poll_tally.tally) IS
	'do the two tallies differ?';

CREATE FUNCTION poll_tally.tally_lt(a poll_tally.tally, b poll_tally.tally) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME', 'tally_lt'
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION poll_tally.tally_lt(poll_tally.tally, poll_tally.tally) IS
	'less than, in the order of the type';

CREATE FUNCTION poll_tally.tally_le(a poll_tally.tally, b poll_tally.tally) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME', 'tally_le'
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION poll_tally.tally_le(poll_tally.tally, poll_tally.tally) IS
	'less than or equal, in the order of the type';

CREATE FUNCTION poll_tally.tally_ge(a poll_tally.tally, b poll_tally.tally) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME', 'tally_ge'
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION poll_tally.tally_ge(poll_tally.tally, poll_tally.tally) IS
	'greater than or equal, in the order of the type';

CREATE FUNCTION poll_tally.tally_gt(a poll_tally.tally, b poll_tally.tally) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME', 'tally_gt'
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION poll_tally.tally_gt(poll_tally.tally, poll_tally.tally) IS
	'greater than, in the order of the type';

CREATE FUNCTION poll_tally.tally_compare(a poll_tally.tally, b poll_tally.tally) RETURNS pg_catalog.int4
	AS 'MODULE_PATHNAME', 'tally_compare_sql'
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION poll_tally.tally_compare(poll_tally.tally, poll_tally.tally) IS
	'below, at or above 0, in the order of the type';

CREATE FUNCTION poll_tally.tally_hash(value poll_tally.tally) RETURNS pg_catalog.int4
	AS 'MODULE_PATHNAME', 'tally_hash'
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION poll_tally.tally_hash(poll_tally.tally) IS
	'hash';

CREATE FUNCTION poll_tally.tally_hash_extended(value poll_tally.tally, seed pg_catalog.int8) RETURNS pg_catalog.int8
	AS 'MODULE_PATHNAME', 'tally_hash_extended'
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION poll_tally.tally_hash_extended(poll_tally.tally, pg_catalog.int8) IS
	'hash of 64 bits, with a seed';

CREATE OPERATOR poll_tally.= (
	FUNCTION = poll_tally.equal, LEFTARG = poll_tally.tally, RIGHTARG = poll_tally.tally,
	COMMUTATOR = OPERATOR(poll_tally.=), NEGATOR = OPERATOR(poll_tally.<>),
	RESTRICT = pg_catalog.eqsel, JOIN = pg_catalog.eqjoinsel, HASHES, MERGES
);
COMMENT ON OPERATOR poll_tally.= (poll_tally.tally, poll_tally.tally) IS
	'equal';

CREATE OPERATOR poll_tally.<> (
	FUNCTION = poll_tally.not_equal, LEFTARG = poll_tally.tally, RIGHTARG = poll_tally.tally,
	COMMUTATOR = OPERATOR(poll_tally.<>), NEGATOR = OPERATOR(poll_tally.=),
	RESTRICT = pg_catalog.neqsel, JOIN = pg_catalog.neqjoinsel
);
COMMENT ON OPERATOR poll_tally.<> (poll_tally.tally, poll_tally.tally) IS
	'not equal';

CREATE OPERATOR poll_tally.< (
	FUNCTION = poll_tally.tally_lt, LEFTARG = poll_tally.tally, RIGHTARG = poll_tally.tally,
	COMMUTATOR = OPERATOR(poll_tally.>), NEGATOR = OPERATOR(poll_tally.>=),
	RESTRICT = pg_catalog.scalarltsel, JOIN = pg_catalog.scalarltjoinsel
);
COMMENT ON OPERATOR poll_tally.< (poll_tally.tally, poll_tally.tally) IS
	'less than';

CREATE OPERATOR poll_tally.<= (
	FUNCTION = poll_tally.tally_le, LEFTARG = poll_tally.tally, RIGHTARG = poll_tally.tally,
	COMMUTATOR = OPERATOR(poll_tally.>=), NEGATOR = OPERATOR(poll_tally.>),
	RESTRICT = pg_catalog.scalarlesel, JOIN = pg_catalog.scalarlejoinsel
);
COMMENT ON OPERATOR poll_tally.<= (poll_tally.tally, poll_tally.tally) IS
	'less than or equal';

CREATE OPERATOR poll_tally.>= (
	FUNCTION = poll_tally.tally_ge, LEFTARG = poll_tally.tally, RIGHTARG = poll_tally.tally,
	COMMUTATOR = OPERATOR(poll_tally.<=), NEGATOR = OPERATOR(poll_tally.<),
	RESTRICT = pg_catalog.scalargesel, JOIN = pg_catalog.scalargejoinsel
);
COMMENT ON OPERATOR poll_tally.>= (poll_tally.tally, poll_tally.tally) IS
	'greater than or equal';

CREATE OPERATOR poll_tally.> (
	FUNCTION = poll_tally.tally_gt, LEFTARG = poll_tally.tally, RIGHTARG = poll_tally.tally,
	COMMUTATOR = OPERATOR(poll_tally.<), NEGATOR = OPERATOR(poll_tally.<=),
	RESTRICT = pg_catalog.scalargtsel, JOIN = pg_catalog.scalargtjoinsel
);
COMMENT ON OPERATOR poll_tally.> (poll_tally.tally, poll_tally.tally) IS
	'greater than';

CREATE OPERATOR CLASS poll_tally.tally_ops DEFAULT FOR TYPE poll_tally.tally USING btree AS
	OPERATOR 1 poll_tally.<,
	OPERATOR 2 poll_tally.<=,
	OPERATOR 3 poll_tally.=,
	OPERATOR 4 poll_tally.>=,
	OPERATOR 5 poll_tally.>,
	FUNCTION 1 poll_tally.tally_compare(poll_tally.tally, poll_tally.tally),
	FUNCTION 4 pg_catalog.btequalimage(pg_catalog.oid);
COMMENT ON OPERATOR CLASS poll_tally.tally_ops USING btree IS
	'order of tallies';
COMMENT ON OPERATOR FAMILY poll_tally.tally_ops USING btree IS
	'order of tallies';

CREATE OPERATOR CLASS poll_tally.tally_ops DEFAULT FOR TYPE poll_tally.tally USING hash AS
	OPERATOR 1 poll_tally.=,
	FUNCTION 1 poll_tally.tally_hash(poll_tally.tally),
	FUNCTION 2 poll_tally.tally_hash_extended(poll_tally.tally, pg_catalog.int8);
COMMENT ON OPERATOR CLASS poll_tally.tally_ops USING hash IS
	'hashing of tallies';
COMMENT ON OPERATOR FAMILY poll_tally.tally_ops USING hash IS
	'hashing of tallies';

--
-- tally: the aggregate sum
--

CREATE FUNCTION poll_tally.tally_sum_transition(state pg_catalog.internal, tally poll_tally.tally) RETURNS pg_catalog.internal
	AS 'MODULE_PATHNAME', 'tally_sum_transition'
	LANGUAGE C IMMUTABLE CALLED ON NULL INPUT PARALLEL SAFE;
COMMENT ON FUNCTION poll_tally.tally_sum_transition(pg_catalog.internal, poll_tally.tally) IS
	'sum(tally): add one tally to the state';

CREATE FUNCTION poll_tally.tally_sum_combine(state pg_catalog.internal, other pg_catalog.internal) RETURNS pg_catalog.internal
	AS 'MODULE_PATHNAME', 'tally_sum_combine'
	LANGUAGE C IMMUTABLE CALLED ON NULL INPUT PARALLEL SAFE;
COMMENT ON FUNCTION poll_tally.tally_sum_combine(pg_catalog.internal, pg_catalog.internal) IS
	'sum(tally): add one state to another';

CREATE FUNCTION poll_tally.tally_sum_serialize(state pg_catalog.internal) RETURNS pg_catalog.bytea
	AS 'MODULE_PATHNAME', 'tally_sum_serialize'
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION poll_tally.tally_sum_serialize(pg_catalog.internal) IS
	'sum(tally): write a state down for another process';

CREATE FUNCTION poll_tally.tally_sum_deserialize(serialized pg_catalog.bytea, unused pg_catalog.internal) RETURNS pg_catalog.internal
	AS 'MODULE_PATHNAME', 'tally_sum_deserialize'
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION poll_tally.tally_sum_deserialize(pg_catalog.bytea, pg_catalog.internal) IS
	'sum(tally): read a state that another process wrote';

CREATE FUNCTION poll_tally.tally_sum_final(state pg_catalog.internal) RETURNS poll_tally.tally
	AS 'MODULE_PATHNAME', 'tally_sum_final'
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION poll_tally.tally_sum_final(pg_catalog.internal) IS
	'sum(tally): the tally of a state';

CREATE AGGREGATE poll_tally.sum(tally poll_tally.tally) (
	SFUNC = poll_tally.tally_sum_transition,
	STYPE = pg_catalog.internal,
	SSPACE = 512,  -- of a few choices, as most tallies are
	FINALFUNC = poll_tally.tally_sum_final,
	COMBINEFUNC = poll_tally.tally_sum_combine,
	SERIALFUNC = poll_tally.tally_sum_serialize,
	DESERIALFUNC = poll_tally.tally_sum_deserialize,
	PARALLEL = SAFE
);
COMMENT ON AGGREGATE poll_tally.sum(poll_tally.tally) IS
	'sum of tallies, choice by choice; NULL over no rows';

CREATE FUNCTION poll_tally.tally_sum_add_part(state pg_catalog.internal, part pg_catalog.bytea) RETURNS pg_catalog.internal
	AS 'MODULE_PATHNAME', 'tally_sum_add_part'
	LANGUAGE C IMMUTABLE CALLED ON NULL INPUT PARALLEL SAFE;
COMMENT ON FUNCTION poll_tally.tally_sum_add_part(pg_catalog.internal, pg_catalog.bytea) IS
	'sum_parts(bytea): add a part to the state';

CREATE AGGREGATE poll_tally.sum_part(tally poll_tally.tally) (
	SFUNC = poll_tally.tally_sum_transition,
	STYPE = pg_catalog.internal,
	SSPACE = 512,
	FINALFUNC = poll_tally.tally_sum_serialize,
	PARALLEL = SAFE
);
COMMENT ON AGGREGATE poll_tally.sum_part(poll_tally.tally) IS
	'sum of tallies, for sum_parts: it is exact also where it does not fit into a tally';

CREATE AGGREGATE poll_tally.sum_parts(part pg_catalog.bytea) (
	SFUNC = poll_tally.tally_sum_add_part,
	STYPE = pg_catalog.internal,
	SSPACE = 512,
	FINALFUNC = poll_tally.tally_sum_final,
	PARALLEL = SAFE
);
COMMENT ON AGGREGATE poll_tally.sum_parts(pg_catalog.bytea) IS
	'sum of results of sum_part; NULL over no rows';

--
-- tally: casts
--

CREATE FUNCTION poll_tally.tally_to_jsonb(tally poll_tally.tally) RETURNS pg_catalog.jsonb
	AS 'MODULE_PATHNAME', 'tally_to_jsonb_sql'
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION poll_tally.tally_to_jsonb(poll_tally.tally) IS
	'the tally as a jsonb object';

CREATE FUNCTION poll_tally.tally_from_jsonb(counts pg_catalog.jsonb) RETURNS poll_tally.tally
	AS 'MODULE_PATHNAME', 'tally_from_jsonb_sql'
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION poll_tally.tally_from_jsonb(pg_catalog.jsonb) IS
	'the tally of a jsonb object of integer counts';

CREATE FUNCTION poll_tally.tally_to_json(tally poll_tally.tally) RETURNS pg_catalog.json
	AS 'MODULE_PATHNAME', 'tally_to_json_sql'
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION poll_tally.tally_to_json(poll_tally.tally) IS
	'the tally as a json object';

CREATE CAST (poll_tally.tally AS pg_catalog.jsonb)
	WITH FUNCTION poll_tally.tally_to_jsonb(poll_tally.tally) AS ASSIGNMENT;
COMMENT ON CAST (poll_tally.tally AS pg_catalog.jsonb) IS
	'tally as a jsonb object';

CREATE CAST (pg_catalog.jsonb AS poll_tally.tally)
	WITH FUNCTION poll_tally.tally_from_jsonb(pg_catalog.jsonb);
COMMENT ON CAST (pg_catalog.jsonb AS poll_tally.tally) IS
	'jsonb object of integer counts as a tally';

CREATE CAST (poll_tally.tally AS pg_catalog.json)
	WITH FUNCTION poll_tally.tally_to_json(poll_tally.tally);
COMMENT ON CAST (poll_tally.tally AS pg_catalog.json) IS
	'tally as a json object, also inside rows that are turned into JSON';

--
-- event_position
--

CREATE TYPE poll_tally.event_position;

CREATE FUNCTION poll_tally.position_in(pg_catalog.cstring) RETURNS poll_tally.event_position
	AS 'MODULE_PATHNAME', 'position_in'
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION poll_tally.position_in(pg_catalog.cstring) IS
	'read the text form of a position, lane/seq';

CREATE FUNCTION poll_tally.position_out(poll_tally.event_position) RETURNS pg_catalog.cstring
	AS 'MODULE_PATHNAME', 'position_out'
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION poll_tally.position_out(poll_tally.event_position) IS
	'write the text form of a position';

CREATE FUNCTION poll_tally.position_recv(pg_catalog.internal) RETURNS poll_tally.event_position
	AS 'MODULE_PATHNAME', 'position_recv'
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION poll_tally.position_recv(pg_catalog.internal) IS
	'read the binary form of a position';

CREATE FUNCTION poll_tally.position_send(poll_tally.event_position) RETURNS pg_catalog.bytea
	AS 'MODULE_PATHNAME', 'position_send'
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION poll_tally.position_send(poll_tally.event_position) IS
	'write the binary form of a position';

CREATE TYPE poll_tally.event_position (
	INPUT = poll_tally.position_in,
	OUTPUT = poll_tally.position_out,
	RECEIVE = poll_tally.position_recv,
	SEND = poll_tally.position_send,
	LIKE = pg_catalog.int8
);
COMMENT ON TYPE poll_tally.event_position IS
	'place of an event in its poll: lane and seq, written lane/seq and sorted so';

CREATE FUNCTION poll_tally.lane(at_position poll_tally.event_position) RETURNS pg_catalog.int4
	AS 'MODULE_PATHNAME', 'position_lane_sql'
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION poll_tally.lane(poll_tally.event_position) IS
	'lane of a position, from 0';

CREATE FUNCTION poll_tally.seq(at_position poll_tally.event_position) RETURNS pg_catalog.int8
	AS 'MODULE_PATHNAME', 'position_seq_sql'
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION poll_tally.seq(poll_tally.event_position) IS
	'seq of a position within its lane, from 1';

CREATE FUNCTION poll_tally.position_eq(a poll_tally.event_position, b poll_tally.event_position) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME', 'position_eq'
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION poll_tally.position_eq(poll_tally.event_position, poll_tally.event_position) IS
	'are the two positions equal?';

CREATE FUNCTION poll_tally.position_ne(a poll_tally.event_position, b poll_tally.event_position) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME', 'position_ne'
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION poll_tally.position_ne(poll_tally.event_position, poll_tally.event_position) IS
	'do the two positions differ?';

CREATE FUNCTION poll_tally.position_lt(a poll_tally.event_position, b poll_tally.event_position) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME', 'position_lt'
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION poll_tally.position_lt(poll_tally.event_position, poll_tally.event_position) IS
	'less than, in the order of the type';

CREATE FUNCTION poll_tally.position_le(a poll_tally.event_position, b poll_tally.event_position) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME', 'position_le'
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION poll_tally.position_le(poll_tally.event_position, poll_tally.event_position) IS
	'less than or equal, in the order of the type';

CREATE FUNCTION poll_tally.position_ge(a poll_tally.event_position, b poll_tally.event_position) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME', 'position_ge'
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION poll_tally.position_ge(poll_tally.event_position, poll_tally.event_position) IS
	'greater than or equal, in the order of the type';

CREATE FUNCTION poll_tally.position_gt(a poll_tally.event_position, b poll_tally.event_position) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME', 'position_gt'
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION poll_tally.position_gt(poll_tally.event_position, poll_tally.event_position) IS
	'greater than, in the order of the type';

CREATE FUNCTION poll_tally.position_compare(a poll_tally.event_position, b poll_tally.event_position) RETURNS pg_catalog.int4
	AS 'MODULE_PATHNAME', 'position_compare_sql'
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION poll_tally.position_compare(poll_tally.event_position, poll_tally.event_position) IS
	'below, at or above 0, in the order of the type';

CREATE FUNCTION poll_tally.position_hash(value poll_tally.event_position) RETURNS pg_catalog.int4
	AS 'MODULE_PATHNAME', 'position_hash'
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION poll_tally.position_hash(poll_tally.event_position) IS
	'hash';

CREATE FUNCTION poll_tally.position_hash_extended(value poll_tally.event_position, seed pg_catalog.int8) RETURNS pg_catalog.int8
	AS 'MODULE_PATHNAME', 'position_hash_extended'
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION poll_tally.position_hash_extended(poll_tally.event_position, pg_catalog.int8) IS
	'hash of 64 bits, with a seed';

CREATE OPERATOR poll_tally.= (
	FUNCTION = poll_tally.position_eq, LEFTARG = poll_tally.event_position,
	RIGHTARG = poll_tally.event_position, COMMUTATOR = OPERATOR(poll_tally.=),
	NEGATOR = OPERATOR(poll_tally.<>), RESTRICT = pg_catalog.eqsel,
	JOIN = pg_catalog.eqjoinsel, HASHES, MERGES
);
COMMENT ON OPERATOR poll_tally.= (poll_tally.event_position, poll_tally.event_position) IS
	'equal';

CREATE OPERATOR poll_tally.<> (
	FUNCTION = poll_tally.position_ne, LEFTARG = poll_tally.event_position,
	RIGHTARG = poll_tally.event_position, COMMUTATOR = OPERATOR(poll_tally.<>),
	NEGATOR = OPERATOR(poll_tally.=), RESTRICT = pg_catalog.neqsel,
	JOIN = pg_catalog.neqjoinsel
);
COMMENT ON OPERATOR poll_tally.<> (poll_tally.event_position, poll_tally.event_position) IS
	'not equal';

CREATE OPERATOR poll_tally.< (
	FUNCTION = poll_tally.position_lt, LEFTARG = poll_tally.event_position,
	RIGHTARG = poll_tally.event_position, COMMUTATOR = OPERATOR(poll_tally.>),
	NEGATOR = OPERATOR(poll_tally.>=), RESTRICT = pg_catalog.scalarltsel,
	JOIN = pg_catalog.scalarltjoinsel
);
COMMENT ON OPERATOR poll_tally.< (poll_tally.event_position, poll_tally.event_position) IS
	'less than';

CREATE OPERATOR poll_tally.<= (
	FUNCTION = poll_tally.position_le, LEFTARG = poll_tally.event_position,
	RIGHTARG = poll_tally.event_position, COMMUTATOR = OPERATOR(poll_tally.>=),
	NEGATOR = OPERATOR(poll_tally.>), RESTRICT = pg_catalog.scalarlesel,
	JOIN = pg_catalog.scalarlejoinsel
);
COMMENT ON OPERATOR poll_tally.<= (poll_tally.event_position, poll_tally.event_position) IS
	'less than or equal';

CREATE OPERATOR poll_tally.>= (
	FUNCTION = poll_tally.position_ge, LEFTARG = poll_tally.event_position,
	RIGHTARG = poll_tally.event_position, COMMUTATOR = OPERATOR(poll_tally.<=),
	NEGATOR = OPERATOR(poll_tally.<), RESTRICT = pg_catalog.scalargesel,
	JOIN = pg_catalog.scalargejoinsel
);
COMMENT ON OPERATOR poll_tally.>= (poll_tally.event_position, poll_tally.event_position) IS
	'greater than or equal';

CREATE OPERATOR poll_tally.> (
	FUNCTION = poll_tally.position_gt, LEFTARG = poll_tally.event_position,
	RIGHTARG = poll_tally.event_position, COMMUTATOR = OPERATOR(poll_tally.<),
	NEGATOR = OPERATOR(poll_tally.<=), RESTRICT = pg_catalog.scalargtsel,
	JOIN = pg_catalog.scalargtjoinsel
);
COMMENT ON OPERATOR poll_tally.> (poll_tally.event_position, poll_tally.event_position) IS
	'greater than';

CREATE OPERATOR CLASS poll_tally.event_position_ops DEFAULT FOR TYPE poll_tally.event_position USING btree AS
	OPERATOR 1 poll_tally.<,
	OPERATOR 2 poll_tally.<=,
	OPERATOR 3 poll_tally.=,
	OPERATOR 4 poll_tally.>=,
	OPERATOR 5 poll_tally.>,
	FUNCTION 1 poll_tally.position_compare(poll_tally.event_position, poll_tally.event_position),
	FUNCTION 4 pg_catalog.btequalimage(pg_catalog.oid);
COMMENT ON OPERATOR CLASS poll_tally.event_position_ops USING btree IS
	'order of positions';
COMMENT ON OPERATOR FAMILY poll_tally.event_position_ops USING btree IS
	'order of positions';

CREATE OPERATOR CLASS poll_tally.event_position_ops DEFAULT FOR TYPE poll_tally.event_position USING hash AS
	OPERATOR 1 poll_tally.=,
	FUNCTION 1 poll_tally.position_hash(poll_tally.event_position),
	FUNCTION 2 poll_tally.position_hash_extended(poll_tally.event_position, pg_catalog.int8);
COMMENT ON OPERATOR CLASS poll_tally.event_position_ops USING hash IS
	'hashing of positions';
COMMENT ON OPERATOR FAMILY poll_tally.event_position_ops USING hash IS
	'hashing of positions';

CREATE FUNCTION poll_tally.make_position(lane integer, seq bigint) RETURNS poll_tally.event_position
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'position_make_sql';
COMMENT ON FUNCTION poll_tally.make_position(integer, bigint) IS 'the position of seq in lane; 22003 when out of range';


-- ---------------------------------------------------------------------------
-- Version
-- ---------------------------------------------------------------------------

CREATE FUNCTION poll_tally.library_version() RETURNS text
    LANGUAGE c STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'poll_tally_library_version';
COMMENT ON FUNCTION poll_tally.library_version() IS 'version of the loaded library';

CREATE FUNCTION poll_tally.version(OUT library text, OUT script text)
    LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT poll_tally.library_version(),
           (SELECT e.extversion FROM pg_extension AS e WHERE e.extname = 'poll_tally');
END;
COMMENT ON FUNCTION poll_tally.version() IS 'versions of the loaded library and of the installed script; they differ between installing an update and ALTER EXTENSION UPDATE';

-- ---------------------------------------------------------------------------
-- Tables: private; views and functions are the interface
-- ---------------------------------------------------------------------------

CREATE SEQUENCE poll_tally.poll_id_seq AS integer;
COMMENT ON SEQUENCE poll_tally.poll_id_seq IS 'numbers of polls';

-- src/poll.h knows the order of the columns.
CREATE TABLE poll_tally.poll (
    poll_id integer NOT NULL DEFAULT pg_catalog.nextval('poll_tally.poll_id_seq'),
    max_choices integer NOT NULL,
    min_weight bigint NOT NULL,
    max_weight bigint NOT NULL,
    max_lanes integer NOT NULL,
    open_choices boolean NOT NULL,
    restricted boolean NOT NULL,
    poll poll_tally.ident NOT NULL,
    counting text NOT NULL CHECK (counting IN ('once', 'latest', 'every')),
    max_attempts integer,
    min_count bigint,
    max_count bigint,
    opens_at timestamptz,
    closes_at timestamptz,
    closed_at timestamptz,
    title text,
    hidden_until_close boolean NOT NULL,
    exact boolean NOT NULL DEFAULT false,
    publish_every interval NOT NULL,
    publish_min_events integer NOT NULL,
    notify text NOT NULL CHECK (notify IN ('snapshot', 'pointer')),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (poll_id),
    UNIQUE (poll)
);
CREATE INDEX poll_closes_at ON poll_tally.poll (closes_at)
    WHERE closed_at IS NULL AND closes_at IS NOT NULL;
COMMENT ON INDEX poll_tally.poll_closes_at IS 'the next deadlines, for the worker';
COMMENT ON TABLE poll_tally.poll IS 'polls and their rules; closed_at and closes_at change under all lanes of the poll';

-- src/choice.c knows the order of the columns.
CREATE TABLE poll_tally.choice (
    poll_id integer NOT NULL,
    ord integer NOT NULL,
    narrow boolean NOT NULL,
    choice poll_tally.ident NOT NULL,
    label text,
    PRIMARY KEY (poll_id, choice)
);
-- One poll of very many choices is no reason to read all of them for another.
ALTER TABLE poll_tally.choice ALTER COLUMN poll_id SET (n_distinct = -0.02);
COMMENT ON TABLE poll_tally.choice IS 'choices of polls; counts of narrow ones are kept in the lane''s own row';

CREATE TABLE poll_tally.roll (
    poll_id integer NOT NULL,
    principal poll_tally.ident NOT NULL,
    PRIMARY KEY (poll_id, principal)
);
COMMENT ON TABLE poll_tally.roll IS 'principals that may respond to a restricted poll';

-- src/lane.c knows the order of the columns.  Rows are updated once a
-- transaction; room is left on the page for it.
CREATE TABLE poll_tally.lane (
    poll_id integer NOT NULL,
    lane integer NOT NULL,
    keys bigint NOT NULL,
    seq bigint NOT NULL,
    counts poll_tally.tally NOT NULL,
    PRIMARY KEY (poll_id, lane)
) WITH (fillfactor = 40, autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE poll_tally.lane ALTER COLUMN counts SET STORAGE MAIN;
COMMENT ON TABLE poll_tally.lane IS 'lanes: highest seq, how many choices the lane made known to an open-choice poll, and the counts of narrow choices; guarded by the lane''s lock';

-- src/lane_rows.c knows the order of the columns.
CREATE TABLE poll_tally.lane_count (
    poll_id integer NOT NULL,
    lane integer NOT NULL,
    choice poll_tally.ident NOT NULL,
    count bigint NOT NULL,
    PRIMARY KEY (poll_id, choice, lane)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE poll_tally.lane_count ALTER COLUMN poll_id SET (n_distinct = -0.001);
COMMENT ON TABLE poll_tally.lane_count IS 'counts of the choices that are not narrow, by lane; guarded by the lane''s lock';

-- src/ledger.c knows the order of the columns.
CREATE TABLE poll_tally.ledger (
    poll_id integer NOT NULL,
    link integer,
    "position" poll_tally.event_position NOT NULL,
    accepted_at timestamptz NOT NULL,
    event_id poll_tally.ident NOT NULL,
    votes poll_tally.tally NOT NULL,
    principal poll_tally.ident,
    effect poll_tally.tally,
    attempt integer,
    granted integer,
    barred boolean,
    occurred_at timestamptz,
    payload jsonb,
    source poll_tally.ident,
    source_partition integer,
    source_offset bigint,
    retracts poll_tally.ident,
    reason text,
    may_respond_again boolean,
    PRIMARY KEY (poll_id, "position")
);
CREATE UNIQUE INDEX ledger_event_id_key ON poll_tally.ledger (event_id);
CREATE UNIQUE INDEX ledger_principal_key ON poll_tally.ledger (poll_id, principal, link)
    WHERE principal IS NOT NULL;
CREATE UNIQUE INDEX ledger_source_key ON poll_tally.ledger (source, source_partition, source_offset)
    WHERE source IS NOT NULL;
CREATE UNIQUE INDEX ledger_retracts_key ON poll_tally.ledger (retracts)
    WHERE retracts IS NOT NULL;
COMMENT ON TABLE poll_tally.ledger IS 'the append-only ledger of accepted events and retractions; effect is NULL where it equals votes, attempt where it equals link';
COMMENT ON INDEX poll_tally.ledger_event_id_key IS 'an id counts once';
COMMENT ON INDEX poll_tally.ledger_principal_key IS 'the entries of a principal in a poll form one chain';
COMMENT ON INDEX poll_tally.ledger_source_key IS 'a source coordinate carries one event';
COMMENT ON INDEX poll_tally.ledger_retracts_key IS 'an event is taken back once';

CREATE TABLE poll_tally.publication (
    poll_id integer NOT NULL,
    revision bigint NOT NULL,
    included_position bigint NOT NULL,
    frontier bigint[] NOT NULL,
    published_at timestamptz NOT NULL,
    final boolean NOT NULL,
    announced bigint NOT NULL,
    PRIMARY KEY (poll_id)
) WITH (fillfactor = 50);
COMMENT ON TABLE poll_tally.publication IS 'one row a poll: its newest revision, and the newest that was announced; whoever locks it publishes';

CREATE TABLE poll_tally.snapshot (
    poll_id integer NOT NULL,
    revision bigint NOT NULL,
    included_position bigint NOT NULL,
    frontier bigint[] NOT NULL,
    counts poll_tally.tally,
    total bigint,
    published_at timestamptz NOT NULL,
    final boolean NOT NULL,
    PRIMARY KEY (poll_id, revision)
);
COMMENT ON TABLE poll_tally.snapshot IS 'published snapshots; counts are NULL for a poll wider than 1,000 choices';

CREATE TABLE poll_tally.audience (
    poll_id integer NOT NULL,
    audience poll_tally.ident NOT NULL,
    revision bigint NOT NULL,
    observed_at timestamptz NOT NULL,
    PRIMARY KEY (poll_id, audience)
) WITH (fillfactor = 50);
COMMENT ON TABLE poll_tally.audience IS 'the revision that each group of viewers was last seen to have';

CREATE TABLE poll_tally.source (
    source poll_tally.ident NOT NULL,
    source_partition integer NOT NULL,
    next_offset bigint NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (source, source_partition)
) WITH (fillfactor = 50);
COMMENT ON TABLE poll_tally.source IS 'cursors of consumers: where each goes on in its source';

CREATE TABLE poll_tally.epoch_salt (
    only_row boolean NOT NULL DEFAULT true CHECK (only_row),
    salt text NOT NULL,
    PRIMARY KEY (only_row)
);
COMMENT ON TABLE poll_tally.epoch_salt IS 'what renew_epoch() drew last; no row until then';

-- Dumps carry the data of all of them.
SELECT pg_extension_config_dump('poll_tally.poll_id_seq', '');
SELECT pg_extension_config_dump('poll_tally.poll', '');
SELECT pg_extension_config_dump('poll_tally.choice', '');
SELECT pg_extension_config_dump('poll_tally.roll', '');
SELECT pg_extension_config_dump('poll_tally.lane', '');
SELECT pg_extension_config_dump('poll_tally.lane_count', '');
SELECT pg_extension_config_dump('poll_tally.ledger', '');
SELECT pg_extension_config_dump('poll_tally.publication', '');
SELECT pg_extension_config_dump('poll_tally.snapshot', '');
SELECT pg_extension_config_dump('poll_tally.audience', '');
SELECT pg_extension_config_dump('poll_tally.source', '');
SELECT pg_extension_config_dump('poll_tally.epoch_salt', '');

-- ---------------------------------------------------------------------------
-- Guards
-- ---------------------------------------------------------------------------

CREATE FUNCTION poll_tally.ledger_guard() RETURNS trigger
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION poll_tally.ledger_guard() IS 'refuses UPDATE, DELETE and TRUNCATE of the ledger with 55000';

CREATE TRIGGER ledger_guard BEFORE UPDATE OR DELETE OR TRUNCATE ON poll_tally.ledger
    FOR EACH STATEMENT EXECUTE FUNCTION poll_tally.ledger_guard();
ALTER TABLE poll_tally.ledger ENABLE ALWAYS TRIGGER ledger_guard;
COMMENT ON TRIGGER ledger_guard ON poll_tally.ledger IS 'the ledger is append-only, for a superuser too and whatever session_replication_role says';

-- ---------------------------------------------------------------------------
-- What is counted, read from the rows
-- ---------------------------------------------------------------------------

CREATE FUNCTION poll_tally.pending_count(poll_id integer, choice text) RETURNS bigint
    LANGUAGE c STABLE STRICT PARALLEL RESTRICTED AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION poll_tally.pending_count(integer, text) IS 'what the current transaction has counted of a choice and not yet written; for views';

CREATE FUNCTION poll_tally.pending_counts(poll_id integer) RETURNS poll_tally.tally
    LANGUAGE c STABLE STRICT PARALLEL RESTRICTED AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION poll_tally.pending_counts(integer) IS 'all that the current transaction has counted of a poll and not yet written; for views';

CREATE FUNCTION poll_tally.pending_entries(poll_id integer) RETURNS bigint
    LANGUAGE c STABLE STRICT PARALLEL RESTRICTED AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION poll_tally.pending_entries(integer) IS 'how many ledger entries of a poll the current transaction has made and not yet written to its lane; for views';

CREATE FUNCTION poll_tally.pending_lane(poll_id integer) RETURNS integer
    LANGUAGE c STABLE STRICT PARALLEL RESTRICTED AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION poll_tally.pending_lane(integer) IS 'the lane of a poll that the current transaction holds; for views';

CREATE FUNCTION poll_tally.frontier_of(poll_id integer) RETURNS bigint[]
    LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT coalesce(array_agg(coalesce(l.seq, 0) ORDER BY g.lane), '{}')
    FROM generate_series(0, (SELECT max(m.lane) FROM poll_tally.lane AS m
                             WHERE m.poll_id = frontier_of.poll_id)) AS g (lane)
    LEFT JOIN poll_tally.lane AS l ON l.poll_id = frontier_of.poll_id AND l.lane = g.lane;
END;
COMMENT ON FUNCTION poll_tally.frontier_of(integer) IS 'the frontier of a poll by its number: highest seq of each lane, from lane 0';

CREATE FUNCTION poll_tally.counts_of(poll_id integer) RETURNS poll_tally.tally
    LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT poll_tally.add(
        coalesce((SELECT poll_tally.sum(l.counts) FROM poll_tally.lane AS l
                  WHERE l.poll_id = counts_of.poll_id), '{}'),
        coalesce((SELECT poll_tally.make_tally(array_agg(w.choice), array_agg(w.count))
                  FROM (SELECT c.choice::text, sum(c.count)::bigint
                        FROM poll_tally.lane_count AS c
                        WHERE c.poll_id = counts_of.poll_id
                        GROUP BY c.choice) AS w (choice, count)), '{}'));
END;
COMMENT ON FUNCTION poll_tally.counts_of(integer) IS 'the running counts of a poll by its number, over all lanes';

CREATE FUNCTION poll_tally.total_if_fits(counts poll_tally.tally) RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'tally_total_if_fits';
COMMENT ON FUNCTION poll_tally.total_if_fits(poll_tally.tally) IS 'total of all counts; NULL when it does not fit into bigint';

-- From poll by poll, so that one of very many keys is no reason to read them for another.
CREATE VIEW poll_tally.poll_key WITH (security_barrier) AS
SELECT p.poll, p.poll_id, k.choice, k.label, k.ord, k.narrow
FROM poll_tally.poll AS p
CROSS JOIN LATERAL (
    SELECT c.choice, c.label, c.ord, c.narrow
    FROM poll_tally.choice AS c WHERE c.poll_id = p.poll_id
    UNION ALL
    SELECT DISTINCT w.choice, NULL::text, NULL::integer, false
    FROM poll_tally.lane_count AS w
    WHERE w.poll_id = p.poll_id
      AND NOT EXISTS (SELECT FROM poll_tally.choice AS c
                      WHERE c.poll_id = w.poll_id AND c.choice = w.choice)
) AS k;
COMMENT ON VIEW poll_tally.poll_key IS 'choices of polls by number: those given by name, and those that events made known to an open-choice poll';

CREATE FUNCTION poll_tally.is_wide(poll_id integer) RETURNS boolean
    LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    -- The keys of a lane are different ones, and those of two lanes may be the
    -- same: so most often there is no need to look at the keys.
    SELECT CASE
        WHEN g.given > 1000 OR n.most > 1000 THEN true
        WHEN g.given + n.keys <= 1000 THEN false
        ELSE EXISTS (SELECT FROM poll_tally.poll_key AS k
                     WHERE k.poll_id = is_wide.poll_id OFFSET 1000) END
    FROM (SELECT count(*) FROM (SELECT FROM poll_tally.choice AS c
                                WHERE c.poll_id = is_wide.poll_id LIMIT 1001) AS f) AS g (given),
         (SELECT coalesce(max(l.keys), 0), coalesce(sum(l.keys), 0) FROM poll_tally.lane AS l
          WHERE l.poll_id = is_wide.poll_id) AS n (most, keys);
END;
COMMENT ON FUNCTION poll_tally.is_wide(integer) IS 'whether a poll has more choices than a snapshot carries, 1,000';

CREATE FUNCTION poll_tally.epoch_of(poll_id integer) RETURNS text
    LANGUAGE c STABLE STRICT PARALLEL RESTRICTED AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION poll_tally.epoch_of(integer) IS 'the epoch of a poll by its number: changes whenever its revisions could run backwards';

-- ---------------------------------------------------------------------------
-- Polls
-- ---------------------------------------------------------------------------

CREATE FUNCTION poll_tally.create_poll(
    poll text, choices text[] DEFAULT '{}', title text DEFAULT NULL,
    counting text DEFAULT 'once', max_attempts integer DEFAULT NULL,
    max_choices integer DEFAULT 1, min_weight bigint DEFAULT 1,
    max_weight bigint DEFAULT 1, open_choices boolean DEFAULT false,
    restricted boolean DEFAULT false, min_count bigint DEFAULT NULL,
    max_count bigint DEFAULT NULL, opens_at timestamptz DEFAULT NULL,
    closes_at timestamptz DEFAULT NULL, hidden_until_close boolean DEFAULT false,
    publish_every interval DEFAULT '1 second', publish_min_events integer DEFAULT 1,
    notify text DEFAULT 'snapshot', max_lanes integer DEFAULT NULL)
    RETURNS void LANGUAGE c VOLATILE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION poll_tally.create_poll(text, text[], text, text, integer, integer, bigint, bigint, boolean, boolean, bigint, bigint, timestamptz, timestamptz, boolean, interval, integer, text, integer)
    IS 'make a poll; 42710 when its name is taken, 22023 for a bad argument or combination';

CREATE FUNCTION poll_tally.add_choice(poll text, choice text, label text DEFAULT NULL)
    RETURNS void LANGUAGE c VOLATILE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION poll_tally.add_choice(text, text, text)
    IS 'add a choice to a poll; P0002 without such a poll, 55000 when it is closed or its deadline has passed, 42710 when it has the choice';

CREATE FUNCTION poll_tally.create_counter(
    poll text, title text DEFAULT NULL, hidden_until_close boolean DEFAULT false,
    publish_every interval DEFAULT '1 second', publish_min_events integer DEFAULT 1,
    notify text DEFAULT 'snapshot')
    RETURNS void LANGUAGE sql VOLATILE
BEGIN ATOMIC
    SELECT poll_tally.create_poll(
        create_counter.poll, title => create_counter.title, counting => 'every',
        max_choices => 1000, min_weight => (-9223372036854775808)::bigint,
        max_weight => 9223372036854775807, open_choices => true,
        hidden_until_close => create_counter.hidden_until_close,
        publish_every => create_counter.publish_every,
        publish_min_events => create_counter.publish_min_events,
        notify => create_counter.notify);
END;
COMMENT ON FUNCTION poll_tally.create_counter(text, text, boolean, interval, integer, text)
    IS 'make a poll that counts every event, of any weight, over an open set of keys; errors as of create_poll';

CREATE FUNCTION poll_tally.alter_poll(
    poll text, title text DEFAULT NULL, closes_at timestamptz DEFAULT NULL,
    opens_at timestamptz DEFAULT NULL, publish_every interval DEFAULT NULL,
    publish_min_events integer DEFAULT NULL, notify text DEFAULT NULL,
    max_attempts integer DEFAULT NULL)
    RETURNS void LANGUAGE c VOLATILE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION poll_tally.alter_poll(text, text, timestamptz, timestamptz, interval, integer, text, integer)
    IS 'change settings of a poll; NULL leaves one as it is, infinity clears a time. P0002 without such a poll, 55000 when it is closed or its deadline has passed, 22023 for what is never allowed';

CREATE FUNCTION poll_tally.set_eligible(poll text, principals text[], eligible boolean DEFAULT true)
    RETURNS bigint LANGUAGE c VOLATILE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION poll_tally.set_eligible(text, text[], boolean)
    IS 'put principals on the roll of a restricted poll, or take them off; returns how many changed. P0002 without such a poll, 22023 when it has no roll, 55000 when it is closed or its deadline has passed';

-- ---------------------------------------------------------------------------
-- Events
-- ---------------------------------------------------------------------------

CREATE TYPE poll_tally.receipt AS (
    outcome poll_tally.outcome,
    event_id text,
    "position" poll_tally.event_position,
    attempt integer,
    accepted_at timestamptz,
    retryable boolean,
    differs text[],
    detail text
);
COMMENT ON TYPE poll_tally.receipt IS 'the verdict on one event';

CREATE FUNCTION poll_tally.accept_event(
    poll text, event_id text, choice text DEFAULT NULL, principal text DEFAULT NULL,
    votes jsonb DEFAULT NULL, payload jsonb DEFAULT NULL, source text DEFAULT NULL,
    source_partition integer DEFAULT NULL, source_offset bigint DEFAULT NULL,
    occurred_at timestamptz DEFAULT NULL)
    RETURNS poll_tally.receipt LANGUAGE c VOLATILE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION poll_tally.accept_event(text, text, text, text, jsonb, jsonb, text, integer, bigint, timestamptz)
    IS 'judge one event and count it exactly once; returns the verdict as one row';

CREATE FUNCTION poll_tally.accept_event_or_raise(
    poll text, event_id text, choice text DEFAULT NULL, principal text DEFAULT NULL,
    votes jsonb DEFAULT NULL, payload jsonb DEFAULT NULL, source text DEFAULT NULL,
    source_partition integer DEFAULT NULL, source_offset bigint DEFAULT NULL,
    occurred_at timestamptz DEFAULT NULL)
    RETURNS poll_tally.receipt LANGUAGE c VOLATILE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION poll_tally.accept_event_or_raise(text, text, text, text, jsonb, jsonb, text, integer, bigint, timestamptz)
    IS 'accept_event, with every outcome but accepted and duplicate raised as an error';

CREATE TYPE poll_tally.batch_receipt AS (
    ord integer,
    outcome poll_tally.outcome,
    event_id text,
    "position" poll_tally.event_position,
    attempt integer,
    accepted_at timestamptz,
    retryable boolean,
    differs text[],
    detail text
);
COMMENT ON TYPE poll_tally.batch_receipt IS 'the verdict on one event of a batch, with its place from 1';

CREATE FUNCTION poll_tally.accept_events(
    poll text, event_ids text[], choices text[] DEFAULT NULL,
    principals text[] DEFAULT NULL, votes jsonb[] DEFAULT NULL,
    payloads jsonb[] DEFAULT NULL, source text DEFAULT NULL,
    source_partition integer DEFAULT NULL, source_offsets bigint[] DEFAULT NULL,
    occurred_ats timestamptz[] DEFAULT NULL, polls text[] DEFAULT NULL,
    all_or_nothing boolean DEFAULT false)
    RETURNS SETOF poll_tally.batch_receipt LANGUAGE c VOLATILE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION poll_tally.accept_events(text, text[], text[], text[], jsonb[], jsonb[], text, integer, bigint[], timestamptz[], text[], boolean)
    IS 'judge many events as if one after the other; one verdict an element, in input order. 2202E for arrays of unequal lengths, 54000 above poll_tally.max_batch';

CREATE FUNCTION poll_tally.accept_json(body text, principal text DEFAULT NULL)
    RETURNS poll_tally.receipt LANGUAGE c VOLATILE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION poll_tally.accept_json(text, text)
    IS 'accept_event for a JSON body with exactly the strings event_id, poll_id and candidate_id; anything else is invalid';

CREATE FUNCTION poll_tally.retract_event(
    poll text, event_id text, retraction_id text, reason text DEFAULT NULL,
    may_respond_again boolean DEFAULT true)
    RETURNS poll_tally.receipt LANGUAGE c VOLATILE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION poll_tally.retract_event(text, text, text, text, boolean)
    IS 'take back what an event counts, by an entry of its own id; returns the verdict as one row';

CREATE FUNCTION poll_tally.event_status(event_id text, OUT status text,
    OUT outcome poll_tally.outcome, OUT poll text,
    OUT "position" poll_tally.event_position, OUT accepted_at timestamptz,
    OUT attempts integer, OUT detail text)
    LANGUAGE c STABLE PARALLEL RESTRICTED AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION poll_tally.event_status(text)
    IS 'what became of an event id: status accepted or unknown, and where the ledger has it';

-- ---------------------------------------------------------------------------
-- Views
-- ---------------------------------------------------------------------------

CREATE VIEW poll_tally.polls WITH (security_barrier) AS
SELECT p.poll::text, p.title, p.counting, p.max_attempts, p.max_choices, p.min_weight,
       p.max_weight, p.open_choices, p.restricted, p.min_count, p.max_count,
       p.opens_at, p.closes_at, p.hidden_until_close, p.publish_every,
       p.publish_min_events, p.notify, p.max_lanes, p.created_at, p.closed_at,
       (coalesce((SELECT sum(l.seq) FROM poll_tally.lane AS l
                  WHERE l.poll_id = p.poll_id), 0)
        + poll_tally.pending_entries(p.poll_id))::bigint AS accepted_position
FROM poll_tally.poll AS p;
COMMENT ON VIEW poll_tally.polls IS 'polls, their settings, and how many ledger entries each has';

CREATE VIEW poll_tally.choices WITH (security_barrier) AS
SELECT k.poll::text, k.choice::text, k.label, k.ord
FROM poll_tally.poll_key AS k;
COMMENT ON VIEW poll_tally.choices IS 'choices of polls; ord is the order in which they were named, NULL for one that an event made known';

CREATE VIEW poll_tally.counted WITH (security_barrier) AS
SELECT p.poll_id, p.poll::text, k.choice::text, k.label, k.ord,
       (CASE WHEN k.narrow
        THEN coalesce(poll_tally.get(n.counts, k.choice), 0)
        ELSE coalesce((SELECT sum(w.count) FROM poll_tally.lane_count AS w
                       WHERE w.poll_id = k.poll_id AND w.choice = k.choice), 0)
        END + poll_tally.pending_count(k.poll_id, k.choice))::bigint AS count
FROM poll_tally.poll AS p
CROSS JOIN LATERAL (  -- once a poll, not once a choice
    SELECT poll_tally.sum(l.counts) AS counts
    FROM poll_tally.lane AS l WHERE l.poll_id = p.poll_id
) AS n
JOIN poll_tally.poll_key AS k ON k.poll_id = p.poll_id;
COMMENT ON VIEW poll_tally.counted IS 'live counts of each choice; what results and results_of are made of';

CREATE VIEW poll_tally.totals WITH (security_barrier) AS
SELECT p.poll::text,
       coalesce((SELECT sum(e.count) FROM poll_tally.lane AS l
                 CROSS JOIN LATERAL poll_tally.each(l.counts) AS e
                 WHERE l.poll_id = p.poll_id), 0)
       + coalesce((SELECT sum(w.count) FROM poll_tally.lane_count AS w
                   WHERE w.poll_id = p.poll_id), 0)
       + coalesce((SELECT sum(e.count)
                   FROM poll_tally.each(poll_tally.pending_counts(p.poll_id)) AS e), 0) AS total
FROM poll_tally.poll AS p;
COMMENT ON VIEW poll_tally.totals IS 'live total of each poll''s counts; what shares are fractions of';

CREATE VIEW poll_tally.results WITH (security_barrier) AS
SELECT p.poll::text, r.choice, r.label, r.count,
       CASE WHEN r.total <> 0 THEN round(r.count / r.total, 4) END AS share
FROM poll_tally.poll AS p
CROSS JOIN LATERAL (
    SELECT c.choice, c.label, c.count, sum(c.count) OVER () AS total
    FROM poll_tally.counted AS c
    WHERE c.poll_id = p.poll_id
    ORDER BY c.ord, c.choice
) AS r;
COMMENT ON VIEW poll_tally.results IS 'live counts of each choice, with its share of the total as a fraction';

CREATE VIEW poll_tally.snapshots WITH (security_barrier) AS
SELECT p.poll::text, poll_tally.epoch_of(s.poll_id) AS epoch, s.revision,
       s.included_position, s.frontier, s.counts, s.total, s.published_at, s.final
FROM poll_tally.snapshot AS s
JOIN poll_tally.poll AS p ON p.poll_id = s.poll_id;
COMMENT ON VIEW poll_tally.snapshots IS 'published snapshots that are kept, by revision';

CREATE VIEW poll_tally.published WITH (security_barrier) AS
SELECT p.poll::text, r.choice, r.label, r.count,
       CASE WHEN r.total <> 0
            THEN round(r.count::numeric / r.total, 4) END AS share
FROM poll_tally.poll AS p
JOIN poll_tally.publication AS b ON b.poll_id = p.poll_id
JOIN poll_tally.snapshot AS s ON s.poll_id = b.poll_id
    AND s.revision = b.revision
CROSS JOIN LATERAL (
    SELECT c.choice::text, c.label, poll_tally.get(s.counts, c.choice) AS count,
           s.total, c.ord
    FROM poll_tally.choice AS c
    WHERE c.poll_id = p.poll_id
    UNION ALL
    SELECT e.choice, NULL, e.count, s.total, NULL
    FROM poll_tally.each(s.counts) AS e
    WHERE p.open_choices
      AND NOT EXISTS (SELECT FROM poll_tally.choice AS c
                      WHERE c.poll_id = p.poll_id AND c.choice = e.choice)
    ORDER BY ord, choice
) AS r;
COMMENT ON VIEW poll_tally.published IS 'counts and shares as of the newest snapshot: what viewers see';

CREATE VIEW poll_tally.events WITH (security_barrier) AS
SELECT p.poll::text, l.event_id::text,
       CASE WHEN l.retracts IS NULL THEN 'event' ELSE 'retraction' END AS kind,
       l.principal::text,
       CASE WHEN l.retracts IS NULL THEN coalesce(l.attempt, l.link) END AS attempt,
       l.votes, coalesce(l.effect, l.votes) AS effect, l.payload, l."position",
       l.source::text, l.source_partition, l.source_offset, l.occurred_at,
       l.accepted_at, l.retracts::text
FROM poll_tally.ledger AS l
JOIN poll_tally.poll AS p ON p.poll_id = l.poll_id;
COMMENT ON VIEW poll_tally.events IS 'the ledger: what each sender said (votes) and what it did to the counts (effect)';

CREATE VIEW poll_tally.progress WITH (security_barrier) AS
SELECT p.poll_id, p.poll::text, a.accepted_position, coalesce(b.included_position, 0) AS published_position,
       a.accepted_position - coalesce(b.included_position, 0) AS gap,
       o.oldest_unpublished_at,
       EXTRACT(epoch FROM clock_timestamp() - o.oldest_unpublished_at)::double precision AS lag_seconds,
       poll_tally.epoch_of(p.poll_id) AS epoch, b.revision, b.published_at,
       p.publish_every, b.final,
       (SELECT min(u.revision) FROM poll_tally.audience AS u
        WHERE u.poll_id = p.poll_id) AS observed_revision,
       b.frontier, p.publish_min_events, p.hidden_until_close, p.closes_at, p.closed_at
FROM poll_tally.poll AS p
JOIN poll_tally.publication AS b ON b.poll_id = p.poll_id
CROSS JOIN LATERAL (
    SELECT (coalesce(sum(l.seq), 0)
            + poll_tally.pending_entries(p.poll_id))::bigint
    FROM poll_tally.lane AS l
    WHERE l.poll_id = p.poll_id
) AS a (accepted_position)
CROSS JOIN LATERAL (
    SELECT min(e.accepted_at)
    FROM (SELECT l.lane FROM poll_tally.lane AS l WHERE l.poll_id = p.poll_id
          UNION SELECT poll_tally.pending_lane(p.poll_id)) AS n (lane)
    JOIN poll_tally.ledger AS e ON e.poll_id = p.poll_id
        AND e."position" = poll_tally.make_position(n.lane,
                coalesce(b.frontier[n.lane + 1], 0) + 1)
) AS o (oldest_unpublished_at);
COMMENT ON VIEW poll_tally.progress IS 'how far each poll''s newest snapshot is behind its ledger, and what tells when the next is due; what lag and stalled are made of';

CREATE VIEW poll_tally.lag WITH (security_barrier) AS
SELECT g.poll, g.accepted_position, g.published_position, g.gap, g.oldest_unpublished_at, g.lag_seconds,
       g.epoch, g.revision, g.published_at, g.publish_every, g.final, g.observed_revision
FROM poll_tally.progress AS g;
COMMENT ON VIEW poll_tally.lag IS 'how far each poll''s newest snapshot is behind its ledger';

CREATE VIEW poll_tally.sources WITH (security_barrier) AS
SELECT s.source::text, s.source_partition, s.next_offset, s.updated_at
FROM poll_tally.source AS s;
COMMENT ON VIEW poll_tally.sources IS 'where each consumer goes on in its source';

CREATE VIEW poll_tally.inbox WITH (security_barrier) AS
SELECT NULL::text AS poll, NULL::text AS event_id, NULL::text AS choice,
       NULL::text AS principal, NULL::jsonb AS votes, NULL::jsonb AS payload,
       NULL::text AS source, NULL::integer AS source_partition,
       NULL::bigint AS source_offset, NULL::timestamptz AS occurred_at
WHERE false;
COMMENT ON VIEW poll_tally.inbox IS 'always empty; a row that is inserted or copied into it is accepted as by accept_event_or_raise';

CREATE FUNCTION poll_tally.inbox_insert() RETURNS trigger
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION poll_tally.inbox_insert() IS 'the trigger of the view inbox';
CREATE TRIGGER inbox_insert INSTEAD OF INSERT ON poll_tally.inbox
    FOR EACH ROW EXECUTE FUNCTION poll_tally.inbox_insert();
COMMENT ON TRIGGER inbox_insert ON poll_tally.inbox IS 'accepts each inserted row as an event';

CREATE FUNCTION poll_tally.accept_rows() RETURNS trigger
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION poll_tally.accept_rows()
    IS 'statement trigger for a table of yours: accepts its new rows as events; its arguments say which column, or which constant in quotes, each field comes from';

-- ---------------------------------------------------------------------------
-- Sources and the feed
-- ---------------------------------------------------------------------------

CREATE FUNCTION poll_tally.advance_source(source text, source_partition integer, next_offset bigint)
    RETURNS bigint LANGUAGE c VOLATILE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION poll_tally.advance_source(text, integer, bigint)
    IS 'store where a consumer goes on in its source, never moving back; returns what is stored afterwards';

CREATE FUNCTION poll_tally.source_position(source text, source_partition integer)
    RETURNS bigint LANGUAGE sql STABLE SECURITY DEFINER PARALLEL SAFE
BEGIN ATOMIC
    SELECT s.next_offset FROM poll_tally.source AS s
    WHERE s.source = source_position.source
      AND s.source_partition = source_position.source_partition;
END;
COMMENT ON FUNCTION poll_tally.source_position(text, integer)
    IS 'where a consumer resumes in its source; NULL when nothing is stored';

-- Each lane gives as many as the others, until max_events are found, so that a
-- busy lane does not starve them.  Seqs have no gaps, so a range of them needs no
-- ORDER BY; one by "position" could not be restored by pg_upgrade, which makes
-- functions before operator classes.
CREATE FUNCTION poll_tally.events_after(poll text, frontier bigint[] DEFAULT NULL,
    max_events integer DEFAULT 1000)
    RETURNS SETOF poll_tally.events LANGUAGE sql STABLE SECURITY DEFINER PARALLEL SAFE
BEGIN ATOMIC
    WITH found AS (
        SELECT e.*, p.poll, poll_tally.seq(e."position") - f.seq AS nth
        FROM poll_tally.poll AS p
        CROSS JOIN LATERAL generate_series(0, p.max_lanes - 1) AS n (lane)
        CROSS JOIN LATERAL (
            SELECT least(greatest(coalesce(events_after.frontier[n.lane + 1], 0), 0), 281474976710655)
        ) AS f (seq)
        JOIN poll_tally.ledger AS e ON e.poll_id = p.poll_id
            AND e."position" > poll_tally.make_position(n.lane, f.seq)
            AND e."position" <= poll_tally.make_position(n.lane,
                    least(f.seq + greatest(events_after.max_events, 0), 281474976710655))
        WHERE p.poll = events_after.poll
    ), chosen AS (
        SELECT c.*, poll_tally.lane(c."position") AS lane FROM found AS c
        ORDER BY c.nth, poll_tally.lane(c."position")
        LIMIT greatest(events_after.max_events, 0)
    )
    SELECT c.poll::text, c.event_id::text,
           CASE WHEN c.retracts IS NULL THEN 'event' ELSE 'retraction' END,
           c.principal::text, CASE WHEN c.retracts IS NULL THEN coalesce(c.attempt, c.link) END,
           c.votes, coalesce(c.effect, c.votes), c.payload, c."position",
           c.source::text, c.source_partition, c.source_offset, c.occurred_at,
           c.accepted_at, c.retracts::text
    FROM chosen AS c ORDER BY c.lane, c.nth;
END;
COMMENT ON FUNCTION poll_tally.events_after(text, bigint[], integer)
    IS 'ledger entries behind a frontier, lane by lane, each in seq order; none ever appears behind a frontier that was read';

CREATE FUNCTION poll_tally.advance_frontier(frontier bigint[], at_position poll_tally.event_position)
    RETURNS bigint[] LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT array_agg(CASE WHEN n.i = poll_tally.lane(advance_frontier.at_position) + 1
                          THEN greatest(coalesce(advance_frontier.frontier[n.i], 0),
                                        poll_tally.seq(advance_frontier.at_position))
                          ELSE coalesce(advance_frontier.frontier[n.i], 0) END ORDER BY n.i)
    FROM generate_series(1, greatest(coalesce(cardinality(advance_frontier.frontier), 0),
                                     poll_tally.lane(advance_frontier.at_position) + 1)) AS n (i);
END;
COMMENT ON FUNCTION poll_tally.advance_frontier(bigint[], poll_tally.event_position)
    IS 'the frontier that also covers an entry, to go on behind it';

CREATE FUNCTION poll_tally.results_of(poll text, choices text[] DEFAULT NULL)
    RETURNS TABLE (choice text, label text, count bigint, share numeric)
    LANGUAGE sql STABLE PARALLEL RESTRICTED
BEGIN ATOMIC
    SELECT c.choice, c.label, c.count,
           CASE WHEN t.total <> 0 THEN round(c.count / t.total, 4) END
    FROM poll_tally.totals AS t
    JOIN poll_tally.counted AS c ON c.poll = t.poll
    WHERE t.poll = results_of.poll
      AND (results_of.choices IS NULL OR c.choice = ANY (results_of.choices))
    ORDER BY c.ord, c.choice;
END;
COMMENT ON FUNCTION poll_tally.results_of(text, text[]) IS 'live counts of a poll, of all its choices or of those that are named';

-- ---------------------------------------------------------------------------
-- Snapshots and publication
-- ---------------------------------------------------------------------------

CREATE FUNCTION poll_tally.snapshot(poll text, epoch text DEFAULT NULL,
    after_revision bigint DEFAULT NULL)
    RETURNS SETOF poll_tally.snapshots ROWS 1 LANGUAGE sql STABLE PARALLEL RESTRICTED
BEGIN ATOMIC
    SELECT n.*
    FROM (SELECT s.* FROM poll_tally.snapshots AS s WHERE s.poll = snapshot.poll
          ORDER BY s.revision DESC LIMIT 1) AS n
    WHERE snapshot.after_revision IS DISTINCT FROM n.revision
       OR snapshot.epoch <> n.epoch;
END;
COMMENT ON FUNCTION poll_tally.snapshot(text, text, bigint)
    IS 'the newest snapshot of a poll; no row when the caller, who gives what it has, has it already';

CREATE VIEW poll_tally.message WITH (security_barrier) AS
SELECT q.poll_id, q.poll,
       CASE WHEN octet_length(q.message::text) <= 7999 THEN q.message
            ELSE jsonb_set(q.message, '{counts}', 'null') END AS message
FROM (SELECT p.poll_id, p.poll::text AS poll, jsonb_build_object(
                 'pollId', p.poll, 'epoch', poll_tally.epoch_of(p.poll_id),
                 'revision', s.revision, 'includedPosition', s.included_position,
                 'publishedAt', to_char(s.published_at AT TIME ZONE 'UTC',
                                        'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
                 'counts', CASE WHEN p.notify <> 'pointer' AND s.counts IS NOT NULL
                     THEN coalesce((SELECT jsonb_object_agg(c.choice, 0)
                                    FROM poll_tally.choice AS c WHERE c.poll_id = p.poll_id),
                                   '{}') || s.counts::jsonb END,
                 'final', s.final) AS message
      FROM poll_tally.poll AS p
      JOIN poll_tally.publication AS b ON b.poll_id = p.poll_id
      JOIN poll_tally.snapshot AS s ON s.poll_id = b.poll_id AND s.revision = b.revision) AS q;
COMMENT ON VIEW poll_tally.message IS 'what NOTIFY carries for the newest snapshot of each poll';

CREATE FUNCTION poll_tally.snapshot_message(poll text) RETURNS jsonb
    LANGUAGE sql STABLE SECURITY DEFINER PARALLEL RESTRICTED
BEGIN ATOMIC
    SELECT m.message FROM poll_tally.message AS m WHERE m.poll = snapshot_message.poll;
END;
COMMENT ON FUNCTION poll_tally.snapshot_message(text) IS 'the message that NOTIFY carries for the newest snapshot of a poll';

CREATE FUNCTION poll_tally.channel(poll text) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN 'poll_tally_' || md5(poll);
COMMENT ON FUNCTION poll_tally.channel(text) IS 'the NOTIFY channel of a poll';

CREATE FUNCTION poll_tally.includes(frontier bigint[], at_position poll_tally.event_position)
    RETURNS boolean LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN coalesce(frontier[poll_tally.lane(at_position) + 1] >= poll_tally.seq(at_position), false);
COMMENT ON FUNCTION poll_tally.includes(bigint[], poll_tally.event_position)
    IS 'whether a snapshot with this frontier includes the event at this position';

CREATE FUNCTION poll_tally.publish(poll text, force boolean DEFAULT false)
    RETURNS poll_tally.snapshots LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'publisher_publish';
COMMENT ON FUNCTION poll_tally.publish(text, boolean)
    IS 'publish a snapshot of the poll if one is due, or with force if its frontier moved; returns the newest. P0002 without such a poll, 25001 above READ COMMITTED';

CREATE FUNCTION poll_tally.close_poll(poll text)
    RETURNS poll_tally.snapshots LANGUAGE c VOLATILE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION poll_tally.close_poll(text)
    IS 'wait for the events judged in time, close the poll for ever, and publish its final snapshot, which is returned. P0002 without such a poll, 25001 above READ COMMITTED';

CREATE FUNCTION poll_tally.drop_poll(poll text)
    RETURNS void LANGUAGE c VOLATILE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION poll_tally.drop_poll(text)
    IS 'remove a closed poll with all its events; P0002 without such a poll, 55000 when it is open';

CREATE FUNCTION poll_tally.renew_epoch() RETURNS void
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION poll_tally.renew_epoch() IS 'change the epoch of every poll; for use after storage was restored by other means';

-- ---------------------------------------------------------------------------
-- Truth-keeping
-- ---------------------------------------------------------------------------

CREATE FUNCTION poll_tally.verify_poll(poll text, OUT check_name text, OUT ok boolean,
    OUT expected text, OUT actual text)
    RETURNS SETOF record LANGUAGE c VOLATILE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION poll_tally.verify_poll(text)
    IS 'recount a poll from its ledger and compare; one row a check. P0002 without such a poll, 25001 above READ COMMITTED';

CREATE FUNCTION poll_tally.rebuild_tallies(poll text) RETURNS bigint
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION poll_tally.rebuild_tallies(text)
    IS 'repair running counts and seqs from the ledger, under all lanes; returns how many were wrong. P0002 without such a poll, 25001 above READ COMMITTED, XX001 when a closed poll''s ledger differs from its final counts';

-- ---------------------------------------------------------------------------
-- Statistics
-- ---------------------------------------------------------------------------

CREATE FUNCTION poll_tally.stats_counters(OUT name text, OUT value bigint, OUT since timestamptz)
    RETURNS SETOF record LANGUAGE c VOLATILE PARALLEL RESTRICTED AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION poll_tally.stats_counters() IS 'counters of this database from shared memory; for the view stats';

CREATE VIEW poll_tally.stats WITH (security_barrier) AS
SELECT c.name, c.value, c.since FROM poll_tally.stats_counters() AS c;
COMMENT ON VIEW poll_tally.stats IS 'what was answered and done in this database since the moment given; NULL where the library is not preloaded';

CREATE FUNCTION poll_tally.reset_stats() RETURNS void
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION poll_tally.reset_stats() IS 'start the counters of this database at 0; 55000 where the library is not preloaded';

-- ---------------------------------------------------------------------------
-- Watching
-- ---------------------------------------------------------------------------

CREATE FUNCTION poll_tally.observe_revision(poll text, audience text, revision bigint)
    RETURNS void LANGUAGE c VOLATILE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION poll_tally.observe_revision(text, text, bigint)
    IS 'a gateway''s word on the revision that a group of viewers has; never moves back. P0002 without such a poll, 22023 for a revision that is not published, 54000 for more than 100 audiences a poll';

CREATE FUNCTION poll_tally.worker_rows(OUT pid integer, OUT database text, OUT kind text,
    OUT state text, OUT started_at timestamptz, OUT heartbeat_at timestamptz,
    OUT last_error text, OUT last_sqlstate text, OUT restarts bigint, OUT library_version text)
    RETURNS SETOF record LANGUAGE c VOLATILE PARALLEL RESTRICTED AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION poll_tally.worker_rows() IS 'what the workers say of themselves in shared memory; for the view workers';

CREATE VIEW poll_tally.workers WITH (security_barrier) AS
SELECT w.pid, w.database, w.kind, w.state, w.started_at, w.heartbeat_at, w.last_error,
       w.last_sqlstate, w.restarts, w.library_version
FROM poll_tally.worker_rows() AS w;
COMMENT ON VIEW poll_tally.workers IS 'the launcher, and the publisher of each database; no row where the library is not preloaded';

CREATE FUNCTION poll_tally.publisher_counts(OUT pid integer, OUT attempts bigint, OUT failures bigint)
    LANGUAGE c VOLATILE PARALLEL RESTRICTED AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION poll_tally.publisher_counts() IS 'process, passes with work and failed passes of this database''s publisher; for stalled and metrics';

-- Not for the eyes of the caller alone: the statistics of other roles' sessions
-- are hidden from most, so this runs as its owner.
CREATE FUNCTION poll_tally.blocker_rows(OUT poll_id integer, OUT lane integer, OUT kind text,
    OUT pid integer, OUT gid text, OUT since timestamptz)
    RETURNS SETOF record LANGUAGE sql STABLE SECURITY DEFINER PARALLEL RESTRICTED
BEGIN ATOMIC
    SELECT l.classid::bigint::integer, CASE WHEN l.objid::bigint < 64 THEN l.objid::bigint::integer END,
           CASE WHEN l.pid IS NULL THEN 'prepared' ELSE coalesce(a.state, 'active') END,
           l.pid, x.gid, coalesce(x.prepared, a.state_change)
    FROM pg_locks AS l
    -- A prepared transaction keeps its session's virtual id until a restart, so
    -- that it is found by the lock on its own transaction id.
    LEFT JOIN (pg_prepared_xacts AS x
               JOIN pg_locks AS t ON t.locktype = 'transactionid' AND t.pid IS NULL
                   AND t.transactionid::text = x.transaction::text)
        ON l.pid IS NULL AND t.virtualtransaction = l.virtualtransaction
    LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
    WHERE l.locktype = 'advisory' AND l.objsubid = 7 AND l.granted
      -- Numbers from 64 on are no lanes; 66 and 67 stand for locks of the poll's rows: see src/lane_gate.c.
      AND l.classid::bigint > 0 AND (l.objid::bigint < 64 OR l.objid::bigint IN (66, 67))
      -- A prepared transaction has no pid, and a database without a publisher none either.
      AND (l.pid IS NULL OR l.pid IS DISTINCT FROM (SELECT w.pid FROM poll_tally.publisher_counts() AS w))
      AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database());
END;
COMMENT ON FUNCTION poll_tally.blocker_rows() IS 'who holds which lane in this database, or NULL for the rows of the poll; for the view blockers';

CREATE VIEW poll_tally.blockers WITH (security_barrier) AS
SELECT p.poll::text, b.lane, b.kind, b.pid, b.gid, b.since,
       clock_timestamp() - b.since AS age
FROM poll_tally.blocker_rows() AS b
JOIN poll_tally.poll AS p ON p.poll_id = b.poll_id
WHERE b.kind = 'prepared' OR b.kind LIKE 'idle in transaction%'
   OR p.closed_at IS NULL AND p.closes_at <= clock_timestamp();
COMMENT ON VIEW poll_tally.blockers IS 'prepared and idle transactions that hold a lane, or (lane is NULL) change or publish the poll; of a poll past its deadline, all that keep it from being closed';

CREATE FUNCTION poll_tally.stalled(allowance interval DEFAULT '10 seconds',
    OUT poll text, OUT accepted_position bigint, OUT published_position bigint,
    OUT gap bigint, OUT oldest_unpublished_at timestamptz, OUT lag_seconds double precision,
    OUT epoch text, OUT revision bigint, OUT published_at timestamptz,
    OUT publish_every interval, OUT final boolean, OUT observed_revision bigint,
    OUT due_since timestamptz, OUT publish_attempts bigint, OUT publish_failures bigint,
    OUT worker_pid integer)
    RETURNS SETOF record LANGUAGE sql STABLE SECURITY DEFINER PARALLEL RESTRICTED
BEGIN ATOMIC
    WITH due AS (
        -- The earlier of the two, so that an alert does not begin anew at the deadline.
        SELECT g.*, least(CASE WHEN g.closes_at <= clock_timestamp() THEN g.closes_at END,
                          CASE WHEN m.moved_at IS NOT NULL
                               THEN greatest(g.published_at + g.publish_every, m.moved_at) END) AS since
        FROM poll_tally.progress AS g
        LEFT JOIN LATERAL (
            -- When the entry came in that made the poll due.
            SELECT e.accepted_at
            FROM poll_tally.lane AS l
            JOIN poll_tally.ledger AS e ON e.poll_id = l.poll_id
                AND e."position" > poll_tally.make_position(l.lane, coalesce(g.frontier[l.lane + 1], 0))
                AND e."position" <= poll_tally.make_position(l.lane, l.seq)
            WHERE l.poll_id = g.poll_id AND g.gap >= g.publish_min_events
            ORDER BY e.accepted_at OFFSET g.publish_min_events - 1 LIMIT 1
        ) AS m (moved_at) ON true
        WHERE g.closed_at IS NULL AND NOT g.hidden_until_close
          AND (m.moved_at IS NOT NULL OR g.closes_at <= clock_timestamp())
    )
    SELECT d.poll, d.accepted_position, d.published_position, d.gap, d.oldest_unpublished_at,
           d.lag_seconds, d.epoch, d.revision, d.published_at, d.publish_every, d.final,
           d.observed_revision, d.since, w.attempts, w.failures, w.pid
    FROM due AS d CROSS JOIN poll_tally.publisher_counts() AS w
    WHERE d.since + stalled.allowance < clock_timestamp()
    ORDER BY d.since;
END;
COMMENT ON FUNCTION poll_tally.stalled(interval)
    IS 'polls to page for: those whose publication has been due for longer than the allowance';

CREATE VIEW poll_tally.metrics WITH (security_barrier) AS
SELECT 'poll_tally_events_total' AS name, jsonb_build_object('outcome', s.name) AS labels,
       s.value::double precision AS value
FROM poll_tally.stats_counters() AS s
WHERE EXISTS (SELECT FROM unnest(enum_range(NULL::poll_tally.outcome)) AS o (name)
              WHERE o.name::text = s.name)
UNION ALL
SELECT 'poll_tally_' || s.name || '_total', '{}', s.value::double precision
FROM poll_tally.stats_counters() AS s
WHERE NOT EXISTS (SELECT FROM unnest(enum_range(NULL::poll_tally.outcome)) AS o (name)
                  WHERE o.name::text = s.name)
UNION ALL
SELECT m.name, jsonb_build_object('poll', g.poll), m.value
FROM poll_tally.lag AS g
CROSS JOIN LATERAL (VALUES
    ('poll_tally_accepted_position', g.accepted_position::double precision),
    ('poll_tally_published_position', g.published_position::double precision),
    ('poll_tally_revision', g.revision::double precision),
    ('poll_tally_lag_seconds', coalesce(g.lag_seconds, 0)),
    ('poll_tally_final', g.final::integer::double precision)) AS m (name, value)
UNION ALL
SELECT 'poll_tally_stalled', jsonb_build_object('poll', s.poll),
       EXTRACT(epoch FROM clock_timestamp() - s.due_since)::double precision
FROM poll_tally.stalled() AS s
UNION ALL
SELECT 'poll_tally_blocker_age_seconds',
       jsonb_build_object('poll', b.poll, 'lane', b.lane, 'kind', b.kind),
       EXTRACT(epoch FROM b.age)::double precision
FROM poll_tally.blockers AS b
UNION ALL
SELECT 'poll_tally_worker_heartbeat_age_seconds',
       jsonb_build_object('kind', w.kind, 'database', coalesce(w.database, '')),
       EXTRACT(epoch FROM clock_timestamp() - w.heartbeat_at)::double precision
FROM poll_tally.worker_rows() AS w
WHERE w.pid IS NOT NULL AND w.heartbeat_at IS NOT NULL
UNION ALL
SELECT 'poll_tally_publish_' || c.name || '_total', '{}', c.value::double precision
FROM poll_tally.publisher_counts() AS p
CROSS JOIN LATERAL (VALUES ('attempts', p.attempts), ('failures', p.failures)) AS c (name, value)
UNION ALL
SELECT 'poll_tally_notify_queue_usage', '{}', pg_notification_queue_usage();
COMMENT ON VIEW poll_tally.metrics IS 'all that is worth watching, one number a row, for any exporter';

-- ---------------------------------------------------------------------------
-- Roles
-- ---------------------------------------------------------------------------

CREATE FUNCTION poll_tally.grant_submitter(role regrole) RETURNS void
    LANGUAGE c VOLATILE STRICT AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION poll_tally.grant_submitter(regrole) IS 'let a role submit events and ask what became of them';
CREATE FUNCTION poll_tally.grant_viewer(role regrole) RETURNS void
    LANGUAGE c VOLATILE STRICT AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION poll_tally.grant_viewer(regrole) IS 'let a role read what is published';
CREATE FUNCTION poll_tally.grant_auditor(role regrole) RETURNS void
    LANGUAGE c VOLATILE STRICT AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION poll_tally.grant_auditor(regrole) IS 'let a role read the ledger and the live results, and verify them';
CREATE FUNCTION poll_tally.grant_admin(role regrole) RETURNS void
    LANGUAGE c VOLATILE STRICT AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION poll_tally.grant_admin(regrole) IS 'let a role make, close and watch polls, and read all';
CREATE FUNCTION poll_tally.revoke_from(role regrole) RETURNS void
    LANGUAGE c VOLATILE STRICT AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION poll_tally.revoke_from(regrole) IS 'take back from a role all that the grant functions gave in the name of the same grantor';

-- PUBLIC gets nothing, and no role, whatever the installing role's default privileges say: what roles get, they get by
-- the grant functions.
REVOKE ALL ON SCHEMA poll_tally FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA poll_tally FROM PUBLIC;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA poll_tally FROM PUBLIC;
REVOKE ALL ON ALL ROUTINES IN SCHEMA poll_tally FROM PUBLIC;
DO $$
DECLARE
    statement text;
BEGIN
    FOR statement IN
        SELECT DISTINCT format('REVOKE ALL ON %s FROM %s', o.object,
                               CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END)
        FROM (SELECT 'SCHEMA poll_tally', n.nspacl, n.nspowner FROM pg_namespace AS n WHERE n.nspname = 'poll_tally'
              UNION ALL
              SELECT CASE c.relkind WHEN 'S' THEN 'SEQUENCE ' ELSE 'TABLE ' END || c.oid::regclass, c.relacl, c.relowner
              FROM pg_class AS c WHERE c.relnamespace = 'poll_tally'::regnamespace AND c.relkind IN ('r', 'v', 'S')
              UNION ALL
              SELECT 'ROUTINE ' || p.oid::regprocedure, p.proacl, p.proowner
              FROM pg_proc AS p WHERE p.pronamespace = 'poll_tally'::regnamespace
              UNION ALL
              -- All but arrays and rows of tables, which have no privileges; everybody may use a type that says nothing.
              SELECT 'TYPE ' || t.oid::regtype, coalesce(t.typacl, acldefault('T', t.typowner)), t.typowner
              FROM pg_type AS t LEFT JOIN pg_class AS c ON c.oid = t.typrelid
              WHERE t.typnamespace = 'poll_tally'::regnamespace AND t.typelem = 0 AND coalesce(c.relkind, 'c') = 'c')
             AS o (object, acl, owner)
        CROSS JOIN LATERAL aclexplode(o.acl) AS a
        WHERE a.grantee <> o.owner
    LOOP
        EXECUTE statement;
    END LOOP;
END
$$;

-- Loads the library, so that a running launcher hears of this database.
SELECT poll_tally.library_version();

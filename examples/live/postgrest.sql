-- The gate without a program of one's own: a function for PostgREST, with the statuses of lib/outcomes.js and
-- docs/reference.md. It is an example: no part of the live page needs it.
--
--   POST /rpc/events
--   Authorization: Bearer <a JSON web token with "role": "web_voter" and "sub": the principal>
--   Content-Type: application/json
--
--   {"event_id": "…", "poll_id": "…", "candidate_id": "…"}
--
-- PostgREST hands the body of a request over as it is when a function's only argument is of type json and has no name,
-- so accept_json reads it strictly. Whoever brings no token is web_anon, which may do nothing here (401). PostgREST
-- itself bounds its pool and answers 503 and 504 when the database does not.
--
-- In postgrest.conf: db-schemas = "api", db-anon-role = "web_anon", and a db-uri for a role that may SET ROLE to
-- web_anon and web_voter. Run this file as a superuser.

BEGIN;

CREATE ROLE web_anon NOLOGIN;
CREATE ROLE web_voter NOLOGIN;
SELECT poll_tally.grant_submitter('web_voter');

CREATE SCHEMA api;
GRANT USAGE ON SCHEMA api TO web_anon, web_voter;

CREATE FUNCTION api.status_of(outcome poll_tally.outcome) RETURNS int LANGUAGE sql IMMUTABLE
RETURN CASE outcome
    WHEN 'accepted' THEN 201
    WHEN 'duplicate' THEN 200
    WHEN 'invalid' THEN 400
    WHEN 'not_eligible' THEN 403
    WHEN 'unknown_poll' THEN 404
    WHEN 'unknown_choice' THEN 404
    WHEN 'not_open' THEN 409
    WHEN 'already_responded' THEN 409
    WHEN 'limit_reached' THEN 409
    WHEN 'closed' THEN 410
    WHEN 'expired' THEN 410
    WHEN 'conflict' THEN 422
    WHEN 'source_conflict' THEN 422
END;
COMMENT ON FUNCTION api.status_of(poll_tally.outcome) IS 'the HTTP status of an outcome';

CREATE FUNCTION api.events(json) RETURNS json LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    -- The signed claims of the request; never its body.
    principal text := nullif(current_setting('request.jwt.claims', true), '')::json ->> 'sub';
    receipt record;
BEGIN
    IF principal IS NULL THEN
        RAISE SQLSTATE 'PT401' USING MESSAGE = 'The token has no "sub" that says who votes.';
    END IF;
    SELECT a.* INTO STRICT receipt FROM poll_tally.accept_json($1::text, principal => principal) AS a;
    PERFORM set_config('response.status', api.status_of(receipt.outcome)::text, true);
    PERFORM set_config('response.headers', '[{"Cache-Control": "no-store"}]', true);
    RETURN row_to_json(receipt);
END
$$;
COMMENT ON FUNCTION api.events(json) IS 'takes a vote; the status of the answer tells the outcome';

REVOKE ALL ON FUNCTION api.status_of(poll_tally.outcome), api.events(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION api.status_of(poll_tally.outcome), api.events(json) TO web_voter;

COMMIT;

-- What the pgTAP files share, as functions of pg_temp: how a signature is written, and what a statement raises.

-- A type by its short name, without our schema.
CREATE FUNCTION pg_temp.type_name(type oid) RETURNS text LANGUAGE sql AS $$
    SELECT regexp_replace(replace(replace(format_type(type, NULL), 'timestamp with time zone', 'timestamptz'),
                                  'poll_tally.', ''), '\minteger\M', 'int')
$$;

-- The arguments that a caller gives, as the design writes them: name type DEFAULT value, … (the value without a cast).
CREATE FUNCTION pg_temp.arguments_of(function oid) RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(string_agg(
        concat_ws(' ', p.proargnames[a.place], pg_temp.type_name(a.type),
                  'DEFAULT ' || regexp_replace(pg_get_function_arg_default(p.oid, a.place::int), '::[a-z ]+(\[\])?$', '')),
        ', ' ORDER BY a.place), '')
    FROM pg_proc AS p
    CROSS JOIN LATERAL unnest(coalesce(p.proallargtypes, p.proargtypes::oid[])) WITH ORDINALITY AS a (type, place)
    WHERE p.oid = function AND coalesce(p.proargmodes[a.place], 'i') IN ('i', 'b', 'v')
$$;

-- What it returns: a type, or the columns of its row; SETOF in front where it is a set.
CREATE FUNCTION pg_temp.result_of(function oid) RETURNS text LANGUAGE sql AS $$
    SELECT CASE WHEN p.proretset THEN 'SETOF ' ELSE '' END || coalesce(
        (SELECT '(' || string_agg(p.proargnames[a.place] || ' ' || pg_temp.type_name(a.type), ', ' ORDER BY a.place) || ')'
         FROM unnest(p.proallargtypes) WITH ORDINALITY AS a (type, place) WHERE p.proargmodes[a.place] IN ('o', 't')),
        (SELECT '(' || string_agg(a.attname || ' ' || pg_temp.type_name(a.atttypid), ', ' ORDER BY a.attnum) || ')'
         FROM pg_type AS t JOIN pg_attribute AS a ON a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
         WHERE t.oid = p.prorettype AND t.typtype = 'c'),
        pg_temp.type_name(p.prorettype))
    FROM pg_proc AS p WHERE p.oid = function
$$;

CREATE FUNCTION pg_temp.columns_of(relation oid) RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(a.attname || ' ' || pg_temp.type_name(a.atttypid), ', ' ORDER BY a.attnum)
    FROM pg_attribute AS a WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped
$$;

-- Members of the extension, but not what comes with another one: array types, row types, toast, and parts of objects.
CREATE FUNCTION pg_temp.members(OUT classid regclass, OUT objid oid, OUT object text) RETURNS SETOF record LANGUAGE sql AS $$
    SELECT d.classid::regclass, d.objid, pg_describe_object(d.classid, d.objid, 0)
    FROM pg_depend AS d
    JOIN pg_extension AS e ON e.oid = d.refobjid AND e.extname = 'poll_tally'
    WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
      AND NOT (d.classid = 'pg_type'::regclass
               AND EXISTS (SELECT FROM pg_type AS t LEFT JOIN pg_class AS c ON c.oid = t.typrelid
                           WHERE t.oid = d.objid AND (t.typelem <> 0 AND t.typlen = -1 OR c.relkind <> 'c')))
$$;

-- raised(SQL, ROLE): SQLSTATE, constraint, detail and hint that a statement raises, or '00000'; whatever it did is undone.
CREATE FUNCTION pg_temp.raised(statement text, role text DEFAULT NULL, OUT state text, OUT constraint_field text,
                               OUT detail text, OUT hint text)
LANGUAGE plpgsql AS $$
BEGIN
    IF role IS NOT NULL THEN
        PERFORM set_config('role', role, true);
    END IF;
    EXECUTE statement;
    RAISE SQLSTATE '00UND';
EXCEPTION
    WHEN SQLSTATE '00UND' THEN
        state := '00000';
    WHEN OTHERS THEN
        GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, constraint_field = CONSTRAINT_NAME,
            detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
END
$$;

-- All that an extension's script has made, one line an object, with definition, privileges and comment: two databases with
-- equal lines have the same extension. Row types, members from 17 on, and object identifiers are left out.
SET search_path = pg_catalog;
WITH member AS (
    SELECT d.classid, d.objid, pg_describe_object(d.classid, d.objid, 0) AS object, obj_description(d.objid, d.classid::regclass::name) AS comment
    FROM pg_depend AS d
    JOIN pg_extension AS e ON e.oid = d.refobjid AND e.extname = 'poll_tally'
    WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
), definition (classid, objid, text) AS (
    SELECT 'pg_proc'::regclass, p.oid, concat_ws(' ', pg_get_functiondef(p.oid), p.proacl) FROM pg_proc AS p WHERE p.prokind <> 'a' AND p.oid >= 16384
    UNION ALL
    SELECT 'pg_proc'::regclass, p.oid, concat_ws(' ', pg_get_function_arguments(p.oid), a.aggtransfn, a.aggfinalfn, a.aggcombinefn,
           a.aggserialfn, a.aggdeserialfn, a.aggtranstype::regtype, a.agginitval, p.proparallel, p.provolatile, p.proacl)
    FROM pg_proc AS p JOIN pg_aggregate AS a ON a.aggfnoid = p.oid WHERE p.oid >= 16384
    UNION ALL
    SELECT 'pg_class'::regclass, c.oid, concat_ws(' ', c.relkind, c.relpersistence, c.relrowsecurity, c.reloptions, c.relacl,
           CASE c.relkind WHEN 'v' THEN pg_get_viewdef(c.oid) END,
           (SELECT string_agg(concat_ws(' ', a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attstorage, a.attacl,
                                        pg_get_expr(f.adbin, f.adrelid), col_description(c.oid, a.attnum)), ', ' ORDER BY a.attnum)
            FROM pg_attribute AS a LEFT JOIN pg_attrdef AS f ON f.adrelid = a.attrelid AND f.adnum = a.attnum
            WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
           (SELECT string_agg(concat_ws(' ', o.conname, pg_get_constraintdef(o.oid)), ', ' ORDER BY o.conname)
            FROM pg_constraint AS o WHERE o.conrelid = c.oid),
           (SELECT string_agg(concat_ws(' ', pg_get_indexdef(i.indexrelid), obj_description(i.indexrelid, 'pg_class')), ', '
                              ORDER BY pg_get_indexdef(i.indexrelid))
            FROM pg_index AS i WHERE i.indrelid = c.oid),
           (SELECT string_agg(concat_ws(' ', pg_get_triggerdef(t.oid), t.tgenabled, obj_description(t.oid, 'pg_trigger')), ', '
                              ORDER BY t.tgname)
            FROM pg_trigger AS t WHERE t.tgrelid = c.oid AND NOT t.tgisinternal),
           (SELECT concat_ws(' ', s.seqtypid::regtype, s.seqstart, s.seqincrement, s.seqmin, s.seqmax, s.seqcycle)
            FROM pg_sequence AS s WHERE s.seqrelid = c.oid))
    FROM pg_class AS c WHERE c.oid >= 16384
    UNION ALL
    SELECT 'pg_type'::regclass, t.oid, concat_ws(' ', t.typtype, t.typlen, t.typbyval, t.typalign, t.typstorage, t.typinput, t.typoutput,
           t.typreceive, t.typsend, t.typbasetype::regtype, t.typnotnull, t.typcollation::regcollation, t.typdefault, t.typacl,
           (SELECT string_agg(e.enumlabel, ', ' ORDER BY e.enumsortorder) FROM pg_enum AS e WHERE e.enumtypid = t.oid),
           (SELECT string_agg(concat_ws(' ', o.conname, pg_get_constraintdef(o.oid), obj_description(o.oid, 'pg_constraint')), ', ' ORDER BY o.conname)
            FROM pg_constraint AS o WHERE o.contypid = t.oid),
           (SELECT string_agg(concat_ws(' ', a.attname, format_type(a.atttypid, a.atttypmod)), ', ' ORDER BY a.attnum)
            FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid AND c.relkind = 'c' WHERE a.attrelid = t.typrelid))
    FROM pg_type AS t WHERE t.oid >= 16384
    UNION ALL
    SELECT 'pg_operator'::regclass, o.oid, concat_ws(' ', o.oprcode, o.oprresult::regtype, o.oprcom::regoperator, o.oprnegate::regoperator,
           o.oprrest, o.oprjoin, o.oprcanmerge, o.oprcanhash)
    FROM pg_operator AS o WHERE o.oid >= 16384
    UNION ALL
    SELECT 'pg_cast'::regclass, c.oid, concat_ws(' ', c.castfunc::regprocedure, c.castcontext, c.castmethod) FROM pg_cast AS c WHERE c.oid >= 16384
    UNION ALL
    SELECT 'pg_opclass'::regclass, o.oid, concat_ws(' ', o.opcdefault, o.opckeytype::regtype, o.opcintype::regtype) FROM pg_opclass AS o WHERE o.oid >= 16384
    UNION ALL
    SELECT 'pg_opfamily'::regclass, f.oid, concat_ws('; ',
           (SELECT string_agg(concat_ws(' ', a.amopstrategy, a.amopopr::regoperator, a.amoppurpose), ', ' ORDER BY a.amopstrategy)
            FROM pg_amop AS a WHERE a.amopfamily = f.oid),
           (SELECT string_agg(concat_ws(' ', a.amprocnum, a.amproc), ', ' ORDER BY a.amprocnum) FROM pg_amproc AS a WHERE a.amprocfamily = f.oid))
    FROM pg_opfamily AS f WHERE f.oid >= 16384
)
SELECT translate(m.object || ' | ' || coalesce(d.text, '') || ' | ' || coalesce(m.comment, ''), E'\n', ' ')
FROM member AS m LEFT JOIN definition AS d USING (classid, objid)
WHERE NOT (m.classid = 'pg_type'::regclass
           AND EXISTS (SELECT FROM pg_type AS t LEFT JOIN pg_class AS c ON c.oid = t.typrelid
                       WHERE t.oid = m.objid AND (t.typelem <> 0 AND t.typlen = -1 OR c.relkind <> 'c')))
UNION ALL
SELECT 'dumped ' || c.oid::regclass || ' ' || x.condition
FROM pg_extension AS e CROSS JOIN LATERAL unnest(e.extconfig, e.extcondition) AS x (relation, condition)
JOIN pg_class AS c ON c.oid = x.relation WHERE e.extname = 'poll_tally'
UNION ALL
SELECT 'schema ' || n.nspname || ' ' || coalesce(n.nspacl::text, '') FROM pg_namespace AS n WHERE n.nspname = 'poll_tally'
ORDER BY 1

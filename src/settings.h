/*
 * settings.h
 *		The settings poll_tally.*, as DESIGN section 16 lists them.
 */
#ifndef POLL_TALLY_SETTINGS_H
#define POLL_TALLY_SETTINGS_H

extern int settings_max_body;       /* bytes of an accept_json body */
extern int settings_max_payload;    /* bytes of a detoasted payload */
extern int settings_max_batch;      /* events of a batch */
extern int settings_max_keys;       /* choices of an open-choice poll */
extern int settings_keep_snapshots; /* kept snapshots a poll */
extern char *settings_databases;    /* where the worker publishes */
extern char *settings_worker_role;  /* whom it acts as; empty: the owner */
extern bool settings_publish;       /* whether it publishes at all */

extern bool settings_log_publications; /* a line a publication and close */

extern void settings_define(void);

#endif /* POLL_TALLY_SETTINGS_H */

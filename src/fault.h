/*
 * fault.h
 *		Named points at which a test can make a process fail.
 *
 * Without -DPOLL_TALLY_FAULTS they are no code at all, and the setting that arms
 * them does not exist.
 */
#ifndef POLL_TALLY_FAULT_H
#define POLL_TALLY_FAULT_H

#ifdef POLL_TALLY_FAULTS

#define FAULT_POINT(name) fault_point(name)
#define FAULT_DEFINE_SETTING() fault_define_setting()

extern void fault_point(const char *name);
extern void fault_define_setting(void);

#else

#define FAULT_POINT(name) ((void) 0)
#define FAULT_DEFINE_SETTING() ((void) 0)

#endif

#endif /* POLL_TALLY_FAULT_H */

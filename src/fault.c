/*
 * fault.c
 *		Named points at which a test can make a process fail.
 *
 * poll_tally.fault, for superusers, arms one point of the process: 'POINT ACTION',
 * or 'POINT ACTION N' for the Nth time that the point is passed.  The action is
 * error, fatal, or kill (SIGKILL, as a crash).  It happens once; setting the
 * value anew arms it again.  Compiled for tests only: see fault.h.
 */
#include "postgres.h"

#ifdef POLL_TALLY_FAULTS

#include <signal.h>
#include <unistd.h>

#include "utils/guc.h"

#include "fault.h"

#define FAULT_NAME_SIZE 64

typedef struct FaultPlan
{
	char point[FAULT_NAME_SIZE];
	char action[FAULT_NAME_SIZE];
	int pass; /* from 1 */
} FaultPlan;

static char *fault_setting;
static FaultPlan fault_plan; /* of no point, when nothing is armed */
static int fault_passed;

static bool
fault_read_plan(const char *setting, FaultPlan *plan)
{
	memset(plan, 0, sizeof(FaultPlan));
	plan->pass = 1;
	return *setting == '\0' || (sscanf(setting, "%63s %63s %d", plan->point,
									   plan->action, &plan->pass) >= 2 &&
								plan->pass >= 1 &&
								(strcmp(plan->action, "error") == 0 ||
								 strcmp(plan->action, "fatal") == 0 ||
								 strcmp(plan->action, "kill") == 0));
}

static bool
fault_check(char **newval, void **extra, GucSource source)
{
	FaultPlan plan;

	return fault_read_plan(*newval, &plan);
}

static void
fault_assign(const char *newval, void *extra)
{
	(void) fault_read_plan(newval, &fault_plan);
	fault_passed = 0;
}

void
fault_define_setting(void)
{
	DefineCustomStringVariable("poll_tally.fault",
							   "Point at which this process fails, and how.",
							   "POINT error|fatal|kill [N]", &fault_setting, "",
							   PGC_SUSET, 0, fault_check, fault_assign, NULL);
}

void
fault_point(const char *name)
{
	if (strcmp(fault_plan.point, name) != 0 ||
		++fault_passed != fault_plan.pass)
		return;
	if (strcmp(fault_plan.action, "kill") == 0)
		(void) kill(getpid(), SIGKILL);
	ereport(strcmp(fault_plan.action, "fatal") == 0 ? FATAL : ERROR,
			(errcode(ERRCODE_INTERNAL_ERROR),
			 errmsg("fault at point \"%s\"", name)));
}

#endif

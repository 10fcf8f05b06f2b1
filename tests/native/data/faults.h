/* What faults.c offers to a test's program. */
#ifndef FAULTS_H_
#define FAULTS_H_

#ifdef __cplusplus
extern "C" {
#endif

enum { FAULT_MEMORY, FAULT_THREAD, FAULT_KINDS };

/* Lets call number `number` from now on fail, 1 being the next, and all behind it too where it is `for_good`. */
void fault_arm(int kind, long number, int for_good);

/* No call fails any more; whether one did. */
int fault_disarm(int kind);

/* Blocks of memory that were given out and not taken back. */
long fault_live(void);

#ifdef __cplusplus
}
#endif
#endif

/* DecLock for C, and through it for every other language.
 *
 * Functions that can fail return 0 or a code of enum declock_error; declock_strerror() says it in words, and
 * declock_error_message() what was wrong with the last call of this thread that failed.
 *
 * Memory is named by the number of its memory node and an offset. The upper 16 bits of an offset say which incarnation of the
 * memory node gave it: add to it, compare it, pass it on, and do not take it apart. Once the memory node has restarted the
 * offset is refused for ever (DECLOCK_MN_RESTARTED).
 *
 * Thread-safety: every function may be called from any thread at any time, but declock_close() and declock_mutex_free()
 * only when no other thread uses what they end. In the child of a fork() calls are refused (closed).
 */
#ifndef DECLOCK_C_H
#define DECLOCK_C_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define DECLOCK_C_EXPORT __attribute__((visibility("default")))
#else
#define DECLOCK_C_EXPORT
#endif

#ifdef __cplusplus
extern "C" {
#endif

enum declock_error {
  DECLOCK_OK = 0,
  DECLOCK_OUTCOME_UNKNOWN = 1,
  DECLOCK_STUCK = 2,
  DECLOCK_BUSY = 3,
  DECLOCK_TIMED_OUT = 4,
  DECLOCK_CANCELLED = 5,
  DECLOCK_EVICTED = 6,
  DECLOCK_MN_RESTARTED = 7,
  DECLOCK_INVALID_ARGUMENT = 8,
  DECLOCK_UNAVAILABLE = 9,
  DECLOCK_CLOSED = 10
};

typedef struct declock_cluster declock_cluster; /* a membership of this process in a cluster */
typedef struct declock_mutex declock_mutex;     /* one lock of it */

/* Grows over the exclusive holders of a lock: compare the words in order, the first one first. */
typedef struct declock_token {
  uint64_t words[4];
} declock_token;

DECLOCK_C_EXPORT const char* declock_strerror(int error);
/* Of the last call of this thread that failed; valid until its next one. */
DECLOCK_C_EXPORT const char* declock_error_message(void);
DECLOCK_C_EXPORT const char* declock_version(void);

/* As declock::Cluster::open(): "shm:shop", "tcp://10.0.0.1:7400?secret=/etc/declock.secret". */
DECLOCK_C_EXPORT int declock_open(const char* uri, declock_cluster** cluster);
/* Leaves the cluster, and ends the handle, whatever it returns. Its mutexes must be freed before. NULL: nothing. */
DECLOCK_C_EXPORT int declock_close(declock_cluster* cluster);

/* A lock by its name; number `index` of a table of `count` locks; or at an address. */
DECLOCK_C_EXPORT int declock_mutex_named(declock_cluster* cluster, const char* name,
                                         declock_mutex** mutex);
DECLOCK_C_EXPORT int declock_mutex_of_table(declock_cluster* cluster, const char* table, uint64_t count,
                                            uint64_t index, declock_mutex** mutex);
DECLOCK_C_EXPORT int declock_mutex_at(declock_cluster* cluster, uint16_t mn, uint64_t offset,
                                      declock_mutex** mutex);
/* Nobody may hold it through this handle. NULL: nothing. */
DECLOCK_C_EXPORT void declock_mutex_free(declock_mutex* mutex);

DECLOCK_C_EXPORT int declock_lock(declock_mutex* mutex);
DECLOCK_C_EXPORT int declock_try_lock(declock_mutex* mutex); /* DECLOCK_BUSY */
DECLOCK_C_EXPORT int declock_lock_for(declock_mutex* mutex,
                                      uint64_t nanoseconds); /* DECLOCK_TIMED_OUT */
/* Waits until the memory node has confirmed it. An error: the hold was void. It is released in any case. Unlocking what
 * is not held through this handle aborts the program. */
DECLOCK_C_EXPORT int declock_unlock(declock_mutex* mutex);
DECLOCK_C_EXPORT int declock_lock_shared(declock_mutex* mutex);
DECLOCK_C_EXPORT int declock_try_lock_shared(declock_mutex* mutex);
DECLOCK_C_EXPORT int declock_lock_shared_for(declock_mutex* mutex, uint64_t nanoseconds);
DECLOCK_C_EXPORT int declock_unlock_shared(declock_mutex* mutex);
/* Of the exclusive holder. */
DECLOCK_C_EXPORT int declock_token_of(declock_mutex* mutex, declock_token* token);

/* Memory by its name; made, and zeroed, when it is first asked for. DECLOCK_UNAVAILABLE also: its memory node has restarted
 * more often than an offset can say, 65535 times. */
DECLOCK_C_EXPORT int declock_allocate(declock_cluster* cluster, uint16_t mn, const char* name,
                                      uint64_t bytes, uint64_t* offset);
DECLOCK_C_EXPORT uint64_t declock_lock_bytes(const declock_cluster* cluster);
/* Words of 8 bytes, at an offset that is a multiple of 8. After DECLOCK_OUTCOME_UNKNOWN they may have been written or not; after
 * any other error they were certainly not. */
DECLOCK_C_EXPORT int declock_read(declock_cluster* cluster, uint16_t mn, uint64_t offset,
                                  uint64_t* words, size_t count);
DECLOCK_C_EXPORT int declock_write(declock_cluster* cluster, uint16_t mn, uint64_t offset,
                                   const uint64_t* words, size_t count);

#ifdef __cplusplus
}
#endif

#endif

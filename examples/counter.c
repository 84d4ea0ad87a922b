/* Four processes add to one counter, in C99. See counter.cc. */
#define _POSIX_C_SOURCE 200809L
#include <declock/declock.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kProcesses = 4, kTimes = 1000 };

/* A function that failed left a line for a person. */
static int failed(const char* what) {
  fprintf(stderr, "%s: %s\n", what, declock_error_message());
  return 1;
}

static int add(declock_cluster* cluster, declock_mutex* mutex, uint64_t counter) {
  for (int i = 0; i < kTimes; ++i) {
    uint64_t n = 0;
    if (declock_lock(mutex) != DECLOCK_OK) return failed("lock");
    int error = declock_read(cluster, 0, counter, &n, 1);
    n += 1;
    if (error == DECLOCK_OK) error = declock_write(cluster, 0, counter, &n, 1);
    /* Also says whether the lock was held to the end: DECLOCK_EVICTED, DECLOCK_MN_RESTARTED. */
    const int void_hold = declock_unlock(mutex);
    if (error != DECLOCK_OK || void_hold != DECLOCK_OK) return failed("add");
  }
  return 0;
}

static int join_and_add(const char* uri) {
  declock_cluster* cluster = NULL;
  declock_mutex* mutex = NULL;
  uint64_t counter = 0;
  if (declock_open(uri, &cluster) != DECLOCK_OK) return failed("open");
  int status = 1;
  if (declock_allocate(cluster, 0, "example/counter", 8, &counter) != DECLOCK_OK ||
      declock_mutex_named(cluster, "example/counter's lock", &mutex) != DECLOCK_OK) {
    failed("counter");
  } else {
    status = add(cluster, mutex, counter);
  }
  declock_mutex_free(mutex);
  if (declock_close(cluster) != DECLOCK_OK) return failed("close");
  return status;
}

int main(int argc, char** argv) {
  const char* uri = argc > 1 ? argv[1] : "shm:declock-example-c?remove=yes";
  /* A membership does not outlive a fork(): processes first, then the cluster. They wait for a byte. */
  int go[2];
  if (pipe(go) != 0) return 1;
  for (int i = 0; i < kProcesses; ++i) {
    if (fork() == 0) {
      char byte = 0;
      close(go[1]);
      return read(go[0], &byte, 1) == 1 ? join_and_add(uri) : 1;
    }
  }
  declock_cluster* cluster = NULL;
  uint64_t counter = 0;
  uint64_t before = 0;
  uint64_t after = 0;
  if (declock_open(uri, &cluster) != DECLOCK_OK) return failed("open");
  if (declock_allocate(cluster, 0, "example/counter", 8, &counter) != DECLOCK_OK) return failed("counter");
  if (declock_read(cluster, 0, counter, &before, 1) != DECLOCK_OK) return failed("read");
  if (write(go[1], "....", kProcesses) != kProcesses) return 1;

  int all_fine = 1;
  for (int i = 0; i < kProcesses; ++i) {
    int status = 0;
    if (wait(&status) < 0 || status != 0) all_fine = 0;
  }
  if (declock_read(cluster, 0, counter, &after, 1) != DECLOCK_OK) return failed("read");
  printf("declock %s: %d processes added %d times each: %" PRIu64 "\n", declock_version(), kProcesses, kTimes,
         after - before);
  if (declock_close(cluster) != DECLOCK_OK) return failed("close");
  return all_fine && after - before == (uint64_t)kProcesses * kTimes ? 0 : 1;
}

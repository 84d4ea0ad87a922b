// DecLock: a reader-writer lock for disaggregated memory, and between the processes of one machine. Start here.
//
//   auto cluster = declock::Cluster::open("shm:shop");         // or "tcp://10.0.0.1:7400?secret=/etc/declock.secret"
//   declock::SharedMutex orders = cluster->shared_mutex("orders/42");
//   std::unique_lock guard{orders};                            // nobody else on any machine has it
//
//   cluster.h       open a cluster; locks by name, by index in a table, at an address; memory
//   shared_mutex.h  a lock as the standard library's, from any thread
//   client.h        locks in coroutines: many at a time on one thread, time-outs, cancellation, lock and data at once
//   lock_ref.h      what is locked: addresses, locks, tables; tokens
//   stats.h         what the locks did: counts and latencies
//   result.h        errors as values
//   task.h          the coroutine type
//   deadline.h      how long a wait may take
//   c.h             all of it for C, and so for every other language; that is what a C program gets from this file
#ifndef DECLOCK_DECLOCK_H
#define DECLOCK_DECLOCK_H

#ifdef __cplusplus
#include "declock/client.h"
#include "declock/cluster.h"
#include "declock/lock_ref.h"
#include "declock/result.h"
#include "declock/shared_mutex.h"
#include "declock/stats.h"
#include "declock/task.h"
#else
#include "declock/c.h"
#endif

#endif

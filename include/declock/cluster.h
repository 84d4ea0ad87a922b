// Cluster: this process's membership in a cluster, from which it gets locks and memory.
//
// URIs:
//
//   shm:NAME                      processes of one machine; made when it is first opened
//   tcp://HOST:PORT[,HOST:PORT]   memory nodes ('declock mn') over TCP; the one that coordinates first
//   verbs://HOST:PORT[,HOST:PORT] the same over RDMA
//
// with options behind a question mark: "shm:shop?members=32&size=1GiB", "tcp://10.0.0.1:7400?secret=/etc/declock.secret",
// "tcp://10.0.0.1:2181,10.0.0.2:2181?zookeeper=prod&secret=/etc/declock.secret". An option of the URI wins over the same
// one in Options.
#ifndef DECLOCK_CLUSTER_H
#define DECLOCK_CLUSTER_H

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "declock/config.h"
#include "declock/lock_ref.h"
#include "declock/result.h"
#include "declock/stats.h"

namespace declock {

class Client;
class SharedMutex;
class Cluster;
struct Options;
namespace client {
class Core;
struct Report;
Result<std::vector<Report>, Error> read_reports(Cluster& cluster);
Result<LockRef, Error> find_lock(Cluster& cluster, const std::string& lock);
Result<Cluster, Error> open_to_look(std::string_view uri, const Options& options);
}  // namespace client

// Who gets a lock next; docs/TUNING.md.
enum class Fairness : std::uint8_t {
  task_fair,   // first come, first served, local or remote
  phase_fair,  // the same, but readers and writers of one process take turns
  slack,  // phase-fair, and a client of the process that has the lock may go before others who came a little earlier
  token,  // the lock goes from process to process, and lets a number of writers in at each; all readers come together
};

struct Options {
  // Of any cluster:
  // REQUIRES: all processes that use a cluster take `token`, or none does. Whoever comes with another one is refused.
  Fairness fairness = Fairness::phase_fair;  // fairness=task-fair|phase-fair|slack|token
  std::uint32_t slack_us = 200;              // slack=200us, of Fairness::slack
  std::uint32_t gate = 64;  // gate=64, of Fairness::token: writers of one process in a row, 1 to 65535
  // Threads that wait for locks at the same time without disturbing each other, and Clients: each takes one of these
  // workers. More threads than that work as well, a little slower. 0: as the cluster has it, or 8 (4 over a network).
  std::uint32_t workers = 0;  // workers=8
  // How long to try to join.
  std::uint32_t patience_ms = 10'000;  // patience=10s

  // shm: of a cluster that is made now. 0: as it is, or the default. If it is there, and of another size, that is an error.
  std::uint32_t members = 0;           // members=16: processes at a time, at most 1024
  std::uint64_t size = 0;              // size=16MiB, of its memory
  std::string directory = "/dev/shm";  // dir=/dev/shm
  bool create = true;                  // create=no: an error if there is none
  bool remove_when_last = false;       // remove=yes: its memory is removed when nobody is left

  // tcp and verbs:
  std::string secret;  // secret=FILE: the cluster's secret, from 'declock secret FILE'
  std::string
      zookeeper;  // zookeeper=NAME: the hosts are a ZooKeeper ensemble, and this is the cluster's name there
  std::string
      host;  // host=ADDRESS of this machine, where other compute nodes reach it; chosen by itself
  std::string device;  // verbs: device=, port=, gid-index=, mtu=; chosen by themselves
  int port = 0;
  int gid_index = -1;
  int mtu = 0;

  // Seeing what it does; docs/OPERATIONS.md:
  std::string metrics;  // metrics=127.0.0.1:9464: a Prometheus endpoint in this process
  std::string trace;    // trace=FILE: a trace of lock operations, written when the cluster is closed
  bool publish = true;  // publish=no: this process is not seen by 'declock top'

  // A release that nobody waits for failed: the hold was void already (Errc::evicted, Errc::mn_restarted). Called from
  // any thread, also from ones of the library; it must not wait, nor call the library. Not given: it is counted, and
  // Cluster::close() reports the first.
  std::function<void(LockRef, Errc)> on_release_error{};
};

// A handle; copies are the same membership.
//
// Thread-safety: every member function may be called from any thread at any time, but close() and the destructor of
// the last handle only when no thread is inside another call on the cluster, its locks or its clients.
class DECLOCK_EXPORT Cluster {
 public:
  // Joins. An error has one line that says what was wrong, what is accepted, and what to do. After a fork() the child
  // opens the cluster by itself: calls on the parent's are refused there with Errc::closed, and ending it does nothing.
  static Result<Cluster, Error> open(std::string_view uri, const Options& options = {});

  Cluster(const Cluster&) = default;
  Cluster& operator=(const Cluster&) = default;
  Cluster(Cluster&&) noexcept = default;
  Cluster& operator=(Cluster&&) noexcept = default;
  ~Cluster();  // the last handle: as close(), and nobody is told of errors

  // Waits for releases under way, and leaves the cluster. Whatever has to do with it ends with Errc::closed from then
  // on. An error: the first that no on_release_error has heard of; or locks are still held: then the cluster takes this
  // process for dead, and resets them. Once is enough.
  Result<void, Error> close();

  // A lock by its name; made, and free, when it is first asked for, by whichever process. It stays as long as its memory
  // node's memory does. A name has 1 to 200 bytes.
  Result<LockRef, Error> named_lock(std::string_view name, MnId mn = {});
  // The same as a std::shared_timed_mutex. Throws std::system_error.
  SharedMutex shared_mutex(std::string_view name, MnId mn = {});
  SharedMutex shared_mutex(LockRef lock);

  // A table of locks by its name; made, all free, when it is first asked for. The same name has the same count.
  Result<LockTable, Error> lock_table(std::string_view name, std::uint64_t count, MnId mn = {});

  // Memory by its name; made, and zeroed, when it is first asked for. The same name has the same size. Objects in it
  // can have locks embedded anywhere, aligned to 8 bytes: LockRef{address}.
  Result<RemoteAddr, Error> allocate(std::string_view name, std::uint64_t bytes, MnId mn = {});
  // What a lock takes: 16 bytes, and 8 for each process that the cluster admits.
  std::uint64_t lock_bytes() const;

  // Memory, one word of 8 bytes at a time, aligned; several are not read or written in one step: hold a lock. Errors:
  // evicted, mn_restarted, closed, invalid_argument: an odd address, or one outside of the memory; then nothing was
  // written. outcome_unknown, of write(): this process was evicted, or the memory node restarted, meanwhile, and whether
  // the words were written before is not known.
  Result<void> read(RemoteAddr from, std::span<std::uint64_t> words);
  Result<void> write(RemoteAddr to, std::span<const std::uint64_t> words);

  // For coroutines. An error: all workers but one have clients already, or threads that wait for locks.
  Result<Client, Error> client();

  // This process is no member any more: its locks are lost, and every call ends with Errc::evicted.
  bool evicted() const;

  Stats stats() const;
  // Serves stats() to Prometheus at HOST:PORT (port 0: any), from a thread of its own, until the cluster is closed. The
  // port. As the option `metrics`.
  Result<std::uint16_t, Error> serve_metrics(const std::string& host_port);

 private:
  friend class Client;
  friend class SharedMutex;
  friend Result<std::vector<client::Report>, Error> client::read_reports(Cluster& cluster);
  friend Result<LockRef, Error> client::find_lock(Cluster& cluster, const std::string& lock);
  friend Result<Cluster, Error> client::open_to_look(std::string_view uri, const Options& options);
  explicit Cluster(std::shared_ptr<client::Core> core);
  const std::shared_ptr<client::Core>& core() const;
  struct Opened;  // closes the cluster when the last handle is gone
  std::shared_ptr<Opened> opened_;
};

}  // namespace declock

#endif

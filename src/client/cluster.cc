#include "declock/cluster.h"

#include "client/core.h"
#include "client/seeing.h"
#include "declock/client.h"
#include "declock/shared_mutex.h"

namespace declock {

// Handles share this; clients, guards and mutexes share the core alone, and find it closed.
struct Cluster::Opened {
  explicit Opened(std::shared_ptr<client::Core> c) : core(std::move(c)) {}
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  ~Opened() { (void)core->close(); }

  std::shared_ptr<client::Core> core;
};

Cluster::Cluster(std::shared_ptr<client::Core> core)
    : opened_(std::make_shared<Opened>(std::move(core))) {}
Cluster::~Cluster() = default;

Result<Cluster, Error> Cluster::open(std::string_view uri, const Options& options) {
  auto core = client::Core::open(uri, options);
  if (!core) return Failure{core.error()};
  return Cluster{std::move(*core)};
}

Result<void, Error> Cluster::close() {
  return opened_->core->close();
}

Result<LockRef, Error> Cluster::named_lock(std::string_view name, MnId mn) {
  return opened_->core->named_lock(std::string{name}, mn);
}

SharedMutex Cluster::shared_mutex(std::string_view name, MnId mn) {
  return SharedMutex{*this, name, mn};
}

SharedMutex Cluster::shared_mutex(LockRef lock) {
  return SharedMutex{*this, lock};
}

Result<LockTable, Error> Cluster::lock_table(std::string_view name, std::uint64_t count, MnId mn) {
  return opened_->core->lock_table(std::string{name}, count, mn);
}

Result<RemoteAddr, Error> Cluster::allocate(std::string_view name, std::uint64_t bytes, MnId mn) {
  return opened_->core->allocate(std::string{name}, bytes, mn);
}

std::uint64_t Cluster::lock_bytes() const {
  return opened_->core->lock_bytes();
}

Result<void> Cluster::read(RemoteAddr from, std::span<std::uint64_t> words) {
  return opened_->core->read(from, words);
}

Result<void> Cluster::write(RemoteAddr to, std::span<const std::uint64_t> words) {
  return opened_->core->write(to, words);
}

Result<Client, Error> Cluster::client() {
  const std::shared_ptr<client::Core>& core = opened_->core;
  if (core->standing() != Errc::ok) return Failure{core->not_open()};
  client::Lane* lane = core->take_lane();
  if (lane == nullptr) {
    return Failure{Error{Errc::unavailable,
                         "every worker but one has a client already, or a thread that waits; open the "
                         "cluster with more: workers="}};
  }
  return Client{core, *lane};
}

bool Cluster::evicted() const {
  return opened_->core->evicted();
}

Stats Cluster::stats() const {
  return opened_->core->stats();
}

Result<std::uint16_t, Error> Cluster::serve_metrics(const std::string& host_port) {
  return opened_->core->serve_metrics(host_port);
}

const std::shared_ptr<client::Core>& Cluster::core() const {
  return opened_->core;
}

namespace client {

Result<std::vector<Report>, Error> read_reports(Cluster& cluster) {
  return cluster.core()->reports();
}

Result<Cluster, Error> open_to_look(std::string_view uri, const Options& options) {
  auto core = Core::open(uri, options, true);
  if (!core) return Failure{core.error()};
  return Cluster{std::move(*core)};
}

Result<LockRef, Error> find_lock(Cluster& cluster, const std::string& lock) {
  return cluster.core()->find_lock(lock);
}

}  // namespace client
}  // namespace declock

// declock shm list, inspect, remove
#include <fmt/format.h>

#include <memory>

#include "base/units.h"
#include "commands.h"
#include "exit_codes.h"
#include "layout/lock_shape.h"
#include "member_shm/compute_node.h"
#include "member_shm/slot_lock.h"

namespace declock::cli {
namespace {

struct Options {
  std::string directory = shm::kDefaultDirectory;
  std::string name;
};

std::uint64_t total_bytes(const shm::SegmentHeader& header) {
  return header.bytes + header.mns * (header.mn_bytes + shm::kHeaderBytes);
}

struct Census {
  std::uint32_t alive = 0;
  std::uint32_t dead = 0;  // and nobody has removed them yet
  std::uint64_t removals = 0;
};

Census census_of(const shm::Cluster& cluster, const member::SlotLock& lock) {
  Census census;
  for (std::uint32_t i = 0; i < cluster.shape().members; ++i) {
    const Slot slot{static_cast<std::uint16_t>(i)};
    const shm::MemberWord word = shm::MemberWord::of(cluster.member(slot).word.load());
    census.removals += word.removals;
    if (word.live) (lock.is_taken(slot).value_or(true) ? census.alive : census.dead) += 1;
  }
  return census;
}

template <class T>
T& must(Result<T, std::string>& result) {
  if (!result) throw CannotRun(result.error());
  return *result;
}

int list(const Options& options) {
  auto all = shm::list_clusters(options.directory);
  must(all);
  if (all->empty()) {
    fmt::print("no cluster in {}\n", options.directory);
    return kFine;
  }
  fmt::print("{:<32}{:>10}{:>8}{:>6}{:>6}{:>16}\n", "name", "members", "alive", "dead", "MNs", "bytes");
  for (shm::Listed& listed : *all) {
    if (!listed.cluster) {
      fmt::print("{:<32}  {}\n", listed.name, listed.cluster.error());
      continue;
    }
    const shm::Cluster& cluster = *listed.cluster;
    auto lock = member::SlotLock::open(cluster.file().path());
    const Census census = census_of(cluster, must(lock));
    fmt::print("{:<32}{:>10}{:>8}{:>6}{:>6}{:>16}\n", listed.name, cluster.shape().members,
               census.alive, census.dead, cluster.shape().mns,
               format_count(total_bytes(cluster.shape())));
  }
  return kFine;
}

int inspect(const Options& options) {
  auto opened = shm::Cluster::open(options.directory, options.name);
  const shm::Cluster& cluster = must(opened);
  auto opened_lock = member::SlotLock::open(cluster.file().path());
  const member::SlotLock& lock = must(opened_lock);
  const shm::SegmentHeader& h = cluster.shape();
  const Census census = census_of(cluster, lock);
  fmt::print("{}\n", cluster.file().path());
  fmt::print("  cluster      {:016x}, format {}\n", h.cluster, h.version);
  fmt::print("  members      {} of {}, each with {} workers and {} endpoints\n", census.alive,
             h.members, h.workers, h.endpoints);
  fmt::print("  memory       {} x {} bytes; a lock takes {} bytes\n", h.mns, format_count(h.mn_bytes),
             LockShape{h.members, h.members, QueueLayout::owner}.bytes());
  fmt::print("  removed      {} members that died, ever\n", census.removals);
  for (std::uint32_t i = 0; i < h.members; ++i) {
    const Slot slot{static_cast<std::uint16_t>(i)};
    const shm::MemberWord word = shm::MemberWord::of(cluster.member(slot).word.load());
    if (!word.live) continue;
    fmt::print("  slot {:<7} process {}, incarnation {}, {}\n", i, cluster.member(slot).pid.load(),
               word.incarnation,
               lock.is_taken(slot).value_or(true)
                   ? "alive"
                   : "dead; whoever is alive, or joins next, removes it");
  }
  return kFine;
}

int remove(const Options& options) {
  const auto removed = shm::remove_cluster(options.directory, options.name);
  if (!removed) throw CannotRun(removed.error());
  fmt::print("removed {}\n", shm::path_of(options.directory, options.name));
  return kFine;
}

Action add(Command shm, const char* name, const char* help, bool named, int (*run)(const Options&)) {
  Command app = shm.add_command(name, help);
  auto options = std::make_shared<Options>();
  if (named) app.add_option("NAME", options->name, "The cluster").required();
  app.add_option("--dir", options->directory, "Where its files are").type_name("DIRECTORY");
  return [options, run] { return run(*options); };
}

}  // namespace

std::vector<std::pair<std::string, Action>> add_shm(Command program) {
  Command shm = program.add_command("shm", "What lies in shared memory: list, inspect, remove");
  shm.require_command();
  return {
      {"list", add(shm, "list", "All clusters of this machine", false, list)},
      {"inspect", add(shm, "inspect", "One cluster: its sizes and its members", true, inspect)},
      {"remove", add(shm, "remove",
                     "Remove a cluster that nobody uses, damaged or not, with all its locks and data",
                     true, remove)}};
}

}  // namespace declock::cli

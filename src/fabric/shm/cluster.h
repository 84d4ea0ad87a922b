// A cluster in shared memory: one file with the members, their bells and their mailboxes, and one file per memory
// node with nothing but its memory.
//
//   NAME        header | member per slot | bells | mailboxes
//   NAME.mn0    header | memory
//
// The files of a cluster carry its number; the cluster's file is made first and removed last, so whatever is missing
// was never used, or is used no more.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "layout/ids.h"
#include "runtime/thread_worker.h"
#include "shm/mailbox.h"
#include "shm/member_word.h"
#include "shm/segment.h"

namespace declock::shm {

inline constexpr const char* kDefaultDirectory = "/dev/shm";

struct ClusterConfig {
  std::string name;
  std::string directory = kDefaultDirectory;
  std::uint32_t members = 16;
  std::uint32_t workers = 1;    // per member
  std::uint32_t endpoints = 1;  // per member; number i belongs to worker i mod workers
  std::uint32_t mns = 1;
  std::uint64_t mn_bytes = 0;  // of each memory node
  Steps step{};
};

// What is wrong with a name, if anything.
Result<void, std::string> check_name(const std::string& name);
std::string path_of(const std::string& directory, const std::string& name);
std::string memory_path_of(const std::string& directory, const std::string& name, std::uint32_t mn);

class Cluster {
 public:
  // As it is, or else made as `config` says. An error says what is wrong, and what to do.
  static Result<Cluster, std::string> open_or_create(const ClusterConfig& config);
  // The same in two steps: who holds a slot in between knows that nobody removes the cluster meanwhile.
  static Result<Cluster, std::string> open_or_create_members(const ClusterConfig& config);
  // Memory that is missing is made if `make` says so.
  Result<void, std::string> open_memory(const ClusterConfig* make);
  // As it is, whatever its sizes; the second without its memory, which may not be made yet.
  static Result<Cluster, std::string> open(const std::string& directory, const std::string& name);
  static Result<Cluster, std::string> open_members(const std::string& directory,
                                                   const std::string& name);

  const SegmentHeader& shape() const { return cluster_.header(); }
  const Segment& file() const { return cluster_; }
  // Whoever comes next makes another cluster, of which nobody here would know.
  bool has_lost_its_names() const;
  // Does the process still have what it opened? If not, whoever else has the numbers by now keeps them.
  bool has_its_descriptors() const;

  struct alignas(64) MemberLine {
    std::atomic<std::uint64_t> word;  // a MemberWord
    // Of who has, or last had, the slot: its process, and the name space of that number, or 0.
    std::atomic<std::uint32_t> pid;
    std::atomic<std::uint32_t> news;  // to its dispatcher: the members have changed
    std::atomic<std::uint64_t> pid_space;
  };
  MemberLine& member(Slot slot) const { return members()[slot.value]; }
  bool is_alive(const Sender& sender) const {
    if (sender.slot.value >= shape().members) return false;
    const MemberWord word = MemberWord::of(member(sender.slot).word.load());
    return word.live && (word.incarnation & Sender::kIncarnationMask) == sender.incarnation;
  }

  Slot owner_of(EndpointId endpoint) const {
    return Slot{static_cast<std::uint16_t>(endpoint.value / shape().endpoints)};
  }
  Mailbox& mailbox(EndpointId endpoint) const;
  // Of a member's worker, or of the dispatcher that all of them share.
  BellWord& bell(Slot slot, std::uint32_t worker) const;
  BellWord& dispatcher_bell(Slot slot) const { return bell(slot, shape().workers); }
  BellWord& bell_of(EndpointId endpoint) const {
    return bell(owner_of(endpoint), endpoint.value % shape().endpoints % shape().workers);
  }
  // Are these words in a memory node?
  bool holds(RemoteAddr addr, std::uint64_t words) const {
    return addr.mn.value < memory_.size() && addr.offset <= mn_bytes_ &&
           words <= (mn_bytes_ - addr.offset) / 8;
  }
  // Of its memory: that of a cluster which was removed and made again has another one, all but surely. 16 bits, as C programs
  // have them beside an offset; never 0.
  std::uint32_t incarnation() const { return static_cast<std::uint32_t>(shape().cluster % 0xFFFF) + 1; }
  MemoryRoot& memory_root(MnId mn) const { return memories_[mn.value].root(); }
  std::uint64_t* word_at(RemoteAddr addr) const { return &memory_[addr.mn.value][addr.offset / 8]; }
  std::atomic_ref<std::uint64_t> word(RemoteAddr addr) const { return std::atomic_ref{*word_at(addr)}; }

 private:
  struct alignas(64) BellLine {
    BellWord word;
  };
  MemberLine* members() const { return reinterpret_cast<MemberLine*>(cluster_.data()); }

  Segment cluster_;
  std::vector<Segment> memories_;
  std::vector<std::uint64_t*> memory_;  // of each, where it begins
  std::uint64_t mn_bytes_ = 0;          // of each
};

// Removes a cluster that nobody is a member of, damaged or not; its memory first. An error says who still is.
Result<void, std::string> remove_cluster(const std::string& directory, const std::string& name);

// All clusters in a directory, by name, and what else has a name of theirs.
struct Listed {
  std::string name;
  Result<Cluster, std::string> cluster;
};
Result<std::vector<Listed>, std::string> list_clusters(const std::string& directory);

// The bytes of the file that a slot's holder has locked; behind the end of every file.
constexpr std::int64_t lock_byte(Slot slot) {
  return (std::int64_t{1} << 40) + slot.value;
}

}  // namespace declock::shm

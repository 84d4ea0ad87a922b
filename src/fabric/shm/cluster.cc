#include "shm/cluster.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/random.h"
#include "layout/entry.h"
#include "layout/header.h"

namespace declock::shm {
namespace {

constexpr std::string_view kPrefix = "declock-";
constexpr std::string_view kMemorySuffix = ".mn";
constexpr std::uint32_t kMnsMax = 64;

constexpr std::uint64_t rounded_up(std::uint64_t bytes, std::uint64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

std::uint64_t cluster_bytes(const SegmentHeader& shape) {
  const std::uint64_t members = shape.members;
  return rounded_up(kHeaderBytes + members * sizeof(Cluster::MemberLine) +
                        members * (shape.workers + std::uint64_t{1}) * 64 +
                        members * shape.endpoints * sizeof(Mailbox),
                    kHeaderBytes);
}

SegmentHeader header_for(const ClusterConfig& config) {
  SegmentHeader header;
  header.cluster = unguessable_number();
  header.members = config.members;
  header.workers = config.workers;
  header.endpoints = config.endpoints;
  header.mns = config.mns;
  header.mn_bytes = rounded_up(std::max<std::uint64_t>(config.mn_bytes, 8), 8);
  header.bytes = cluster_bytes(header);
  return header;
}

// A header from a file: nothing in it is believed before it is checked.
bool is_sound(const SegmentHeader& h) {
  return h.members >= 1 && h.members <= HeaderLayout::kMembersMax && h.workers >= 1 &&
         h.workers <= kWorkersMax && h.endpoints >= h.workers && h.endpoints <= 1024 && h.mns >= 1 &&
         h.mns <= kMnsMax && h.bytes == cluster_bytes(h);
}

std::string described(const SegmentHeader& h) {
  return fmt::format("{} members with {} workers and {} endpoints each, {} memory nodes of {} bytes",
                     h.members, h.workers, h.endpoints, h.mns, h.mn_bytes);
}

}  // namespace

Result<void, std::string> check_name(const std::string& name) {
  const bool letters = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  });
  if (letters && !name.empty() && name.size() <= 100) return {};
  return Failure{
      fmt::format("'{}' is no name for a cluster; accepted: up to 100 letters, digits, - and _", name)};
}

std::string path_of(const std::string& directory, const std::string& name) {
  return fmt::format("{}/{}{}", directory, kPrefix, name);
}

std::string memory_path_of(const std::string& directory, const std::string& name, std::uint32_t mn) {
  return fmt::format("{}{}{}", path_of(directory, name), kMemorySuffix, mn);
}

Mailbox& Cluster::mailbox(EndpointId endpoint) const {
  CHECK(endpoint.value < shape().members * shape().endpoints);
  std::byte* bells = cluster_.data() + shape().members * sizeof(MemberLine);
  std::byte* mailboxes =
      bells + shape().members * (shape().workers + std::uint64_t{1}) * sizeof(BellLine);
  return reinterpret_cast<Mailbox*>(mailboxes)[endpoint.value];
}

BellWord& Cluster::bell(Slot slot, std::uint32_t worker) const {
  CHECK(slot.value < shape().members && worker <= shape().workers);
  std::byte* bells = cluster_.data() + shape().members * sizeof(MemberLine);
  return reinterpret_cast<BellLine*>(bells)[slot.value * (shape().workers + 1) + worker].word;
}

Result<Cluster, std::string> Cluster::open_or_create(const ClusterConfig& config) {
  auto cluster = open_or_create_members(config);
  if (!cluster) return cluster;
  const auto memory = cluster->open_memory(&config);
  if (!memory) return Failure{memory.error()};
  return cluster;
}

Result<Cluster, std::string> Cluster::open_or_create_members(const ClusterConfig& config) {
  const auto valid = check_name(config.name);
  if (!valid) return Failure{valid.error()};
  const std::string path = path_of(config.directory, config.name);
  for (;;) {  // again only if a file was there and is gone, or the other way round
    auto found = Segment::open(path, SegmentHeader::Kind::cluster);
    if (found && !*found) found = Segment::create(path, header_for(config), config.step);
    if (!found) return Failure{found.error()};
    if (!*found) continue;
    Cluster cluster;
    cluster.cluster_ = std::move(**found);
    const SegmentHeader& is = cluster.shape();
    if (!is_sound(is))
      return Failure{
          fmt::format("{}: is damaged: its header makes no sense; remove it with "
                      "'declock shm remove'",
                      path)};
    const SegmentHeader asked = header_for(config);
    if (is.members != asked.members || is.workers != asked.workers || is.endpoints != asked.endpoints ||
        is.mns != asked.mns || is.mn_bytes != asked.mn_bytes) {
      return Failure{
          fmt::format("{}: has {}; asked for were {}; ask for what it has, choose another name, or "
                      "remove it with 'declock shm remove {}'",
                      path, described(is), described(asked), config.name)};
    }
    return cluster;
  }
}

Result<Cluster, std::string> Cluster::open(const std::string& directory, const std::string& name) {
  auto cluster = open_members(directory, name);
  if (!cluster) return cluster;
  const auto memory = cluster->open_memory(nullptr);
  if (!memory) return Failure{memory.error()};
  return cluster;
}

Result<Cluster, std::string> Cluster::open_members(const std::string& directory,
                                                   const std::string& name) {
  const auto valid = check_name(name);
  if (!valid) return Failure{valid.error()};
  const std::string path = path_of(directory, name);
  auto found = Segment::open(path, SegmentHeader::Kind::cluster);
  if (!found) return Failure{found.error()};
  if (!*found) {
    return Failure{
        fmt::format("{}: there is no such file; 'declock shm list' shows what there is", path)};
  }
  Cluster cluster;
  cluster.cluster_ = std::move(**found);
  if (!is_sound(cluster.shape())) {
    return Failure{
        fmt::format("{}: is damaged: its header makes no sense; remove it with "
                    "'declock shm remove'",
                    path)};
  }
  return cluster;
}

Result<void, std::string> Cluster::open_memory(const ClusterConfig* make) {
  mn_bytes_ = shape().mn_bytes;
  for (std::uint32_t mn = 0; mn < shape().mns; ++mn) {
    const std::string path = fmt::format("{}{}{}", cluster_.path(), kMemorySuffix, mn);
    auto found = Segment::open(path, SegmentHeader::Kind::memory);
    for (; found && !*found && make != nullptr;
         found = Segment::open(path, SegmentHeader::Kind::memory)) {
      SegmentHeader header = shape();
      header.kind = SegmentHeader::Kind::memory;
      header.mn = mn;
      header.bytes = kHeaderBytes + header.mn_bytes;
      found = Segment::create(path, header, make->step);
      if (!found || *found) break;
    }
    if (!found) return Failure{found.error()};
    if (!*found) {
      return Failure{
          fmt::format("{}: is missing; whoever joins the cluster next makes it again", path)};
    }
    const SegmentHeader& is = (*found)->header();
    if (is.cluster != shape().cluster || is.mn != mn || is.bytes != kHeaderBytes + shape().mn_bytes) {
      return Failure{
          fmt::format("{}: belongs to another cluster than {}; remove both", path, cluster_.path())};
    }
    memory_.push_back(reinterpret_cast<std::uint64_t*>((*found)->data()));
    memories_.push_back(std::move(**found));
  }
  return {};
}

bool Cluster::has_lost_its_names() const {
  return cluster_.is_unlinked_or_replaced() ||
         std::any_of(memories_.begin(), memories_.end(),
                     [](const Segment& memory) { return memory.is_unlinked_or_replaced(); });
}

bool Cluster::has_its_descriptors() const {
  return cluster_.descriptor().is_ours() &&
         std::all_of(memories_.begin(), memories_.end(),
                     [](const Segment& memory) { return memory.descriptor().is_ours(); });
}

Result<void, std::string> remove_cluster(const std::string& directory, const std::string& name) {
  auto valid = check_name(name);
  if (!valid) return valid;
  const std::string path = path_of(directory, name);
  const auto found = Segment::find(path);
  if (!found) return Failure{found.error()};
  if (!*found) {
    return Failure{
        fmt::format("{}: there is no such file; 'declock shm list' shows what there is", path)};
  }
  // All slots at once, and whatever another version may lock: as long as this is held nobody can join, and who has done
  // so is seen.
  struct flock all {};
  all.l_type = F_WRLCK;
  all.l_whence = SEEK_SET;
  if (fcntl((*found)->descriptor().number(), F_OFD_SETLK, &all) != 0) {
    return Failure{fmt::format("{}: is in use; 'declock shm inspect {}' shows by whom", path, name)};
  }
  if (!(*found)->is_at_its_path()) {
    return Failure{fmt::format("{}: was removed by somebody else meanwhile", path)};
  }
  // Whatever the header says of their number: it may be damaged.
  for (std::uint32_t mn = 0; mn < kMnsMax; ++mn) {
    const std::string memory = memory_path_of(directory, name, mn);
    if (unlink(memory.c_str()) != 0 && errno != ENOENT)
      return Failure{fmt::format("{}: {}", memory, std::strerror(errno))};
  }
  if (unlink(path.c_str()) != 0) return Failure{fmt::format("{}: {}", path, std::strerror(errno))};
  return {};
}

Result<std::vector<Listed>, std::string> list_clusters(const std::string& directory) {
  DIR* listing = opendir(directory.c_str());
  if (listing == nullptr) return Failure{fmt::format("{}: {}", directory, std::strerror(errno))};
  std::vector<std::string> names;
  while (const dirent* entry = readdir(listing)) {
    const std::string_view file = entry->d_name;
    if (file.starts_with(kPrefix) && file.find(kMemorySuffix) == std::string_view::npos) {
      names.emplace_back(file.substr(kPrefix.size()));
    }
  }
  closedir(listing);
  std::sort(names.begin(), names.end());
  std::vector<Listed> all;
  all.reserve(names.size());
  for (const std::string& name : names) all.push_back({name, Cluster::open(directory, name)});
  return all;
}

}  // namespace declock::shm

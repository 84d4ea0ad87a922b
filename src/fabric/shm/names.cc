#include "shm/names.h"

#include <fmt/format.h>

#include <bit>
#include <functional>
#include <optional>
#include <string_view>

#include "base/units.h"

namespace declock::shm {
namespace {

constexpr std::uint64_t kLine = 64;
constexpr std::uint64_t kNameBytesMax = 255;

std::uint64_t hash_of(std::string_view name) {  // FNV-1a: the same in every process
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

constexpr std::uint64_t words_for(std::uint64_t bytes) {
  return (bytes + 7) / 8;
}

class Names {
 public:
  Names(const Cluster& cluster, MnId mn) : cluster_(cluster), mn_(mn), root_(cluster.memory_root(mn)) {}

  // Of a power of two of places: one in 256 bytes of memory, and what a small memory needs.
  std::uint64_t places() const {
    return std::bit_ceil(std::max<std::uint64_t>(cluster_.shape().mn_bytes / 256, 16));
  }

  // Memory that nobody has had yet, and so is zero; none: there is no room.
  std::optional<std::uint64_t> take(std::uint64_t bytes) const {
    std::atomic_ref<std::uint64_t> end{root_.allocated};
    std::uint64_t from = end.load();
    for (;;) {  // ends: somebody else got on
      const std::uint64_t aligned = (from + kLine - 1) / kLine * kLine;
      const std::uint64_t room = cluster_.shape().mn_bytes;
      if (aligned > room || bytes > room - aligned) return {};
      if (end.compare_exchange_weak(from, aligned + bytes)) return aligned;
    }
  }

  // Where the index begins; it is made if `make` says so. None: there is none.
  std::optional<std::uint64_t> index(bool make) const {
    std::atomic_ref<std::uint64_t> at{root_.index};
    const std::uint64_t found = at.load();
    if (found != 0) return checked(found);
    if (!make) return {};
    const std::optional<std::uint64_t> mine = take(places() * 8 + kLine);
    if (!mine) return checked(at.load());  // somebody else's may have taken the room
    // Offset 0 would say that there is none.
    std::uint64_t expected = 0;
    const std::uint64_t begins = *mine + kLine;
    return at.compare_exchange_strong(expected, begins) ? begins : checked(expected);
  }

  // None: no index can be there.
  std::optional<std::uint64_t> checked(std::uint64_t index) const {
    const bool fits = index != 0 && index % 8 == 0 && cluster_.holds({mn_, index}, places());
    return fits ? std::optional{index} : std::nullopt;
  }

  std::atomic_ref<std::uint64_t> word(std::uint64_t offset) const {
    return cluster_.word({mn_, offset});
  }

  std::string letters(std::uint64_t offset, std::uint64_t length) const {
    std::string text;
    for (std::uint64_t i = 0; i < length; ++i) {
      text.push_back(static_cast<char>(word(offset + i / 8 * 8).load() >> (i % 8 * 8)));
    }
    return text;
  }
  void write_letters(std::uint64_t offset, std::string_view text) const {
    for (std::uint64_t w = 0; w < words_for(text.size()); ++w) {
      std::uint64_t packed = 0;
      for (std::uint64_t i = 0; i < 8 && w * 8 + i < text.size(); ++i) {
        packed |= std::uint64_t{static_cast<unsigned char>(text[w * 8 + i])} << (i * 8);
      }
      word(offset + w * 8).store(packed);
    }
  }

  struct Entry {
    Named named;
    std::string name;
  };
  // None: what is there is no entry.
  std::optional<Entry> entry(std::uint64_t offset) const {
    if (!cluster_.holds({mn_, offset}, 3) || offset % 8 != 0) return {};
    const std::uint64_t bytes = word(offset).load();
    const std::uint64_t name_bytes = word(offset + 8).load();
    const std::uint64_t use_bytes = word(offset + 16).load();
    if (name_bytes > kNameBytesMax || use_bytes > kNameBytesMax) return {};
    const std::uint64_t use_at = offset + 24 + words_for(name_bytes) * 8;
    const std::uint64_t data = begin_of_data(offset, name_bytes, use_bytes);
    if (!cluster_.holds({mn_, data}, words_for(bytes))) return {};
    return Entry{{data, bytes, letters(use_at, use_bytes)}, letters(offset + 24, name_bytes)};
  }
  static std::uint64_t begin_of_data(std::uint64_t entry, std::uint64_t name_bytes,
                                     std::uint64_t use_bytes) {
    const std::uint64_t end = entry + 24 + words_for(name_bytes) * 8 + words_for(use_bytes) * 8;
    return (end + kLine - 1) / kLine * kLine;
  }

  // A new entry that nobody sees yet.
  std::optional<std::uint64_t> make(std::string_view name, std::uint64_t bytes,
                                    std::string_view use) const {
    const std::uint64_t before = begin_of_data(0, name.size(), use.size());
    if (bytes > cluster_.shape().mn_bytes) return {};
    const std::optional<std::uint64_t> offset = take(before + bytes);
    if (!offset) return {};
    word(*offset).store(bytes);
    word(*offset + 8).store(name.size());
    word(*offset + 16).store(use.size());
    write_letters(*offset + 24, name);
    write_letters(*offset + 24 + words_for(name.size()) * 8, use);
    return offset;
  }

  std::uint64_t left() const {
    const std::uint64_t allocated = std::atomic_ref{root_.allocated}.load();
    return cluster_.shape().mn_bytes - std::min(allocated, cluster_.shape().mn_bytes);
  }

 private:
  const Cluster& cluster_;
  MnId mn_;
  MemoryRoot& root_;
};

// fn(place) for the places of a name, in order, until it gives something.
template <class Fn>
auto probe(std::uint64_t index, std::uint64_t places, std::string_view name, Fn fn)
    -> decltype(fn(std::uint64_t{})) {
  for (std::uint64_t i = 0; i < places; ++i) {
    const std::uint64_t place = (hash_of(name) + i) & (places - 1);
    if (auto found = fn(index + place * 8)) return found;
  }
  return {};
}

std::string damaged(const Cluster& cluster) {
  return fmt::format("{}: its names are damaged; remove the cluster", cluster.file().path());
}

Result<void, std::string> check(const Cluster& cluster, MnId mn, const std::string& name) {
  if (mn.value >= cluster.shape().mns) {
    return Failure{
        fmt::format("memory node {}: there are {}, counted from 0", mn.value, cluster.shape().mns)};
  }
  if (name.empty() || name.size() > kNameBytesMax) {
    return Failure{fmt::format("'{}': a name has 1 to {} bytes", name, kNameBytesMax)};
  }
  return {};
}

}  // namespace

Result<Named, std::string> find(const Cluster& cluster, MnId mn, const std::string& name) {
  if (const auto sound = check(cluster, mn, name); !sound) return Failure{sound.error()};
  const Names names{cluster, mn};
  std::optional<Named> found;
  if (const auto index = names.index(false)) {
    probe(*index, names.places(), name, [&](std::uint64_t place) {
      const std::uint64_t at = names.word(place).load();
      if (at == 0) return true;  // it would have been here
      const auto entry = names.entry(at);
      if (entry && entry->name == name) found = entry->named;
      return found.has_value();
    });
  }
  if (!found) return Failure{fmt::format("nothing has the name '{}'", name)};
  return *found;
}

Result<Named, std::string> find_or_make(const Cluster& cluster, MnId mn, const std::string& name,
                                        std::uint64_t bytes, const std::string& use) {
  if (const auto sound = check(cluster, mn, name); !sound) return Failure{sound.error()};
  const Names names{cluster, mn};
  const auto no_room = [&] {
    return Failure{fmt::format("{} for '{}': {} of {} are left; make a larger cluster (size=)",
                               format_bytes(bytes), name, format_bytes(names.left()),
                               format_bytes(cluster.shape().mn_bytes))};
  };
  const auto index = names.index(true);
  if (!index) return no_room();
  std::optional<std::uint64_t> mine;  // an entry that is to be named
  std::optional<Result<Named, std::string>> result =
      probe(*index, names.places(), name,
            [&](std::uint64_t place) -> std::optional<Result<Named, std::string>> {
              std::uint64_t at = names.word(place).load();
              if (at == 0) {
                if (!mine) mine = names.make(name, bytes, use);
                if (!mine) return no_room();
                if (names.word(place).compare_exchange_strong(at, *mine)) at = *mine;
              }
              const auto entry = names.entry(at);
              if (!entry) return Failure{damaged(cluster)};
              if (entry->name != name) return {};
              if (entry->named.bytes == bytes && entry->named.use == use) return entry->named;
              return Failure{fmt::format(
                  "'{}' is there already, with {} bytes for {}; use another name, or the same size",
                  name, entry->named.bytes, entry->named.use)};
            });
  if (!result) return no_room();
  return *result;
}

}  // namespace declock::shm

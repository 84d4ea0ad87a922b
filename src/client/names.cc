// Locks, tables and memory by name, and the names of locks for people.
#include <fmt/format.h>

#include <charconv>

#include "client/core.h"

namespace declock::client {
namespace {

constexpr std::uint32_t kNamed = 1;  // the table of locks by name
constexpr std::size_t kNameBytesMax = member::Node::kNameBytesMax;

// A lock 'a', a table 'a' and memory 'a' are different things.
std::string lock_name(const std::string& name) {
  return "lock/" + name;
}
std::string table_name(const std::string& name) {
  return "table/" + name;
}

// The address knows which incarnation of its memory node it is for.
RemoteAddr given(const member::Node::Memory& memory) {
  return {memory.at.mn, memory.at.offset, memory.mn_incarnation};
}

Result<void, Error> check_name(const std::string& name) {
  if (!name.empty() && name.size() <= kNameBytesMax) return {};
  return Failure{Error{Errc::invalid_argument,
                       fmt::format("'{}': a name has 1 to {} bytes", name, kNameBytesMax)}};
}

Error unavailable(const std::string& why) {
  return {Errc::unavailable, why};
}

// A whole number, or nothing.
template <class T>
std::optional<T> number_in(std::string_view text, int base = 10) {
  T number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc{} || end != text.data() + text.size()) return {};
  return number;
}

}  // namespace

Result<LockRef, Error> Core::named_lock(const std::string& name, MnId mn) {
  if (standing() != Errc::ok) return Failure{not_open()};
  if (const auto sound = check_name(name); !sound) return Failure{sound.error()};
  const auto made = node_->allocate_locks(mn, lock_name(name), 1);
  if (!made) return Failure{unavailable(made.error())};
  if (const auto meant = mean_only(*made); !meant) return Failure{meant.error()};
  const std::lock_guard guard{mutex_};
  names_[made->at.packed()] = name;
  return LockRef{given(*made), kNamed};
}

Result<LockTable, Error> Core::lock_table(const std::string& name, std::uint64_t count, MnId mn) {
  if (standing() != Errc::ok) return Failure{not_open()};
  if (const auto sound = check_name(name); !sound) return Failure{sound.error()};
  if (count == 0) {
    return Failure{Error{Errc::invalid_argument, fmt::format("table '{}': at least one lock", name)}};
  }
  const auto made = node_->allocate_locks(mn, table_name(name), count);
  if (!made) return Failure{unavailable(made.error())};
  if (const auto meant = mean_only(*made); !meant) return Failure{meant.error()};
  const std::lock_guard guard{mutex_};
  std::uint32_t number = 0;
  while (number < tables_.size() && tables_[number].name != name) number += 1;
  const LockTable table{LockRef{given(*made), number}, count, node_->lock_shape().bytes()};
  if (number == tables_.size()) tables_.push_back({name, {}});
  tables_[number].locks = table;
  return table;
}

Result<RemoteAddr, Error> Core::allocate(const std::string& name, std::uint64_t bytes, MnId mn) {
  if (standing() != Errc::ok) return Failure{not_open()};
  if (const auto sound = check_name(name); !sound) return Failure{sound.error()};
  if (bytes == 0 || bytes % 8 != 0) {
    return Failure{Error{Errc::invalid_argument,
                         fmt::format("'{}': {} bytes are not a multiple of 8", name, bytes)}};
  }
  const auto made = node_->allocate(mn, "memory/" + name, bytes, "memory");
  if (!made) return Failure{unavailable(made.error())};
  if (const auto meant = mean_only(*made); !meant) return Failure{meant.error()};
  return given(*made);
}

Result<LockRef, Error> Core::find_lock(const std::string& text) {
  if (standing() != Errc::ok) return Failure{not_open()};
  const std::uint64_t each = node_->lock_shape().bytes();
  if (const std::size_t plus = text.find("+0x"); text.starts_with("mn") && plus != std::string::npos) {
    const auto mn = number_in<std::uint16_t>(std::string_view{text}.substr(2, plus - 2));
    const auto offset = number_in<std::uint64_t>(std::string_view{text}.substr(plus + 3), 16);
    if (mn && offset) return LockRef{{MnId{*mn}, *offset}};
  }
  const auto find = [&](const std::string& name) {
    std::optional<member::Node::Memory> found;
    for (std::uint16_t mn = 0; mn < Lane::kMns && !found; ++mn) {
      if (!node_->reaches({MnId{mn}, 0}, 1)) continue;
      if (const auto there = node_->find(MnId{mn}, name)) found = *there;
    }
    return found;
  };
  if (const auto named = find(lock_name(text))) {
    return LockRef{given(*named), kNamed};
  }
  if (const std::size_t bracket = text.rfind('['); bracket != std::string::npos && text.back() == ']') {
    const auto index =
        number_in<std::uint64_t>(std::string_view{text}.substr(bracket + 1, text.size() - bracket - 2));
    const auto table = find(table_name(text.substr(0, bracket)));
    if (index && table) {
      if (*index < table->bytes / each) return LockRef{given(*table) + *index * each};
      return Failure{Error{Errc::invalid_argument,
                           fmt::format("{}: the table has {} locks", text, table->bytes / each)}};
    }
  }
  return Failure{
      Error{Errc::invalid_argument,
            fmt::format("'{}': there is no such lock; accepted: the name of a lock, TABLE[INDEX], "
                        "or an address such as mn0+0x1000",
                        text)}};
}

void Core::forget_names(MnId mn) {
  const std::lock_guard guard{mutex_};
  std::erase_if(names_, [&](const auto& entry) { return (entry.first & 0xFFFF) == mn.value; });
  for (Table& table : tables_) {
    if (table.locks.size() > 0 && table.locks[0].at.mn == mn) table.locks = {};
  }
}

std::string Core::label(RemoteAddr lock) {
  const std::lock_guard guard{mutex_};
  if (const auto named = names_.find(lock.packed()); named != names_.end()) return named->second;
  for (const Table& table : tables_) {
    if (table.locks.size() == 0 || table.locks[0].at.mn != lock.mn) continue;
    const std::uint64_t first = table.locks[0].at.offset;
    const std::uint64_t end = table.locks[table.locks.size()].at.offset;
    if (lock.offset < first || lock.offset >= end) continue;
    return fmt::format("{}[{}]", table.name, (lock.offset - first) / table.locks.stride());
  }
  return fmt::format("mn{}+{:#x}", lock.mn.value, lock.offset);
}

}  // namespace declock::client

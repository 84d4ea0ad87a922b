// The C functions: handles around the C++ classes. No exception leaves them.
#include "declock/c.h"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <new>
#include <string>
#include <system_error>

#include "declock/cluster.h"
#include "declock/shared_mutex.h"

struct declock_cluster {
  declock::Cluster cluster;
};
struct declock_mutex {
  declock::SharedMutex mutex;
};

namespace {

using declock::Errc;
using declock::Error;
using declock::MnId;
using declock::RemoteAddr;

static_assert(static_cast<int>(Errc::closed) == DECLOCK_CLOSED);
static_assert(static_cast<int>(Errc::timed_out) == DECLOCK_TIMED_OUT);

thread_local std::string t_message;

int fail(const Error& error) {
  t_message = error.message;
  return static_cast<int>(error.code);
}

int fail(Errc code) {
  return fail(Error{code, std::string{to_string(code)}});
}

int null_pointer() {
  return fail(Error{Errc::invalid_argument, "a pointer is NULL"});
}

// C programs have an address as a memory node's number and 64 bits: 48 of the offset, and on top of them 16 of the
// incarnation that gave it.
constexpr unsigned kOffsetBits = 48;
constexpr unsigned kIncarnationBits = 64 - kOffsetBits;
std::uint64_t packed(const RemoteAddr& addr) {
  return addr.offset | std::uint64_t{addr.mn_incarnation} << kOffsetBits;
}
RemoteAddr address(uint16_t mn, uint64_t offset) {
  return {MnId{mn}, offset & ((std::uint64_t{1} << kOffsetBits) - 1),
          static_cast<std::uint32_t>(offset >> kOffsetBits)};
}

// What fn() gives, or the code of what it throws.
template <class Fn>
int guarded(Fn fn) {
  try {
    return fn();
  } catch (const std::system_error& error) {
    const bool ours = error.code().category() == declock::error_category();
    return fail(
        Error{ours ? static_cast<Errc>(error.code().value()) : Errc::unavailable, error.what()});
  } catch (const std::bad_alloc&) {
    return fail(Error{Errc::unavailable, "out of memory"});
  } catch (const std::exception& error) {
    return fail(Error{Errc::unavailable, error.what()});
  }
}

template <class T, class E>
int make_mutex(declock_cluster* cluster, const declock::Result<T, E>& lock, declock_mutex** mutex) {
  if (!lock) return fail(lock.error());
  *mutex = new declock_mutex{declock::SharedMutex{cluster->cluster, *lock}};
  return 0;
}

int as_code(const declock::Result<void>& result) {
  return result ? 0 : fail(result.error());
}

}  // namespace

const char* declock_strerror(int error) {
  if (error < 0 || error > DECLOCK_CLOSED) return "unknown error";
  return to_string(static_cast<Errc>(error)).data();  // of a literal: it ends with a zero
}

const char* declock_error_message(void) {
  return t_message.c_str();
}

const char* declock_version(void) {
  return DECLOCK_VERSION;
}

int declock_open(const char* uri, declock_cluster** cluster) {
  if (uri == nullptr || cluster == nullptr) return null_pointer();
  return guarded([&] {
    auto opened = declock::Cluster::open(uri);
    if (!opened) return fail(opened.error());
    *cluster = new declock_cluster{std::move(*opened)};
    return 0;
  });
}

int declock_close(declock_cluster* cluster) {
  if (cluster == nullptr) return 0;
  return guarded([&] {
    const auto closed = cluster->cluster.close();
    delete cluster;
    return closed ? 0 : fail(closed.error());
  });
}

int declock_mutex_named(declock_cluster* cluster, const char* name, declock_mutex** mutex) {
  if (cluster == nullptr || name == nullptr || mutex == nullptr) return null_pointer();
  return guarded([&] {
    *mutex = new declock_mutex{declock::SharedMutex{cluster->cluster, std::string_view{name}}};
    return 0;
  });
}

int declock_mutex_of_table(declock_cluster* cluster, const char* table, uint64_t count, uint64_t index,
                           declock_mutex** mutex) {
  if (cluster == nullptr || table == nullptr || mutex == nullptr) return null_pointer();
  return guarded([&] {
    const auto locks = cluster->cluster.lock_table(table, count);
    if (!locks) return fail(locks.error());
    if (index >= count) {
      return fail(Error{Errc::invalid_argument, "the index is not smaller than the count"});
    }
    return make_mutex(cluster, declock::Result<declock::LockRef, Error>{(*locks)[index]}, mutex);
  });
}

int declock_mutex_at(declock_cluster* cluster, uint16_t mn, uint64_t offset, declock_mutex** mutex) {
  if (cluster == nullptr || mutex == nullptr) return null_pointer();
  return guarded([&] {
    const declock::LockRef lock{address(mn, offset)};
    return make_mutex(cluster, declock::Result<declock::LockRef, Error>{lock}, mutex);
  });
}

void declock_mutex_free(declock_mutex* mutex) {
  delete mutex;
}

int declock_lock(declock_mutex* mutex) {
  if (mutex == nullptr) return null_pointer();
  return guarded([&] {
    mutex->mutex.lock();
    return 0;
  });
}

int declock_try_lock(declock_mutex* mutex) {
  if (mutex == nullptr) return null_pointer();
  return guarded([&] { return mutex->mutex.try_lock() ? 0 : fail(Errc::busy); });
}

int declock_lock_for(declock_mutex* mutex, uint64_t nanoseconds) {
  if (mutex == nullptr) return null_pointer();
  const std::chrono::duration<std::uint64_t, std::nano> wait{nanoseconds};
  return guarded([&] { return mutex->mutex.try_lock_for(wait) ? 0 : fail(Errc::timed_out); });
}

int declock_unlock(declock_mutex* mutex) {
  if (mutex == nullptr) return null_pointer();
  return guarded([&] { return as_code(mutex->mutex.unlock_checked()); });
}

int declock_lock_shared(declock_mutex* mutex) {
  if (mutex == nullptr) return null_pointer();
  return guarded([&] {
    mutex->mutex.lock_shared();
    return 0;
  });
}

int declock_try_lock_shared(declock_mutex* mutex) {
  if (mutex == nullptr) return null_pointer();
  return guarded([&] { return mutex->mutex.try_lock_shared() ? 0 : fail(Errc::busy); });
}

int declock_lock_shared_for(declock_mutex* mutex, uint64_t nanoseconds) {
  if (mutex == nullptr) return null_pointer();
  const std::chrono::duration<std::uint64_t, std::nano> wait{nanoseconds};
  return guarded([&] { return mutex->mutex.try_lock_shared_for(wait) ? 0 : fail(Errc::timed_out); });
}

int declock_unlock_shared(declock_mutex* mutex) {
  if (mutex == nullptr) return null_pointer();
  return guarded([&] { return as_code(mutex->mutex.unlock_shared_checked()); });
}

int declock_token_of(declock_mutex* mutex, declock_token* token) {
  if (mutex == nullptr || token == nullptr) return null_pointer();
  return guarded([&] {
    const declock::Token t = mutex->mutex.token();
    *token = {{t.mn_incarnation, t.wraps, t.ticket.value, t.local_sequence}};
    return 0;
  });
}

int declock_allocate(declock_cluster* cluster, uint16_t mn, const char* name, uint64_t bytes,
                     uint64_t* offset) {
  if (cluster == nullptr || name == nullptr || offset == nullptr) return null_pointer();
  return guarded([&] {
    const auto memory = cluster->cluster.allocate(name, bytes, MnId{mn});
    if (!memory) return fail(memory.error());
    if (memory->mn_incarnation >> kIncarnationBits != 0)
      return fail(Error{
          Errc::unavailable,
          fmt::format("memory node {} has restarted {} times; offsets for C say which time in 16 bits",
                      mn, memory->mn_incarnation - 1)});
    *offset = packed(*memory);
    return 0;
  });
}

uint64_t declock_lock_bytes(const declock_cluster* cluster) {
  return cluster == nullptr ? 0 : cluster->cluster.lock_bytes();
}

int declock_read(declock_cluster* cluster, uint16_t mn, uint64_t offset, uint64_t* words,
                 size_t count) {
  if (cluster == nullptr || words == nullptr) return null_pointer();
  return guarded([&] { return as_code(cluster->cluster.read(address(mn, offset), {words, count})); });
}

int declock_write(declock_cluster* cluster, uint16_t mn, uint64_t offset, const uint64_t* words,
                  size_t count) {
  if (cluster == nullptr || words == nullptr) return null_pointer();
  return guarded([&] { return as_code(cluster->cluster.write(address(mn, offset), {words, count})); });
}

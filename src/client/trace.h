// What happened to locks, on a timeline: waits, holds and releases, written as a file that trace viewers open
// (chrome://tracing, Perfetto). `declock trace` puts the files of several processes together.
//
// Thread-safety: any thread at any time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "declock/lock_ref.h"
#include "declock/result.h"
#include "lock/lock.h"

namespace declock::client {

// A lock that is held through the library.
struct Held {
  Hold hold;
  std::int64_t since_ns = 0;  // 0: not timed
  std::uint32_t counts = 1;   // for so many holds, when it is timed
  std::uint32_t track = 0;    // of a trace
};

class TraceLog {
 public:
  // The file is made now: that it cannot be is found out before anything is traced.
  static Result<std::unique_ptr<TraceLog>, std::string> open(const std::string& path);

  // A wait is over; the hold gets a track of the timeline, of its own while it lasts.
  void acquired(const LockRef& lock, Held& held, std::int64_t called_ns);
  // A hold, and its release.
  void released(const LockRef& lock, const Held& held, std::int64_t began_ns, std::int64_t ended_ns);

  // Once, at the end; label(lock) names it for a person.
  Result<void, std::string> write(const std::function<std::string(RemoteAddr)>& label);

 private:
  static constexpr std::size_t kEventsMax = 1 << 20;  // what comes later is lost, and the file says so

  enum class Kind : std::uint8_t { wait, hold, release };
  struct Event {
    Kind kind;
    Mode mode;
    std::uint8_t epoch;
    std::uint32_t track;
    std::uint32_t sequence;
    RemoteAddr lock;
    std::uint64_t ticket;
    std::int64_t from_ns;
    std::int64_t to_ns;
  };

  TraceLog(std::string path, Descriptor descriptor)
      : path_(std::move(path)), descriptor_(std::move(descriptor)) {}
  void note(Kind kind, const LockRef& lock, const Held& held, std::int64_t from_ns, std::int64_t to_ns);
  std::uint32_t take_track(std::int64_t from_ns);

  std::string path_;
  Descriptor descriptor_;
  std::mutex mutex_;
  struct Track {
    bool is_taken;
    std::int64_t until_ns;  // its last event
  };
  std::vector<Track> tracks_;
  std::vector<Event> events_;
  std::uint64_t lost_ = 0;
};

}  // namespace declock::client

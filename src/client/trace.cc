#include "client/trace.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>

#include "base/utf8.h"

namespace declock::client {
namespace {

bool is_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text, at);
    if (length == 0) return false;
    at += length;
  }
  return true;
}

std::string quoted(std::string_view text) {
  const unsigned char plain_max = is_utf8(text) ? 0xFF : 0x7E;
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > plain_max) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

}  // namespace

Result<std::unique_ptr<TraceLog>, std::string> TraceLog::open(const std::string& path) {
  Descriptor file{::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)};
  if (file.number() < 0) return Failure{fmt::format("trace {}: {}", path, std::strerror(errno))};
  return std::unique_ptr<TraceLog>{new TraceLog{path, std::move(file)}};
}

// One on which nothing happened since then: what is on one track does not overlap.
std::uint32_t TraceLog::take_track(std::int64_t from_ns) {
  auto free = std::find_if(tracks_.begin(), tracks_.end(), [&](const Track& track) {
    return !track.is_taken && track.until_ns <= from_ns;
  });
  if (free == tracks_.end()) free = tracks_.insert(free, Track{});
  free->is_taken = true;
  return static_cast<std::uint32_t>(free - tracks_.begin());
}

void TraceLog::note(Kind kind, const LockRef& lock, const Held& held, std::int64_t from_ns,
                    std::int64_t to_ns) {
  if (events_.size() >= kEventsMax) {
    lost_ += 1;
    return;
  }
  events_.push_back({kind, held.hold.mode, held.hold.epoch.value, held.track, held.hold.local_sequence,
                     lock.at, held.hold.ticket.value, from_ns, to_ns});
}

void TraceLog::acquired(const LockRef& lock, Held& held, std::int64_t called_ns) {
  const std::lock_guard guard{mutex_};
  held.track = take_track(called_ns);
  note(Kind::wait, lock, held, called_ns, held.since_ns);
}

void TraceLog::released(const LockRef& lock, const Held& held, std::int64_t began_ns,
                        std::int64_t ended_ns) {
  const std::lock_guard guard{mutex_};
  note(Kind::hold, lock, held, held.since_ns, began_ns);
  note(Kind::release, lock, held, began_ns, ended_ns);
  tracks_[held.track] = {false, ended_ns};
}

Result<void, std::string> TraceLog::write(const std::function<std::string(RemoteAddr)>& label) {
  const std::lock_guard guard{mutex_};
  constexpr std::string_view kNames[] = {"wait", "hold", "release"};
  const int pid = getpid();
  std::string text = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
  text += fmt::format(
      "{{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":{},\"tid\":0,\"args\":{{\"name\":\"declock "
      "{}\"}}}}",
      pid, pid);
  for (std::size_t i = 1; i <= tracks_.size(); ++i) {
    text += fmt::format(
        ",\n{{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":{},\"tid\":{},\"args\":{{\"name\":\"row "
        "{}\"}}}}",
        pid, i, i);
  }
  for (const Event& e : events_) {
    text += fmt::format(
        ",\n{{\"name\":\"{}\",\"cat\":\"lock\",\"ph\":\"X\",\"ts\":{}.{:03},\"dur\":{}.{:03},\"pid\":{}"
        ","
        "\"tid\":{},\"args\":{{\"lock\":{},\"mode\":\"{}\",\"ticket\":{},\"sequence\":{},\"epoch\":{}}}"
        "}}",
        kNames[static_cast<std::size_t>(e.kind)], e.from_ns / 1000, e.from_ns % 1000,
        (e.to_ns - e.from_ns) / 1000, (e.to_ns - e.from_ns) % 1000, pid, e.track + 1,
        quoted(label(e.lock)), e.mode == Mode::shared ? "shared" : "exclusive", e.ticket, e.sequence,
        e.epoch);
  }
  text += fmt::format("\n],\"otherData\":{{\"lost\":{}}}}}\n", lost_);
  if (!descriptor_.is_ours())
    return Failure{fmt::format("trace {}: the program has closed its descriptor", path_)};
  for (std::string_view left = text; !left.empty();) {
    const ssize_t written = ::write(descriptor_.number(), left.data(), left.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return Failure{fmt::format("trace {}: {}", path_, std::strerror(errno))};
    left.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

}  // namespace declock::client

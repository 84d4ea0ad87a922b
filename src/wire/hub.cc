#include "wire/hub.h"

#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/futex.h"

namespace declock::wire {
namespace {

constexpr Duration kPauseMax = milliseconds(500);
constexpr Duration kLateTurn = seconds(1);  // of the loop, which takes milliseconds
// What the side has to do comes in bursts: after one it is looked at for this long before anybody sleeps.
constexpr Duration kSideBurst = microseconds(30);

}  // namespace

Hub::Hub(const Secret& secret, Handler& handler, Duration tick)
    : secret_(secret), handler_(handler), tick_(tick), rung_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Hub::~Hub() {
  if (listener_ >= 0) close(listener_);
  if (rung_ >= 0) close(rung_);
}

Result<std::uint16_t, std::string> Hub::listen(const HostPort& at) {
  const Result<int, std::string> listener = listen_on(at);
  if (!listener) return Failure{listener.error()};
  listener_ = *listener;
  return local_port(listener_);
}

LineId Hub::dial(const HostPort& at) {
  auto line = std::make_unique<Line>();
  line->dialled = at;
  lines_.emplace(++last_, std::move(line));
  return last_;
}

void Hub::hang_up(LineId id) {
  const auto at = lines_.find(id);
  if (at != lines_.end()) at->second->is_dead = true;
}

void Hub::send(LineId id, std::string_view frame) {
  const auto at = lines_.find(id);
  if (at == lines_.end() || at->second->is_dead) return;
  std::optional<Connection>& connection = at->second->connection;
  if (connection && connection->established()) connection->send(frame);
}

bool Hub::is_up(LineId id) const {
  const auto at = lines_.find(id);
  return at != lines_.end() && !at->second->is_dead && at->second->connection &&
         at->second->connection->established();
}

std::string Hub::local_host(LineId id) const {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  std::array<char, NI_MAXHOST> host{};
  const auto at = lines_.find(id);
  if (at == lines_.end() || !at->second->connection) return {};
  auto* bare = reinterpret_cast<sockaddr*>(&address);
  if (getsockname(at->second->connection->descriptor(), bare, &length) != 0) return {};
  if (getnameinfo(bare, length, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST) != 0) return {};
  return host.data();
}

void Hub::post(std::function<void()> job) {
  {
    const std::lock_guard guard{jobs_mutex_};
    jobs_.push_back(std::move(job));
  }
  (void)eventfd_write(rung_, 1);
}

void Hub::stop() {
  stopping_.store(true);
  (void)eventfd_write(rung_, 1);
}

void Hub::work_off_jobs() {
  std::vector<std::function<void()>> jobs;
  {
    const std::lock_guard guard{jobs_mutex_};
    jobs.swap(jobs_);
  }
  for (const auto& job : jobs) job();
}

void Hub::run() {
  Time next_tick = monotonic_now();
  Time turned = next_tick;
  while (!stopping_.load()) {
    work_off_jobs();
    const Time now = monotonic_now();
    // What came in while this loop was away has not been read: that time is not held against anybody.
    const Duration away = now - turned;
    turned = now;
    if (now >= next_tick) {
      next_tick = now + tick_;
      handler_.on_tick(now);
    }
    for (auto& [id, line] : lines_) {
      if (line->dialled && !line->connection && !line->is_dead && now >= line->since)
        try_dialling(*line, now);
      if (away > kLateTurn && line->connection) line->since = line->since + away;
      const bool is_late =
          line->connection && !line->connection->established() && now > line->since + kHandshakeMax;
      if (is_late)
        end(id, *line, line->connection->peer() + " did not prove itself within 5 s", false, now);
      if (line->connection && line->connection->unsent() > kUnsentMax)
        end(id, *line, line->connection->peer() + " does not take what it is sent", false, now);
    }
    std::erase_if(lines_, [&](const auto& entry) {
      if (!entry.second->is_dead) return false;
      accepted_ -= entry.second->dialled ? 0 : 1;
      return true;
    });
    handler_.on_turn();
    wait(next_tick);
  }
  // What was said last is sent, if it can be without waiting.
  for (auto& [id, line] : lines_) {
    if (line->connection) (void)line->connection->handle(POLLOUT);
  }
}

void Hub::wait(Time until) {
  std::vector<pollfd> waits{{rung_, POLLIN, 0}};
  const Time now = monotonic_now();
  const bool may_accept = listener_ >= 0 && now >= accept_from_ && accepted_ < kAcceptedMax;
  waits.push_back({may_accept ? listener_ : -1, POLLIN, 0});
  const bool side_may_wait = side_ == nullptr || side_->may_wait();
  waits.push_back({side_ != nullptr ? side_->wait_descriptor() : -1, POLLIN, 0});
  std::vector<LineId> ids(waits.size());
  for (const auto& [id, line] : lines_) {
    if (!line->connection && !line->is_dead) until = std::min(until, line->since);
    if (!line->connection) continue;
    waits.push_back({line->connection->descriptor(), line->connection->wanted_events(), 0});
    ids.push_back(id);
  }
  const std::int64_t left_ns = side_may_wait ? std::max<std::int64_t>((until - now).ns, 0) : 0;
  const timespec timeout{left_ns / 1'000'000'000, left_ns % 1'000'000'000};
  (void)::ppoll(waits.data(), waits.size(), &timeout, nullptr);

  if (waits[2].revents != 0 || !side_may_wait) run_side();
  std::uint64_t rung = 0;
  if (waits[0].revents != 0) (void)!read(rung_, &rung, sizeof rung);
  const Time then = monotonic_now();
  if (waits[1].revents != 0) accept_all(then);
  for (std::size_t i = 3; i < waits.size(); ++i) {
    const auto at = lines_.find(ids[i]);
    if (waits[i].revents != 0 && at != lines_.end())
      handle(ids[i], *at->second, waits[i].revents, then);
  }
}

void Hub::run_side() {
  const Time from = monotonic_now();
  do {
    for (int i = 0; i < 8; ++i) (void)side_->progress();
  } while (monotonic_now() < from + kSideBurst);
}

void Hub::accept_all(Time now) {
  while (accepted_ < kAcceptedMax) {
    const int descriptor = accept_from(listener_);
    if (descriptor < 0) {
      const bool full = errno == EMFILE || errno == ENFILE;
      if (full) accept_from_ = now + milliseconds(100);
      return;
    }
    if (is_among_the_last(descriptor, kSpareDescriptors)) {
      const std::string full = Session::full();
      (void)!::send(descriptor, full.data(), full.size(), MSG_NOSIGNAL);  // there is room for so little
      const std::string who = peer_name(descriptor);
      close(descriptor);
      handler_.on_down(++last_, who + " was refused: this process " + no_descriptors_left(), true);
      continue;
    }
    auto line = std::make_unique<Line>();
    line->connection.emplace(descriptor, Session{Role::server, secret_});
    line->since = now;
    lines_.emplace(++last_, std::move(line));
    accepted_ += 1;
  }
}

void Hub::try_dialling(Line& line, Time now) {
  const Result<int, std::string> descriptor = connect_to(*line.dialled);
  line.since = now;
  if (descriptor) {
    line.connection.emplace(*descriptor, Session{Role::client, secret_}, to_string(*line.dialled));
    return;
  }
  line.since = now + kPauseMax;
  handler_.on_down(0, descriptor.error(), false);
}

void Hub::handle(LineId id, Line& line, short events, Time now) {
  if (!line.connection || line.is_dead) return;
  const bool was_up = line.told_up;
  const Result<void, std::string> handled = line.connection->handle(events);
  if (!was_up && line.connection->established()) {
    line.told_up = true;
    line.pause = milliseconds(20);
    handler_.on_up(id);
  }
  while (!line.is_dead && line.connection) {
    const std::optional<std::string> frame = line.connection->next_frame();
    if (!frame) break;
    handler_.on_frame(id, *frame);
  }
  if (!handled && !line.is_dead) end(id, line, handled.error(), line.connection->was_refused(), now);
}

void Hub::end(LineId id, Line& line, const std::string& why, bool refused, Time now) {
  line.connection.reset();
  line.told_up = false;
  line.since = now + line.pause;
  line.pause = std::min(line.pause * 2, kPauseMax);
  if (!line.dialled) line.is_dead = true;
  handler_.on_down(id, why, refused);
}

}  // namespace declock::wire

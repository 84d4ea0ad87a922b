#include "member_net/links.h"

namespace declock::member {

// ---------------------------------------------------------------- a compute node's

void NetComputeLink::join(const Join& join) {
  join_ = join;
  say_hello();
}

void NetComputeLink::say_hello() {
  if (!hub_.is_up(line_) || given_up_) return;
  if (!self_) {
    if (join_) send(*join_);
    return;
  }
  if (leaving_) return send(Leave{*self_});
  send(Renew{*self_});
  send(Fetch{0});
  for (const std::uint64_t ask : asks_) send(Fetch{ask});
}

void NetComputeLink::fetch(std::uint64_t ask) {
  asks_.insert(ask);
  send(Fetch{ask});
}

void NetComputeLink::leave() {
  leaving_ = true;
  say_hello();
}

void NetComputeLink::on_tick(Time now) {
  if (!self_ || leaving_ || given_up_ || (now - renewed_).ns < lease_.ns / 4) return;
  renewed_ = now;
  send(Renew{*self_});
}

void NetComputeLink::on_up() {
  say_hello();
}

bool NetComputeLink::on_frame(const std::string& frame) {
  const auto handle = [&]<class T>(const T& message) {
    if constexpr (std::is_same_v<T, Joined>) {
      if (!message.state.is_valid() || self_) return;
      self_ = message.self;
      lease_ = message.state.shape.lease;
      events_.on_joined(message.self, message.state);
    } else if constexpr (std::is_same_v<T, StateIs>) {
      if (!message.state.is_valid()) return;
      asks_.erase(message.ask);
      if (self_) events_.on_state(message.ask, message.state);
    } else if constexpr (std::is_same_v<T, Left>) {
      events_.on_left();
    } else if (message.evicted) {
      events_.on_evicted();
    } else {
      events_.on_refused(message.why, true);
    }
  };
  return dispatch<Joined, StateIs, Left, Refused>(frame, handle);
}

void NetComputeLink::on_down(const std::string& why, bool refused) {
  if (!self_) events_.on_refused(why, refused);
}

// ---------------------------------------------------------------- a memory node's

void NetMemoryLink::register_as(std::uint16_t id, const std::string& address,
                                std::uint32_t incarnation) {
  register_.id = id;
  register_.address = address;
  register_.incarnation = incarnation;
  if (hub_.is_up(line_)) send(register_);
}

void NetMemoryLink::fetch(std::uint64_t ask) {
  asks_.insert(ask);
  send(Fetch{ask});
}

void NetMemoryLink::on_up() {
  send(register_);
  for (const std::uint64_t ask : asks_) send(Fetch{ask});
}

bool NetMemoryLink::on_frame(const std::string& frame) {
  const auto handle = [&]<class T>(const T& message) {
    if constexpr (std::is_same_v<T, Registered>) {
      if (!message.state.is_valid()) return;
      register_.incarnation = message.incarnation;
      register_.cluster = message.state.shape.id;
      events_.on_registered(message.incarnation, message.state);
    } else if constexpr (std::is_same_v<T, StateIs>) {
      if (!message.state.is_valid()) return;
      asks_.erase(message.ask);
      events_.on_state(message.ask, message.state);
    } else if constexpr (std::is_same_v<T, Fence>) {
      events_.on_fence(message.member);
    } else {
      events_.on_refused(message.why);
    }
  };
  return dispatch<Registered, StateIs, Fence, Refused>(frame, handle);
}

}  // namespace declock::member
